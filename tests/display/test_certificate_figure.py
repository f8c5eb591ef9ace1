"""The picture of a certificate shows its numbers, and says what each line is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from certus import certify
from certus.display.canvas import COLOURS
from certus.losses import SquaredError
from tests.certificates.problems import network, samples
from tests.pictures import line_of, pixels_of, words_of

QUICK: dict[str, Any] = {"local_radii": 1, "gamma_rounds": 0, "attack_steps": 2}
SAMPLE = ("at least (attained)", "at most (proven)")
PEOPLE = ("population at least (confidence 0.9)", "population at most (confidence 0.9)")


def test_every_line_is_what_the_certificate_says(drawn: list[Figure], tmp_path: Path) -> None:
    found = certify(network("tanh", 0), samples(0, 30), rho=(0.01, 0.1), confidence=0.9, **QUICK)
    found.about["units"] = "metres"
    found.plot(tmp_path / "deep" / "a.png", title="Two brackets")
    (figure,) = drawn
    losses, errors, shares = figure.axes
    clipped = tuple(f"{name.removesuffix(')')}, loss clipped at 2.2)" for name in PEOPLE)
    lines = {losses: [*SAMPLE, *clipped, "the paper's recipe (an estimate)"], errors: [*SAMPLE, *PEOPLE]}
    of_losses = ("loss_low", "loss_high", "population_loss_low", "population_loss", "loss_estimate")
    of_errors = ("error_low", "error_high", "population_error_low", "population_error")
    for axes, names in ((losses, of_losses), (errors, of_errors)):
        for name, label in zip(names, lines[axes], strict=True):
            distances, values = line_of(axes, label)
            assert distances[0] == 0
            assert distances[-1] == pytest.approx(math.sqrt(1.1 * 0.1))
            for distance, value in list(zip(distances, values, strict=True))[::10]:
                expected = getattr(found.bracket(distance**2), name)
                assert value == pytest.approx(expected, rel=1e-6), (name, distance)
        assert axes.get_xlabel() == "root mean square distance √ρ (metres)"
    sides = {"at least (proven)": "certified", "at most (attained)": "attacked"}
    sides |= {"population at least": "population_certified"}
    sides |= {"population at most": "population_attacked"}
    for label, name in sides.items():
        distances, values = line_of(shares, label)
        assert distances[0] == 0
        assert distances[-1] == pytest.approx(1.1 * math.sqrt(0.1))
        for distance, value in list(zip(distances, values, strict=True))[::10]:
            assert value == getattr(found.accuracy_bracket(distance), name), (name, distance)
    for line in shares.lines:  # between two points nothing is drawn that was not shown
        below = "at least" in str(line.get_label())
        assert line.get_drawstyle() == ("steps-pre" if below else "steps-post")
    assert (shares.get_xlabel(), shares.get_ylim()) == ("distance ε of each sample (metres)", (-0.02, 1.02))
    assert found.population is not None
    name = f"mean loss\n(population: of min(loss, {found.population.clip:.3g}))"
    assert (losses.get_ylabel(), errors.get_ylabel()) == (name, "error rate")
    assert {*lines[losses], "Two brackets"} <= set(words_of(figure))
    assert errors.get_ylim() == (-0.02, 1.02)  # a line at 0 is not hidden by the axis
    assert losses.get_ylim()[0] < 0
    pixels = pixels_of(tmp_path / "deep" / "a.png")
    assert all(pixels[colour] > 100 for colour in COLOURS[:3])


def test_a_vacuous_bound_is_marked(drawn: list[Figure], tmp_path: Path) -> None:
    model, inputs = network("tanh", 3), samples(0, 10)[0]
    data = inputs, model(inputs).argmax(1)
    for rho, vacuous in ((5.0, True),):
        certify(model, data, rho=rho, **QUICK).plot(tmp_path / "a.png")
        words, level = words_of(drawn[-1]), drawn[-1].axes[0]
        heights = [line.get_ydata()[0] for line in level.lines if len(line.get_xdata()) == 2]  # type: ignore[arg-type,index]
        assert ("a constant answer: bounds above it say nothing" in words) == vacuous
        shares = data[1].bincount().double() / len(data[1])
        entropy = -float((shares * shares.clamp_min(1e-9).log()).sum())
        assert heights == ([pytest.approx(entropy)] if vacuous else [])


def test_a_regression_has_losses_only_and_says_where_they_are_clipped(
    drawn: list[Figure], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, data = nn.Sequential(nn.Linear(2, 1)).double(), (samples(0, 10)[0], torch.zeros(10).double())
    certify(model, data, rho=0.1, criterion=SquaredError(), clip=2.0, **QUICK).plot(tmp_path / "a.svg")
    (axes,) = drawn[0].axes
    assert axes.get_ylabel() == "mean of min(loss, 2)"
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
