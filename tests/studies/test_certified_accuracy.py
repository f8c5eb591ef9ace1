"""Certified accuracies are counts of images, and are told and drawn as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from certus.certificates.problem import Problem
from studies.certified_accuracy import STUDY, _distances, accuracies
from studies.study import Outcome, Scale
from studies.workspace import Workspace
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, network, samples
from tests.pictures import line_of


def counted(share: int) -> tuple[list[float], list[float]]:
    """Some of 10,000 certified to 1.58 exactly: not beyond it. The last 100 are misclassified."""
    radius = [1.58] * share + [0.4] * (9900 - share) + [0.0] * 100
    found = [1.59] * share + [0.6] * (9900 - share) + [0.0] * 100
    return radius, found


def test_certified_accuracies_are_counts() -> None:
    measured: dict[str, Any] = {}
    about = {"gamma": 1.5, "temperature": 0.3, "epsilon": 0.4, "margin": 0.0, "epochs": 12}
    for name, share in (("near", 2500), ("far", 5000)):
        pair = counted(share)
        curve = accuracies(*pair, [0.02 * step for step in range(126)])["within"]
        measured[name] = {**about, **accuracies(*pair, [0.3, 0.5, 1.0, 1.58]), "curve": curve}
    measured["choice-near"] = {**about, **accuracies(*counted(0), [0.3, 0.5, 1.0, 1.58])}
    assert measured["near"]["clean"] == 0.99
    assert measured["near"]["close"] == pytest.approx(2500 / 9900)
    assert STUDY.text is not None
    text = STUDY.text(measured)
    assert "(γ = 1.5) | 99.00 | 99.00 – 99.00 | 25.00 – 99.00 | 25.00 – 25.00 | 0.00 – 25.00 |" in text
    assert "(γ = 1.5) | 99.00 | 99.00 – 99.00 | 50.00 – 99.00 | 50.00 – 50.00 | 0.00 – 50.00 |" in text
    assert "| 1.5 | 0.3 | 0.4 | 0 | 99.0 | 99.0 | 0.0 | 0.0 | 0.0 |" in text
    assert "0.252" in text
    near, far = STUDY.verdicts(measured)
    assert (near.outcome, far.outcome) == (Outcome.YES, Outcome.NO)
    assert near.paper == {"GloRo, %": 95.7}
    assert [one.value for one in near.ours.values()] == [0.99, 0.99]
    assert [one.value for one in far.ours.values()] == [0.0, 0.25]
    axes = STUDY.pictures[0].draw(measured).axes[0]
    for label, part in (("certus, for small distances", 0.25), ("certus, for large distances", 0.5)):
        distances, values = line_of(axes, label)
        assert {0.0, 1.58} <= set(distances)
        wanted = [0.99 if one < 0.4 else part if one < 1.58 else 0.0 for one in distances]
        assert values == pytest.approx(wanted)


def test_radii_and_distances_enclose_the_nearest_error() -> None:
    """Of a portion, against a fine grid of the plane; 0 for samples that are misclassified."""
    model, (inputs, targets) = network("logcosh", 0), samples(0, 9)
    problem = Problem.of(model, (inputs, targets), CROSS_ENTROPY, L2, EVERYWHERE)
    radii, distances = _distances(problem, slice(2, 9))
    axis = torch.linspace(-4, 4, 801, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        labels, own = model(grid).argmax(1), model(inputs).argmax(1)
    assert len(radii) == len(distances) == 7
    for at, (radius, distance) in enumerate(zip(radii, distances, strict=True), 2):
        if own[at] != targets[at]:
            assert radius == distance == 0
            continue
        nearest = float((grid - inputs[at]).norm(dim=1)[labels != targets[at]].min())
        assert 0 < radius <= nearest
        assert radius <= distance
        assert distance == pytest.approx(nearest, rel=0.05, abs=0.015)  # the grid is that coarse
    assert min(distances) == 0 < max(radii)


def test_portions_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an interrupted part the portions that are done are kept."""
    workspace, asked = Workspace(tmp_path), []

    def compute() -> list[float]:
        asked.append(1)
        return [1.0, 2.0]

    assert workspace.cached({"first": 0}, compute) == workspace.cached({"first": 0}, compute) == [1.0, 2.0]
    workspace.cached({"first": 500}, compute)
    assert len(asked) == 2


def test_networks_are_chosen_on_other_images_and_another_seed() -> None:
    for part in STUDY.parts(Scale.FULL):
        choosing = part.name.startswith("choice-")
        assert (part.settings["split"] == "calibration") == choosing
        assert (part.settings["seed"] == 0) == choosing
