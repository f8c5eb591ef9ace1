"""The whole ResNet-50, fine-tuned with perturbations of raw pixels (section:dogs, fig:dogs-hacky): no proof.

WRM has the paper's γ = 1, and a larger one beside it. FGM and PGM may move by ε with ε² = ρ̂_n(θ_WRM) at
γ = 1, in L2, as with MNIST. All start from ImageNet's weights; their new last layer is fitted to the features
beforehand, alone. Photographs are enlarged to 64 × 64 only: at 224 × 224 one gradient of one photograph takes
a third of a second. Pixels are not kept in [0, 1] while they are moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from certus.attacks import fgm, pgm
from certus.data import Split
from certus.inner import WRM
from certus.inner.methods import Perturber
from certus.losses import CrossEntropy, ModelLoss
from certus.training import fit
from studies.dog_features import AT_ONCE, enlarged, photographs
from studies.kept_networks import Facts, Kept, kept_network
from studies.resnet50 import Resnet50, pretrained
from studies.resnet50_weights import resnet50_weights
from studies.workshop import Workshop

PIXEL_METHODS = {"erm": "ERM", "fgm": "FGM", "pgm": "PGM", "wrm": "WRM, γ = 1", "gentle": "WRM, γ = 30"}
PIXEL_GAMMAS = {"wrm": 1.0, "gentle": 30.0}
_PGM_STEPS = 5


def enlarged_photographs(part: str, count: int, side: int) -> Split:
    """(count, 3, side, side) in [0, 1], and their labels."""
    data = photographs(part, count)
    return Split(enlarged(data.inputs, side), data.targets)


def fine_tuned(workshop: Workshop, method: str, how: Mapping[str, Any]) -> Kept:
    """One of ``PIXEL_METHODS``: found, or trained, after the WRM that its ε comes from.

    Args:
        how: train: number of photographs; side, epochs, batch, rate, seed; probe: steps of the last layer
            alone.
    """

    def train(model: nn.Module) -> Facts:
        epsilon = None
        if method in ("fgm", "pgm"):
            epsilon = math.sqrt(fine_tuned(workshop, "wrm", how).facts["rho_hat"])
        data = enlarged_photographs("train", how["train"], how["side"])
        fit_last_layer(model, data, how["probe"])
        trained = fit(
            model,
            data,
            method=_perturber(method, epsilon),
            epochs=how["epochs"],
            batch_size=how["batch"],
            optimizer=lambda groups: torch.optim.Adam(groups, lr=how["rate"]),
            seed=how["seed"],
            progress=False,
        )
        reached = trained.robustness
        return {"epsilon": epsilon, "rho_hat": None if reached is None else reached.rho_hat}

    return kept_network(
        workshop, f"pixels-{method}", {"pixels": method, **how}, lambda: _new(how["seed"]), train
    )


def moves_of_wrm(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """How far the paper's γ moves training photographs, before WRM's fine-tuning and after it.

    Args:
        settings: how, as above; samples: number of photographs.
    """
    how = settings["how"]
    data = enlarged_photographs("train", how["train"], how["side"])
    start = _new(how["seed"])
    fit_last_layer(start, data, how["probe"])
    few, found = data[: settings["samples"]], {}
    for name, model in (("start", start.eval()), ("end", fine_tuned(workshop, "wrm", how).model)):
        loss = ModelLoss(model, CrossEntropy())
        solved = [
            WRM(PIXEL_GAMMAS["wrm"]).eval().solve(loss, inputs, targets)
            for inputs, targets in zip(few.inputs.split(AT_ONCE), few.targets.split(AT_ONCE), strict=True)
        ]
        with torch.no_grad():
            clean = torch.cat([model(inputs) for inputs in few.inputs.split(AT_ONCE)])
        found[name] = {
            "rho": float(torch.cat([one.transport_cost for one in solved]).mean()),
            "phi": float(torch.cat([one.value for one in solved]).mean()),
            "error": float((clean.argmax(1) != few.targets).float().mean()),
        }
    return found


def _new(seed: int) -> nn.Module:
    """ImageNet's network with a last layer of 10 classes that has seen nothing yet."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return pretrained(resnet50_weights(), outputs=10)


def fit_last_layer(model: nn.Module, data: Split, steps: int) -> None:
    """Steps of Adam on all samples at once; the rest of the network stays as it is."""
    assert isinstance(model, Resnet50)
    with torch.no_grad():
        seen = [model.features(images).mean((2, 3)) for images in data.inputs.split(AT_ONCE)]
    inputs = torch.cat(seen)
    optimizer = torch.optim.Adam(model.last.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model.last(inputs), data.targets).backward()
        optimizer.step()


def _perturber(method: str, epsilon: float | None) -> Perturber | None:
    if method == "erm":
        return None
    if method in PIXEL_GAMMAS:
        return WRM(PIXEL_GAMMAS[method])
    assert epsilon is not None
    return fgm(epsilon, 2.0) if method == "fgm" else pgm(epsilon, 2.0, steps=_PGM_STEPS)
