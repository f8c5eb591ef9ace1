"""Attacks on features and pixels (fig:dogs-theory, fig:dogs-hacky), and the networks fine-tuned on pixels.

Test errors are under sup-norm PGM and L2 WRM.

Strengths are scaled by C_p = E‖X‖_p as in all of the paper's figures: ε_adv/C_∞, and C₂/γ_adv. Moved inputs
are not clipped.

The whole ResNet-50, fine-tuned with perturbations of raw pixels (section:dogs, fig:dogs-hacky): no proof.

WRM has the paper's γ = 1, and a larger one beside it. FGM and PGM may move by ε with ε² = ρ̂_n(θ_WRM) at
γ = 1, in L2, as with MNIST. All start from ImageNet's weights; their new last layer is fitted to the features
beforehand, alone. Photographs are enlarged to 64 × 64 only: at 224 × 224 one gradient of one photograph takes
a third of a second. Pixels are not kept in [0, 1] while they are moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from certus.attacks import FGM, PGM
from certus.attacks.evaluation import Trial, sweep, typical_length
from certus.data import Samples
from certus.display.canvas import MARKERS
from certus.display.figures import Curve, Panel, Style, numbered_styles, sweep_figure
from certus.inner import WRM
from certus.inner.methods import Method
from certus.losses import CrossEntropy, ModelLoss
from certus.training import fit
from studies.dogs.features import AT_ONCE, enlarged, photographs
from studies.dogs.resnet50 import Resnet50, pretrained, resnet50_weights
from studies.mnist.networks import MNIST_METHODS
from studies.page import markdown_table
from studies.study import subscripted
from studies.workspace import Facts, TrainedNetwork, Workspace, trained_network

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"pgm": "(a) PGM attack, ‖·‖_∞", "wrm": "(b) WRM attack, ‖·‖₂"}
AXES = {"pgm": "ε_adv / C_∞", "wrm": "C₂ / γ_adv"}


def attacked(model: nn.Module, data: Samples, train: Samples, how: Mapping[str, Any]) -> dict[str, Any]:
    """Return errors at rising strengths, the first without an attack.

    Args:
        train: decides C_p.
        how: pgm, wrm: strengths above 0 as the axes have them; steps of PGM.
    """
    loss = ModelLoss(model, CrossEntropy())
    sup, l2 = typical_length(train, float("inf")), typical_length(train, 2.0)
    trials = {"pgm": [Trial("pgm", float("inf"), 0.0, clipped=False)], "wrm": []}
    for share in how["pgm"]:
        trials["pgm"].append(Trial("pgm", float("inf"), share * sup, steps=how["steps"], clipped=False))
    for share in how["wrm"]:
        trials["wrm"].append(Trial("wrm", None, None, gamma=l2 / share, clipped=False))
    done = {name: sweep(loss, data, several) for name, several in trials.items()}
    done["wrm"].insert(0, done["pgm"][0])
    result: dict[str, Any] = {"C_inf": sup, "C_2": l2, "samples": len(data)}
    for name, outcomes in done.items():
        rows = []
        for share, (_, outcome) in zip((0.0, *how[name]), outcomes, strict=True):
            error = outcome.error
            assert error is not None
            rows.append(
                {
                    "strength": share,
                    "error": error.value,
                    "low": error.low,
                    "high": error.high,
                    "moved": outcome.rho_test,
                }
            )
        result[name] = rows
    return result


def method_styles(names: Iterable[str], bold: str) -> dict[str, Style]:
    """Return a style for each name: the method's colour on MNIST, dashed for variants other than ``bold``.

    Args:
        names: such as "WRM, γ = 1": the method stands before the comma.
    """
    numbered, styles = numbered_styles(MNIST_METHODS.values()), {}
    for name in names:
        style, aside = numbered[name.partition(",")[0]], name != bold and name not in numbered
        styles[name] = style | ({"marker": MARKERS[len(numbered)], "linestyle": "--"} if aside else {})
    return styles


def two_panels(
    sweeps: Mapping[str, Mapping[str, Any]], title: str, bold: str, mark: Mapping[str, float | None]
) -> Figure:
    """Draw the paper's two panels.

    Args:
        sweeps: legend → what ``attacked`` found.
        bold: whose training the mark is about.
        mark: attack → the strength that training was for, if any.
    """
    panels = [
        Panel(
            subscripted(TITLES[attack]),
            subscripted(AXES[attack]),
            "test error",
            {name: _curve(errors[attack]) for name, errors in sweeps.items()},
            mark.get(attack),
        )
        for attack in TITLES
    ]
    styles = method_styles(sweeps, bold)
    return sweep_figure(panels, f"{title}: CIFAR-10 in place of Stanford Dogs", styles=styles)


def _curve(rows: Sequence[Mapping[str, float]]) -> Curve:
    strengths, values, low, high = (
        [row[what] for row in rows] for what in ("strength", "error", "low", "high")
    )
    return Curve(strengths, values, low, high)


def table_of_errors(sweeps: Mapping[str, Mapping[str, Any]]) -> str:
    """Return Markdown tables of errors in percent, one for each attack."""
    tables = []
    for attack in TITLES:
        first = next(iter(sweeps.values()))[attack]
        head = [f"{TITLES[attack]}: {AXES[attack]} =", *(f"{row['strength']:g}" for row in first)]
        rows = [
            [name, *(f"{100 * row['error']:.1f}" for row in errors[attack])]
            for name, errors in sweeps.items()
        ]
        tables.append(markdown_table(head, rows))
    return "\n\n".join(tables)


def farthest_behind(sweeps: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """Return how much more a network errs than the best other one, at the worst of all strengths."""
    behind: list[float] = [
        row["error"]
        - min(errors[attack][place]["error"] for other, errors in sweeps.items() if other != name)
        for attack in TITLES
        for place, row in enumerate(sweeps[name][attack])
    ]
    return max(behind)


PIXEL_METHODS = {"erm": "ERM", "fgm": "FGM", "pgm": "PGM", "wrm": "WRM, γ = 1", "gentle": "WRM, γ = 30"}
PIXEL_GAMMAS = {"wrm": 1.0, "gentle": 30.0}
_PGM_STEPS = 5


def enlarged_photographs(part: str, count: int, side: int) -> Samples:
    """Return (count, 3, side, side) photographs in [0, 1] and their labels."""
    data = photographs(part, count)
    return Samples(enlarged(data.inputs, side), data.targets)


def fine_tuned(workspace: Workspace, method: str, how: Mapping[str, Any]) -> TrainedNetwork:
    """Load or train one of ``PIXEL_METHODS``, after the WRM that its ε comes from.

    Args:
        how: train: number of photographs; side, epochs, batch, rate, seed; probe: steps of the last layer
            alone.
    """

    def train(model: nn.Module) -> Facts:
        epsilon = None
        if method in ("fgm", "pgm"):
            epsilon = math.sqrt(fine_tuned(workspace, "wrm", how).facts["rho_hat"])
        data = enlarged_photographs("train", how["train"], how["side"])
        fit_last_layer(model, data, how["probe"])
        trained = fit(
            model,
            data,
            method=_method(method, epsilon),
            epochs=how["epochs"],
            batch_size=how["batch"],
            optimizer=lambda groups: torch.optim.Adam(groups, lr=how["rate"]),
            seed=how["seed"],
            progress=False,
        )
        reached = trained.robustness
        return {"epsilon": epsilon, "rho_hat": None if reached is None else reached.rho_hat}

    return trained_network(
        workspace, f"pixels-{method}", {"pixels": method, **how}, lambda: _untrained(how["seed"]), train
    )


def moves_of_wrm(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure how far the paper's γ moves training photographs, before and after fine-tuning.

    Args:
        settings: how, as above; samples: number of photographs.
    """
    how = settings["how"]
    data = enlarged_photographs("train", how["train"], how["side"])
    start = _untrained(how["seed"])
    fit_last_layer(start, data, how["probe"])
    few, moves = data[: settings["samples"]], {}
    for name, model in (("start", start.eval()), ("end", fine_tuned(workspace, "wrm", how).model)):
        loss = ModelLoss(model, CrossEntropy())
        solved = [
            WRM(PIXEL_GAMMAS["wrm"]).eval().solve(loss, inputs, targets)
            for inputs, targets in zip(few.inputs.split(AT_ONCE), few.targets.split(AT_ONCE), strict=True)
        ]
        with torch.no_grad():
            clean = torch.cat([model(inputs) for inputs in few.inputs.split(AT_ONCE)])
        moves[name] = {
            "rho": float(torch.cat([entry.transport_cost for entry in solved]).mean()),
            "phi": float(torch.cat([entry.value for entry in solved]).mean()),
            "error": float((clean.argmax(1) != few.targets).float().mean()),
        }
    return moves


def _untrained(seed: int) -> nn.Module:
    """Return ImageNet's network with an untrained last layer of 10 classes."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return pretrained(resnet50_weights(), outputs=10)


def fit_last_layer(model: nn.Module, data: Samples, steps: int) -> None:
    """Fit the last layer alone, by steps of Adam on all samples at once."""
    assert isinstance(model, Resnet50)
    with torch.no_grad():
        seen = [model.features(images).mean((2, 3)) for images in data.inputs.split(AT_ONCE)]
    inputs = torch.cat(seen)
    optimizer = torch.optim.Adam(model.last.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.last(inputs), data.targets).backward()
        optimizer.step()


def _method(method: str, epsilon: float | None) -> Method | None:
    if method == "erm":
        return None
    if method in PIXEL_GAMMAS:
        return WRM(PIXEL_GAMMAS[method])
    assert epsilon is not None
    return FGM(epsilon, 2.0) if method == "fgm" else PGM(epsilon, 2.0, steps=_PGM_STEPS)
