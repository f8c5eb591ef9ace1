"""Long units, names and layers: nothing is cut, and no words lie on others."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

import certus
from certus import certify
from certus.display.canvas import save_figure
from certus.display.figures import (
    Curve,
    Panel,
    nearest_figure,
    sensitivity_figure,
    smoothness_figure,
    sweep_figure,
)
from certus.losses import SquaredError
from certus.smoothing import certify_smoothed
from tests.certificates.problems import network, samples
from tests.pictures import cut_or_covered, line_of

UNITS = "standard deviations of each feature, in which a category changes for the price of one deviation"
QUICK: dict[str, Any] = {"local_radii": 1, "gamma_rounds": 0, "attack_steps": 2}
NAMES = [f"runs/with/a/rather/long/path/to/the/model-number-{number}" for number in range(5)]


def test_a_bracket_with_long_units(drawn: list[Figure], tmp_path: Path) -> None:
    found = certify(network("tanh", 0), samples(0, 30), rho=(0.01, 0.1), confidence=0.9, **QUICK)
    found.about["units"] = UNITS
    found.plot(tmp_path / "a.png", title=f"{NAMES[0]}, on {NAMES[1]}, {NAMES[2]} and {NAMES[3]}")
    assert cut_or_covered(drawn[0]) == []
    assert "population: of min(loss, " in drawn[0].axes[0].get_ylabel()


def test_units_in_brackets_stay_together(drawn: list[Figure], tmp_path: Path) -> None:
    found = certify(network("tanh", 0), samples(0, 12), rho=0.01, **QUICK)
    found.about["units"] = "pixels in [0, 1]"
    found.plot(tmp_path / "a.png")
    labels = [axes.get_xlabel() for axes in drawn[0].axes]
    assert labels[:2] == ["root mean square distance √ρ\n(pixels in [0, 1])"] * 2


def test_nearest_errors(drawn: list[Figure], tmp_path: Path) -> None:
    """A step for each error that was found, from 0 on."""
    figure = nearest_figure({NAMES[0]: [0.2, math.inf, 0.1], NAMES[1]: [0.3]}, UNITS, "; ".join(NAMES))
    save_figure(figure, tmp_path / "a.png")
    assert cut_or_covered(figure) == []
    (axes,) = figure.axes
    assert line_of(axes, f"{NAMES[0]} (none found for 1 of 3)") == ([0, 0.1, 0.2], [0, 1 / 3, 2 / 3])
    assert line_of(axes, NAMES[1]) == ([0, 0.3], [0, 1])


def test_the_bracket_of_a_regression(drawn: list[Figure], tmp_path: Path) -> None:
    inputs = samples(0, 30)[0]
    model = nn.Sequential(nn.Linear(2, 1)).double()
    found = certify(model, (inputs, inputs[:, :1] * 0.5), rho=0.01, criterion=SquaredError(), **QUICK)
    found.about["units"] = UNITS
    found.plot(tmp_path / "a.png", title=NAMES[0])
    assert cut_or_covered(drawn[0]) == []


def test_a_certificate_by_smoothing(drawn: list[Figure], tmp_path: Path) -> None:
    inputs = samples(0, 40)[0]
    found = certify_smoothed(
        lambda points: (points[:, 0] > 0).astype(int),
        (inputs.numpy(), (inputs[:, 0] > 0).long().numpy()),
        rho=0.01,
        sigma=0.25,
        draws=10,
        votes=9,
        attack_steps=0,
    )
    found.about["units"] = UNITS
    found.plot(tmp_path / "a.png", title="; ".join(NAMES))
    assert cut_or_covered(drawn[0]) == []


def test_long_features(drawn: list[Figure], tmp_path: Path) -> None:
    """Also two whose names begin alike."""
    found = [
        SimpleNamespace(
            feature=SimpleNamespace(name=f"{NAMES[0]}, column {place}"),
            bracket=SimpleNamespace(error_low=0.1, error_high=0.2 + place / 10),
            evidence="proven",
        )
        for place in (2, 1)
    ]
    figure = sensitivity_figure(found, {"loss": 0.5, "accuracy": 0.9}, 0.1)
    (axes,) = figure.axes
    assert cut_or_covered(figure) == []
    assert [float(bar.get_width()) for bar in axes.patches] == pytest.approx([0.2, 0.3])  # type: ignore[attr-defined]
    assert len({label.get_text() for label in axes.get_yticklabels()}) == 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sweeps_of_many_runs(count: int, drawn: list[Figure], tmp_path: Path) -> None:
    curves = {name: Curve([0.0, 1.0], [0.1, 0.5], [0.0, 0.4], [0.2, 0.6]) for name in NAMES}
    panel = Panel("pgd, norm 2", f"inputs move by at most ε ({UNITS})", "error rate", curves, marked=0.4)
    save_figure(sweep_figure([panel] * count, "; ".join(NAMES)), tmp_path / "a.png")
    assert cut_or_covered(drawn[0]) == []
    assert "budget of training" in drawn[0].axes[0].texts[0].get_text()


def test_a_bound_with_long_layers(drawn: list[Figure], tmp_path: Path) -> None:
    """Numbers stand beside their marks, and both axes say what they are."""
    torch.manual_seed(0)
    inner = nn.ModuleDict({f"block_with_a_long_name_{place}": nn.Linear(3, 3) for place in range(3)})
    steps: list[nn.Module] = []
    for layer in inner.values():
        steps += [layer, nn.ELU()]
    found = certus.input_smoothness(nn.Sequential(*steps))
    save_figure(smoothness_figure(found, 0.5 * found.curvature), tmp_path / "a.png")
    left, right = drawn[0].axes
    assert cut_or_covered(drawn[0]) == []
    assert [text.get_text() for text in left.texts] == [
        *(f"{value:.4g}" for value in found.bounds.values()),
        f"{0.5 * found.curvature:.4g}",
    ]
    for axes in (left, right):
        assert axes.get_xlabel()
        assert axes.get_ylabel()
    assert right.get_xlim()[0] == 0
