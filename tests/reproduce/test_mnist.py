"""The MNIST results: budgets, first errors and claims, on networks and curves that are known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from certus.attacks import Margin
from certus.losses import ModelLoss
from certus.reproduce.making import reproduce
from certus.reproduce.mnist_methods import REPRODUCTION
from certus.reproduce.mnist_networks import MEAN_LENGTH, MNIST_METHODS, mnist_network, reach
from certus.reproduce.mnist_surface import first_errors
from certus.reproduce.mnist_sweeps import NORMS_SHOWN, attack_claims, curve_of
from certus.reproduce.reproduction import Extent, Part
from certus.reproduce.workshop import Workshop
from certus.split import Split

WRM = {"method": "wrm", "gamma": 2.0, "epochs": 1, "seed": 0, "images": 100}


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    """With 100 small digits, enlarged to 28 × 28, in place of MNIST."""
    drawn = load_digits()
    images = np.pad(
        (drawn.images * 255 / 16).astype(np.uint8).repeat(3, 1).repeat(3, 2), ((0, 0), (2, 2), (2, 2))
    )
    arrays = {"inputs": images[:100], "targets": drawn.target[:100]}
    arrays |= {"test_inputs": images[100:120], "test_targets": drawn.target[100:120]}
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data/mnist-100.npz", **arrays)
    return Workshop(tmp_path)


def test_budgets_follow_from_how_far_wrm_moves_its_training_data(workshop: Workshop) -> None:
    trained = mnist_network(workshop, WRM)
    train = trained.data.train
    move = (
        (trained.wrm.solve(trained.loss, train.inputs, train.targets).inputs - train.inputs)
        .flatten(1)
        .double()
    )
    squares, largest = (move**2).sum(1), move.abs().amax(1)
    assert reach(workshop, WRM, "2") == pytest.approx(math.sqrt(squares.mean()), rel=1e-2)
    assert reach(workshop, WRM, "inf") == pytest.approx(float(largest.mean()), rel=1e-4)
    fgm = {"method": "fgm", "norm": "2", "as_far_as": WRM, "epochs": 1, "seed": 0, "images": 100}
    assert mnist_network(workshop, fgm).settings.epsilon == reach(workshop, WRM, "2")
    sup = {
        "method": "wrm",
        "cost": "linf",
        "norm": "inf",
        "as_far_as": WRM,
        "epochs": 1,
        "seed": 0,
        "images": 100,
    }
    assert mnist_network(workshop, sup).settings.rho == reach(workshop, WRM, "inf") ** 2
    assert reach(workshop, sup, "inf") == math.sqrt(mnist_network(workshop, sup).rho_hat or 0.0)


def test_a_number_is_computed_once(tmp_path: Path) -> None:
    calls: list[int] = []

    def compute() -> float:
        calls.append(1)
        return 1.5

    assert [Workshop(tmp_path).number({"of": what}, compute) for what in ("a", "a", "b")] == [1.5] * 3
    assert len(calls) == 2


def test_the_first_error_of_a_linear_margin() -> None:
    """ℓ = ⟨w, x⟩ + b moves by w/2γ: an error for γ < ‖w‖²/(2·margin), at the boundary's distance."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    inputs = torch.randn(12, 1, 4, 4)
    outputs = model(inputs).detach()
    targets = outputs.argmax(1)
    moved, gamma = first_errors(ModelLoss(model, Margin()), Split(inputs, targets))
    weight = model.get_parameter("1.weight").detach()
    square = float(((weight[1] - weight[0]) ** 2).sum())
    margin = (outputs[:, 0] - outputs[:, 1]).abs()
    torch.testing.assert_close(gamma, square / (2 * margin), rtol=2e-2, atol=0)
    length = (moved - inputs).flatten(1).norm(dim=1)
    torch.testing.assert_close(length, margin / math.sqrt(square), rtol=2e-2, atol=0)
    assert (model(moved).argmax(1) != targets).all()


def sweep_of(method: str, seed: int, *errors: float) -> dict[str, Any]:
    """Made up: the same errors in both norms, clipped and not, at 0, 0.1 and 0.2 of C."""
    rows = [
        {
            "norm": norm,
            "clipped": side,
            "share": share,
            "epsilon": share,
            "error": error,
            "low": error,
            "high": error,
        }
        for norm in NORMS_SHOWN
        for side in (False, True)
        for share, error in zip((0.0, 0.1, 0.2), errors, strict=True)
    ]
    return {"method": method, "seed": seed, "attack": "pgm", "samples": 100, "rows": rows}


def test_seeds_become_their_mean_and_range() -> None:
    curve = curve_of([sweep_of("erm", 0, 0.0, 0.2, 0.4), sweep_of("erm", 1, 0.1, 0.4, 0.5)], "2", False)
    assert curve is not None
    assert curve.values == pytest.approx([0.05, 0.3, 0.45])
    assert (curve.low, curve.high) == ([0.0, 0.2, 0.4], [0.1, 0.4, 0.5])


@pytest.mark.parametrize(
    ("changed", "agrees"),
    [
        ({}, True),
        ({"fgm": (0.0, 0.1, 0.1)}, False),
        ({"pgm": (0.0, 0.6, 0.4)}, False),
        ({"erm": (0.0, 0.1, 0.1)}, False),
    ],
)
def test_claims_about_attacks(changed: dict[str, tuple[float, ...]], agrees: bool) -> None:
    errors = dict.fromkeys(MNIST_METHODS, (0.0, 0.3, 0.4)) | {"erm": (0.0, 0.5, 0.9), "wrm": (0.5, 0.2, 0.3)}
    measured = {f"pgm-{name}-0": sweep_of(name, 0, *values) for name, values in (errors | changed).items()}
    claims = attack_claims(measured, {"pgm": "fig:mnist"}, "so.", above=0.05)
    assert [one.agrees for one in claims] == [agrees] * 2


def test_the_page_of_what_was_measured(tmp_path: Path) -> None:
    """All figures and statements from made-up measurements of every part."""
    tiny = replace(
        REPRODUCTION, needs=(), parts=lambda extent: [made_up(part) for part in REPRODUCTION.parts(extent)]
    )
    written = reproduce(
        tiny, Extent.QUICK, Workshop(tmp_path / "work"), tmp_path / "results", lambda *_: None
    )
    assert {path.name for path in written} >= {
        "pgm.png",
        "fgm.svg",
        "clipped.png",
        "stability.png",
        "digits.png",
    }
    page = (tmp_path / "results/mnist/README.md").read_text()
    assert "At 97.0% of 100 random training images (one seed). (*estimated*) | yes" in page
    assert "ERM's is up to 20 times WRM's. WRM's is the smallest at every γ_adv. (*attained*)" in page
    assert "ERM 98.00%, FGM 98.00%, IFGM 98.00%, PGM 98.00%, WRM 98.00%. (*estimated*) | no" in page
    assert "above what WRM attains on test data at 1 of 2 levels ρ" in page


def made_up(part: Part) -> Part:
    """The same part, that measures nothing."""
    kind, _, rest = part.name.partition("-")
    method = rest.partition("-")[0]
    found: dict[str, Any] = {"concave": 97, "unresolved": 0, "count": 100}
    if kind in ("pgm", "fgm", "ifgm"):
        found = sweep_of(method, 0, 0.1, 0.2, 0.3)
    elif kind == "network":
        known = (
            {"gamma": 0.5, "rho_hat": 0.25, "epsilon": None}
            if method == "wrm"
            else {"gamma": None, "rho_hat": None, "epsilon": 0.5}
        )
        found = {"method": method, "seed": 0, "epochs": 1, "test_error": 0.02, "test_images": 20, **known}
    elif kind == "surface":
        level = 1.0 if method == "wrm" else 20.0
        rows = [
            {
                "gamma": share * MEAN_LENGTH,
                "rho_test": level * place,
                "loss": loss,
                "error": 0.1,
                "low": 0.0,
                "high": 1.0,
            }
            for place, (share, loss) in enumerate(((0.1, 0.5), (0.04, 2.0)), start=1)
        ]
        found = {"method": method, "gamma": 0.5, "rho_hat": 0.25, "phi": 0.1, "samples": 10, "rows": rows}
    elif kind == "digits":
        blank = "QEBA" * 261 + "QA=="
        image = {"gamma": [1.0] * 10, "distance": [1.0] * 10, "read_as": [3] * 10, "pixels": [blank] * 10}
        found = {
            "digits": list(range(10)),
            "original": [blank] * 10,
            "methods": dict.fromkeys(MNIST_METHODS, image),
        }
    return replace(part, measure=lambda workshop, settings: found)
