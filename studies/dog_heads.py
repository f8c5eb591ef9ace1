"""The classifier on top of the features (section:dogs): 1,024 convolutions 7×7, ELU, a dense layer.

A 7×7 convolution of 7×7 features has one output for each kernel. It is a linear map of all 100,352 features,
and is written as one. Three heads, which start from the same weights and see the same batches:

    erm      no adversary
    paper    WRM with the paper's γ = 10⁵
    proven   WRM with the smallest γ that ERM's head allows: half the curvature L̄ that is proven of it; again
             with more than half of its own, should that be larger. In the end 2γ > L̄ is proven of the head
             itself.

Features are not kept in [0, 1] while they are moved: nothing in the paper says that they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import torch
from torch import nn

from certus._format import at_least, at_most
from certus.bounds import input_smoothness
from certus.data import Split
from certus.inner import WRM
from certus.training import Fit, fit
from studies.dog_features import Features, photo_features
from studies.kept_networks import Facts, Kept, kept_network
from studies.workshop import Workshop

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


def spoken_gamma(gamma: float, places: int = 2) -> str:
    """With so many decimals, rounded down; as it is, if it has six digits or fewer.

    >>> spoken_gamma(1e5), spoken_gamma(17.8499999)
    ('100000', '17.84')
    """
    return f"{gamma:g}" if float(f"{gamma:g}") == gamma else at_least(gamma, places)


def spoken_condition(gamma: float, *bounds: float) -> list[str]:
    """γ rounded down, then each L̄ rounded up: with as many digits as show 2γ > L̄ of those that are so.

    >>> spoken_condition(17.8425912, 33.5531), spoken_condition(17.8425912, 99.0, 35.6849)
    (['17.84', '33.56'], ['17.8425', '99.0000', '35.6849'])
    """
    below = [bound for bound in bounds if bound < 2 * gamma]
    for places in range(2, 16):
        shown = spoken_gamma(gamma, places)
        if all(2 * Decimal(shown) > Decimal(at_most(bound, places)) for bound in below):
            break
    return [shown, *(at_most(bound, places) for bound in bounds)]


def head_features(workshop: Workshop, how: Mapping[str, Any]) -> Features:
    """The photographs that heads are trained and tested on."""
    return photo_features(workshop, how["train"], how["test"])


def trained_head(workshop: Workshop, kind: str, how: Mapping[str, Any]) -> Kept:
    """One of ``HEADS``: found, or trained, after those that its γ comes from.

    Args:
        how: train, test: numbers of photographs; units, epochs, batch, rate, seed.
    """

    def train(model: nn.Module) -> Facts:
        data = head_features(workshop, how).train
        if kind == "proven":
            known = trained_head(workshop, "erm", how).facts["curvature"]
            return train_above_bound(model, data, how, known)
        gamma = PAPER_GAMMA if kind == "paper" else None
        return _facts(model, _fit(model, data, how, gamma), gamma)

    recipe = {"head": kind, **how}
    return kept_network(workshop, f"head-{kind}", recipe, lambda: head(how["units"], how["seed"]), train)


def train_above_bound(model: nn.Module, data: Split, how: Mapping[str, Any], known: float) -> Facts:
    """Train by WRM with 2γ just above ``known``, and above the new head's own curvature in the end."""
    start = {name: value.clone() for name, value in model.state_dict().items()}
    tried = []
    for _ in range(_MOST_TRIES):
        gamma = 1.001 * known / 2
        model.load_state_dict(start)
        found = _facts(model, _fit(model, data, how, gamma), gamma)
        tried.append([gamma, found["curvature"]])
        if 2 * gamma > found["curvature"]:
            break
        known = 1.1 * found["curvature"]
    return found | {"tried": tried, "holds": 2 * gamma > found["curvature"]}


def _fit(model: nn.Module, data: Split, how: Mapping[str, Any], gamma: float | None) -> Fit:
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
    """What is proven of the head, and what WRM reached."""
    proven = input_smoothness(model.eval(), input_shape=FEATURE_SHAPE)
    reached = trained.robustness
    return {
        "gamma": gamma,
        "rho_hat": None if reached is None else reached.rho_hat,
        "curvature": proven.curvature,
        "printed_bound": proven.bounds["paper"],
        "slope": proven.lipschitz,
    }
