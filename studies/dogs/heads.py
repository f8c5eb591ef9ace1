"""The classifier on top of the features (section:dogs): 1,024 convolutions 7×7, ELU, a dense layer.

A 7×7 convolution of 7×7 features has one output for each kernel. It is a linear map of all 100,352 features,
and is written as one. Three heads, which start from the same weights and see the same batches:

    erm      no adversary
    paper    WRM with the paper's γ = 10⁵
    proven   WRM with the smallest γ that ERM's head allows: half the curvature L̄ that is proven of it; again
             with more than half of its own, should that be larger. In the end 2γ > L̄ is proven of the head
             itself.

Features are not kept in [0, 1] while they are moved: nothing in the paper says that they were.

fig:supremum: does the inner problem of the heads converge in 20 steps?

    f(z) = ℓ(θ; z) − γ‖z − z₀‖²

As printed, z ← z + 10·∇f(z) at γ = 10⁵: each step multiplies the distance to z₀ by 2·10·10⁵ − 1. With
∇f/γ in place of ∇f it is still 19 times. In units of 1/2γ, as in the authors' code for MNIST, steps of 1/√t
converge. The paper's curve is the mean of f and its standard error over the first epoch of training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus._format import at_least, at_most
from certus.bounds import input_smoothness
from certus.data import Samples
from certus.display.canvas import COLOURS, new_figure
from certus.inner import WRM, PaperAscent
from certus.losses import CrossEntropy, ModelLoss, loss_and_slope
from certus.training import Fit, fit
from studies.dogs.features import Features, photo_features
from studies.study import Measured
from studies.workspace import Facts, TrainedNetwork, Workspace, trained_network

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = {"erm": "ERM", "paper": "WRM, γ = 10⁵", "proven": "WRM, proven γ"}
PAPER_GAMMA = 1e5
FEATURE_SHAPE, _CLASSES = (2048, 7, 7), 10
_MOST_TRIES = 4


def head(units: int, seed: int) -> nn.Sequential:
    """The untrained classifier of (n, 2048, 7, 7) features."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(2048 * 7 * 7, units), nn.ELU(), nn.Linear(units, _CLASSES)
        )


def gamma_text(gamma: float, places: int = 2) -> str:
    """Format γ with this many decimals, rounded down; exactly, if it has six digits or fewer.

    >>> gamma_text(1e5), gamma_text(17.8499999)
    ('100000', '17.84')
    """
    return f"{gamma:g}" if float(f"{gamma:g}") == gamma else at_least(gamma, places)


def condition_text(gamma: float, *bounds: float) -> list[str]:
    """Format γ rounded down and each L̄ rounded up, with enough digits to show 2γ > L̄ where it holds.

    >>> condition_text(17.8425912, 33.5531), condition_text(17.8425912, 99.0, 35.6849)
    (['17.84', '33.56'], ['17.8425', '99.0000', '35.6849'])
    """
    below = [bound for bound in bounds if bound < 2 * gamma]
    for places in range(2, 16):
        text = gamma_text(gamma, places)
        if all(2 * Decimal(text) > Decimal(at_most(bound, places)) for bound in below):
            break
    return [text, *(at_most(bound, places) for bound in bounds)]


def head_features(workspace: Workspace, how: Mapping[str, Any]) -> Features:
    """Return the features that heads are trained and tested on."""
    return photo_features(workspace, how["train"], how["test"])


def trained_head(workspace: Workspace, kind: str, how: Mapping[str, Any]) -> TrainedNetwork:
    """Load or train one of ``HEADS``, after those that its γ comes from.

    Args:
        how: train, test: numbers of photographs; units, epochs, batch, rate, seed.
    """

    def train(model: nn.Module) -> Facts:
        data = head_features(workspace, how).train
        if kind == "proven":
            curvature = trained_head(workspace, "erm", how).facts["curvature"]
            return train_above_bound(model, data, how, curvature)
        gamma = PAPER_GAMMA if kind == "paper" else None
        return _facts(model, _fit(model, data, how, gamma), gamma)

    recipe = {"head": kind, **how}
    return trained_network(workspace, f"head-{kind}", recipe, lambda: head(how["units"], how["seed"]), train)


def train_above_bound(model: nn.Module, data: Samples, how: Mapping[str, Any], curvature: float) -> Facts:
    """Train by WRM with 2γ above ``curvature``, again until 2γ exceeds the new head's own curvature."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    tried = []
    for _ in range(_MOST_TRIES):
        gamma = 1.001 * curvature / 2
        model.load_state_dict(start)
        facts = _facts(model, _fit(model, data, how, gamma), gamma)
        tried.append([gamma, facts["curvature"]])
        if 2 * gamma > facts["curvature"]:
            break
        curvature = 1.1 * facts["curvature"]
    return facts | {"tried": tried, "holds": 2 * gamma > facts["curvature"]}


def _fit(model: nn.Module, data: Samples, how: Mapping[str, Any], gamma: float | None) -> Fit:
    return fit(
        model,
        data,
        method=None if gamma is None else WRM(gamma),
        epochs=how["epochs"],
        batch_size=how["batch"],
        optimizer=lambda groups: torch.optim.Adam(groups, lr=how["rate"]),
        seed=how["seed"],
        progress=False,
    )


def _facts(model: nn.Module, trained: Fit, gamma: float | None) -> Facts:
    """Return the proven bounds of a head, and ρ̂ of WRM."""
    proven = input_smoothness(model.eval(), input_shape=FEATURE_SHAPE)
    reached = trained.robustness
    return {
        "gamma": gamma,
        "rho_hat": None if reached is None else reached.rho_hat,
        "curvature": proven.curvature,
        "printed_bound": proven.bounds["paper"],
        "slope": proven.lipschitz,
        "evidence": str(proven.evidence),
    }


PAPER_STEP, PAPER_STEPS = 10.0, 20


def literal_ascent(
    loss: ModelLoss, data: Samples, gamma: float, step: float, steps: int, *, divided: bool
) -> list[float]:
    """The mean of f before and after each step of z ← z + step·∇f(z), or of ∇f(z)/γ; it ends where f is not
    finite any more.

    >>> from torch import nn
    >>> constant = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    >>> _ = nn.init.zeros_(constant[1].weight), nn.init.zeros_(constant[1].bias)
    >>> data = Samples(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    >>> [round(value, 2) for value in literal_ascent(ModelLoss(constant), data, 1.0, 10.0, 2, divided=False)]
    [0.69, 0.69, 0.69]
    """
    point, values = data.inputs.clone(), []
    for number in range(steps + 1):
        value, slope = loss_and_slope(loss, point.requires_grad_(), data.targets)
        point = point.detach()
        moved = point - data.inputs
        f = value.detach().double() - gamma * moved.double().flatten(1).square().sum(1)
        mean = float(f.mean())
        if not math.isfinite(mean):
            break
        values.append(mean)
        if number < steps:
            rise = slope - 2 * gamma * moved
            point = point + step * (rise / gamma if divided else rise)
    return values


def trace_of_first_epoch(
    loss: ModelLoss, data: Samples, how: Mapping[str, Any], gamma: float, steps: int
) -> dict[str, Any]:
    """Train for one epoch by Algorithm 1; return mean and standard error of f after each inner step."""
    optimizer = torch.optim.Adam(loss.model.parameters(), lr=how["rate"])
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(how["seed"]))
    rows: list[Tensor] = []
    for chosen in order.split(how["batch"]):
        batch = data[chosen]
        with torch.no_grad():
            seen = [loss(batch.inputs, batch.targets)]

        def keep(step: int, point: Tensor, value: Tensor, seen: list[Tensor] = seen) -> None:
            seen.append(value)

        solution = WRM(gamma, maximizer=PaperAscent(steps)).solve(
            loss, batch.inputs, batch.targets, callback=keep
        )
        rows.append(torch.stack(seen, 1))
        loss(solution.inputs, batch.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    values = torch.cat(rows).double()
    return {
        "gamma": gamma,
        "samples": len(values),
        "mean": values.mean(0).tolist(),
        "standard_error": (values.std(0) / math.sqrt(len(values))).tolist(),
        "gain": (values - values[:, :1]).mean(0).tolist(),
    }


def measure_ascent(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Trace the three ascents at γ = 10⁵, and the one that converges at the proven γ."""
    how = settings["how"]
    gamma = trained_head(workspace, "proven", how).facts["gamma"]
    data = head_features(workspace, how).train

    def fresh() -> ModelLoss:
        return ModelLoss(head(how["units"], how["seed"]), CrossEntropy())

    few = data[: settings["few"]]
    traces: dict[str, Any] = {
        "printed": literal_ascent(fresh(), few, PAPER_GAMMA, PAPER_STEP, PAPER_STEPS, divided=False),
        "divided": literal_ascent(fresh(), few, PAPER_GAMMA, PAPER_STEP, PAPER_STEPS, divided=True),
    }
    for name, level, samples in (("proven", gamma, data), ("paper", PAPER_GAMMA, few)):
        traces[name] = trace_of_first_epoch(fresh(), samples, how, level, PAPER_STEPS)
    return traces


def draw_ascent(measured: Measured) -> Figure:
    """Draw the diverging ascents on the left, the converging ones at 10⁵ and at the proven γ beside them."""
    traces = measured["ascent"]
    figure = new_figure(12.6, 3.9)
    left, *others = figure.subplots(1, 3)
    for name, label, colour in (("printed", "steps of 10 ∇f", 1), ("divided", "steps of 10 ∇f/γ", 3)):
        falls = [traces[name][0] - value for value in traces[name]]
        left.plot(range(1, len(falls)), falls[1:], "o-", markersize=4, color=COLOURS[colour], label=label)
    left.set(yscale="log", title="as printed: γ = 10⁵, step 10", ylabel="how far f has fallen below f(z₀)")
    left.legend(frameon=False, fontsize="small")
    titles = {"paper": "γ = 10⁵, steps of 1/(2γ√t)", "proven": "γ = {gamma}, from a proven bound"}
    for axes, (name, title) in zip(others, titles.items(), strict=True):
        trace = traces[name]
        mean, error = torch.tensor(trace["mean"]), torch.tensor(trace["standard_error"])
        steps = range(len(mean))
        axes.plot(steps, mean, color=COLOURS[0], label="mean of f")
        axes.fill_between(steps, mean - error, mean + error, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.set(
            title=title.format(gamma=gamma_text(trace["gamma"])), ylabel="ℓ − γc, mean and standard error"
        )
    for axes in (left, *others):
        axes.set(xlabel="inner iteration", xlim=(0, PAPER_STEPS))
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle("CIFAR-10 in place of Stanford Dogs", fontsize=10)
    return figure
