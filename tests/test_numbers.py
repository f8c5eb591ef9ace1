"""Numbers that nobody can mean are refused by the library with one clear line, before any work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certus
from certus.attacks import minimum_norm_attack
from certus.errors import ArgumentError, require_number, require_numbers, require_seed
from certus.losses import CrossEntropy, ModelLoss

INPUTS, LABELS = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
NOISE = {"sigma": 0.5, "confidence": 0.9}
NOT_NEGATIVE = "must be finite and not negative"


class Untouched(nn.Module):
    """A network that nobody asks."""

    def forward(self, inputs: Tensor) -> Tensor:
        raise AssertionError("work began before the arguments were checked")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 1e300}, "`rho` must be at most 1e+30; got 1e+300"),
        ({"rho": 10**400}, f"`rho` {NOT_NEGATIVE}; got 1000"),
        ({"rho": [0.1, math.nan]}, f"`rho` {NOT_NEGATIVE}; got nan"),
        ({"rho": torch.tensor(0.1)}, "`rho` must be a number; got tensor(0.1000)"),
        ({"rho": 1e-320}, "`rho` must be at least 1e-30; got 1e-320"),
        ({"epsilon": 1e-16}, "`epsilon` must be 0, or have a square"),
        ({"rho": True}, "`rho` must be a number; got True"),
        ({"rho": []}, "`rho` must hold at least one number"),
        ({"epsilon": 1e300}, "`epsilon` must be at most 1e+30; got 1e+300"),
        (
            {"epsilon": 1e16},
            "square, as rho, between 1e-30 and 1e+30; got 1e+16",
        ),
        ({"rho": 0.1, "clip": 1e308}, "`clip` must be at most 1e+30; got 1e+308"),
        ({"rho": 0.1, "clip": "x"}, "`clip` must be a number; got 'x'"),
        ({"rho": 0.1, "clip": True}, "`clip` must be a number; got True"),
        ({"rho": 0.1, "gammas": [1.0, 1e300]}, "`gammas` must be at most 1e+30; got 1e+300"),
        ({"rho": 0.1, "gammas": [0]}, "`gammas` must be positive and finite; got 0"),
        ({"rho": 0.1, "clip": 0}, "`clip` must be positive and finite; got 0"),
        ({"rho": 0.1, "confidence": 1.0}, "`confidence` must lie in [0.5, 1); got 1.0"),
        ({"rho": 0.1, "confidence": 0.9, "seed": 0.5}, "`seed` must be a whole number"),
        ({"rho": 0.1, "confidence": 0.9, "seed": 2**63}, "`seed` must be a whole number"),
        ({"rho": 0.1, "local_radii": -1}, "`local_radii` must be a whole number"),
        ({"rho": 1e300, **NOISE}, "`rho` must be at most 1e+30; got 1e+300"),
        ({"rho": 0.1, **NOISE, "clip": 1e308}, "`clip` must be at most 1e+30; got 1e+308"),
        ({"rho": 0.1, **NOISE, "sigma": 1e-300}, "`sigma` must be at least 1e-30; got 1e-300"),
        ({"rho": 0.1, **NOISE, "confidence": None}, "`confidence` must lie in [0.5, 1); got None"),
        ({"rho": 0.1, **NOISE, "sigma": 1e300}, "`sigma` must be at most 1e+30; got 1e+300"),
    ],
)
def test_nonsense_is_refused_before_any_work(options: dict[str, Any], message: str) -> None:
    way: Any = certus.certify_smoothed if "sigma" in options else certus.certify
    with pytest.raises(ArgumentError) as refused:
        way(Untouched(), (INPUTS, LABELS), **options)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restarts": -1}, "`restarts` must be a whole number, at least 1; got -1"),
        ({"steps": 0}, "`steps` must be a whole number, at least 1; got 0"),
        ({"norm": 3.0}, "`norm` must be 1, 2 or inf; got 3.0"),
        ({"restarts": 2, "random_start": False}, "`restarts` must be 1 without `random_start`"),
    ],
)
def test_an_attack_that_has_nothing_to_do_is_checked_too(options: dict[str, Any], message: str) -> None:
    """All samples are errors already: no attack is ever made."""
    always_first = nn.Linear(2, 2)
    nn.init.zeros_(always_first.weight)
    always_first.bias.data = torch.tensor([1.0, 0.0])
    loss = ModelLoss(always_first, CrossEntropy())
    assert minimum_norm_attack(loss, INPUTS, torch.ones(4, dtype=torch.long)).distance.tolist() == [0.0] * 4
    with pytest.raises(ArgumentError) as refused:
        minimum_norm_attack(loss, INPUTS, torch.ones(4, dtype=torch.long), **options)
    assert message in str(refused.value)


def test_numbers_of_other_libraries_are_numbers() -> None:
    assert require_number("rho", np.float32(0.5)) == 0.5
    assert require_numbers("rho", np.array([0.5, 2]), zero=True) == (0.5, 2.0)
    assert require_numbers("rho", 0, zero=True) == (0.0,)
    with pytest.raises(ArgumentError, match="must be positive"):
        require_number("rho", 0)
    require_seed(2**63 - 1)
