"""Losses that count by class: against brute force, against the plain certificate at γ/w, and as files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from certus import Certificate, certify
from certus.certificates import batching as portions
from certus.certificates import engine
from certus.certificates.cache import ProposalCache
from certus.certificates.files import as_json
from certus.certificates.lower_bounds import round_down
from certus.costs import LabelCost
from certus.data import Samples
from certus.errors import ArgumentError
from certus.losses import CrossEntropy, SquaredError
from certus.storage.write import write_json
from tests.certificates.problems import network, numpy_loss, samples

WEIGHTS = (0.5, 3.0, 1.0)
DATA = samples(2, 9)
GAMMAS = (6.0, 1.5)
ASK: dict[str, Any] = {"rho": 0.1, "gammas": GAMMAS, "local_radii": 1, "attack_steps": 1}


@pytest.fixture(scope="module")
def weighted() -> Certificate:
    return certify(network("tanh", 1), DATA, class_weights=WEIGHTS, **ASK)


def test_no_point_of_a_grid_exceeds_the_bounds(weighted: Certificate) -> None:
    """sup w_y ℓ − γc over a fine grid lies between what is attained and what is proven."""
    model, criterion = network("tanh", 1), CrossEntropy()
    axis = np.linspace(-3, 3, 241)
    moves = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    for index, (point, label) in enumerate(zip(*DATA, strict=True)):
        losses = WEIGHTS[int(label)] * numpy_loss(model, criterion, label)(point.numpy() + moves)
        costs = (moves**2).sum(1)
        for level in weighted.dual_values:
            best = float((losses - level.gamma * costs).max())
            attained = float(level.loss[index] - level.gamma * level.transport_cost[index])
            assert attained - 1e-12 <= max(best + 2e-3, attained) <= float(level.bound[index]) + 2e-3
            assert best <= float(level.bound[index])


def test_each_class_is_the_plain_certificate_at_its_own_gamma(weighted: Certificate) -> None:
    """w·φ̄ at γ/w, from certificates of the samples of one class alone."""
    inputs, labels = DATA
    for label, weight in enumerate(WEIGHTS):
        mine = labels == label
        alone = certify(
            network("tanh", 1),
            (inputs[mine], labels[mine]),
            **ASK | {"gammas": [gamma / weight for gamma in GAMMAS], "gamma_rounds": 0},
        )
        for level, plain in zip(_of(weighted, GAMMAS), alone.dual_values, strict=True):
            assert level.gamma == pytest.approx(weight * plain.gamma)
            for name, scale in (("bound", weight), ("loss", weight), ("transport_cost", 1.0)):
                mine_now, theirs = getattr(level, name)[mine], getattr(plain, name)
                torch.testing.assert_close(mine_now, scale * theirs, rtol=2e-2, atol=1e-4)
        assert weighted.proven_error_cost is not None
        assert alone.proven_error_cost is not None
        torch.testing.assert_close(
            weighted.proven_error_cost[mine], alone.proven_error_cost, rtol=2e-2, atol=1e-4
        )


def _of(certificate: Certificate, gammas: tuple[float, ...]) -> list[Any]:
    return [level for level in certificate.dual_values if level.gamma in gammas]


def test_one_weight_for_all_scales_the_loss() -> None:
    """2ℓ at 2γ is twice ℓ at γ, to the last digits; errors stay."""
    model = network("tanh", 1)
    plain = certify(model, DATA, **ASK)
    double = certify(model, DATA, class_weights=(2, 2, 2), **ASK | {"gammas": [2 * one for one in GAMMAS]})
    one, two = plain.bracket(0.1), double.bracket(0.1)
    assert two.loss_high == pytest.approx(2 * one.loss_high, rel=1e-9)
    assert two.loss_low == pytest.approx(2 * one.loss_low, rel=1e-9)
    assert (two.error_low, two.error_high) == (one.error_low, one.error_high)


def test_at_no_distance_it_is_the_loss_of_repeated_samples() -> None:
    """Whole weights repeat samples; only near them the two differ, in what a move costs."""
    inputs, labels = DATA
    counts = torch.tensor([1, 3, 2])
    model, times = network("tanh", 1), counts[labels]
    repeated = (inputs.repeat_interleave(times, 0), labels.repeat_interleave(times))
    ask = ASK | {"rho": 0.0, "gamma_rounds": 0, "attack_steps": 0}
    found = certify(model, DATA, class_weights=(1, 3, 2), **ask).bracket(0.0)
    other = certify(model, repeated, **ask).bracket(0.0)
    mean = float(times.double().mean())
    assert found.loss_high == pytest.approx(mean * other.loss_high, rel=1e-9)
    assert found.loss_low == pytest.approx(mean * other.loss_low, rel=1e-9)


def test_labels_that_move_take_the_weight_of_their_new_class() -> None:
    """A linear network with no slope: φ = max over labels of w ℓ less its price."""
    layer = nn.Linear(2, 3).double()
    model = nn.Sequential(layer)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, 1.0, -0.5]))
    labels = DATA[1]
    losses = torch.tensor(WEIGHTS, dtype=torch.float64) * -torch.log_softmax(layer.bias.detach(), 0)
    found = certify(
        *(model, DATA),
        rho=0.1,
        gammas=(2.0, 0.5),
        class_weights=WEIGHTS,
        label_cost=LabelCost(0.4, 3),
        local_radii=0,
        gamma_rounds=0,
        attack_steps=0,
    )
    for level in found.dual_values:
        best = torch.maximum(losses[labels], losses.max() - level.gamma * 0.4)
        torch.testing.assert_close(level.bound, best, rtol=1e-6, atol=1e-6)
        attained = level.loss - level.gamma * level.transport_cost
        torch.testing.assert_close(attained, best, rtol=1e-6, atol=1e-6)


def test_clip_and_confidence() -> None:
    """The mean of min(wℓ, B), and a population with a clip of its own: 2 ln K times the largest w."""
    model = network("tanh", 1)
    found = certify(model, DATA, class_weights=WEIGHTS, clip=0.8, confidence=0.9, **ASK)
    with torch.no_grad():
        plain = torch.nn.functional.cross_entropy(model(DATA[0]), DATA[1], reduction="none")
    mean = float((torch.tensor(WEIGHTS)[DATA[1]].double() * plain).clamp_max(0.8).mean())
    assert found.clean_loss[0] <= mean <= found.clean_loss[1]
    assert found.clean_loss[1] == pytest.approx(mean, rel=1e-9)
    assert found.population is not None
    assert found.population.loss_low(0.1) <= found.population.loss(0.1) <= 0.8
    free = certify(model, DATA, class_weights=WEIGHTS, confidence=0.9, **ASK).population
    assert free is not None
    assert free.clip == pytest.approx(2 * np.log(3) * 3)


def test_its_points_attain_what_it_says(weighted: Certificate) -> None:
    points, shares = weighted.worst_case_data(0.1)
    with torch.no_grad():
        outputs = network("tanh", 1)(points.inputs)
    losses = torch.nn.functional.cross_entropy(outputs, points.targets, reduction="none")
    mean = float((shares * torch.tensor(WEIGHTS)[points.targets] * losses).sum())
    assert mean == pytest.approx(weighted.lower(0.1), rel=1e-6)
    assert weighted.source is not None
    assert weighted.source.evaluate(Samples(*DATA))[0] == pytest.approx(weighted.clean_loss[0], rel=1e-6)


def test_weights_are_shown_stored_and_streamed(
    weighted: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "certificate.json"
    write_json(path, as_json(weighted))
    read = Certificate.load(path)
    assert read.class_weights == WEIGHTS
    assert read.vacuous_loss == weighted.vacuous_loss is not None
    assert read.bracket(0.1) == weighted.bracket(0.1)
    monkeypatch.setattr(portions, "BATCH", 4)
    monkeypatch.setattr(engine, "HELD", 1)
    ask: dict[str, Any] = ASK | {"class_weights": WEIGHTS}
    said: list[str] = []
    memory = ProposalCache(tmp_path / "kept", "question", said.append)
    first, second = (certify(network("tanh", 1), DATA, cache=memory, **ask) for _ in range(2))
    assert as_json(first) == as_json(second)  # the second time from kept levels
    assert said == []
    # Alone in its portion, a sample has a bound on balls that differs by some 10⁻⁸.
    assert first.bound(0.1) == pytest.approx(weighted.bound(0.1), rel=1e-6)
    assert first.lower(0.1) == pytest.approx(weighted.lower(0.1), rel=1e-9)


def test_attained_products_are_rounded_down() -> None:
    """Of any size and sign, and 0 stays 0: beside exact fractions."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 400, generator=generator, dtype=torch.float64)
    first = first * 10 ** torch.linspace(-9, 9, 400, dtype=torch.float64)
    found = round_down(first * second)
    for value, one, other in zip(found.tolist(), first.tolist(), second.tolist(), strict=True):
        truth = Fraction(one) * Fraction(other)
        assert truth - abs(truth) / 10**14 <= Fraction(value) <= truth
    assert float(round_down(torch.zeros(1))) == 0


@pytest.mark.parametrize(
    ("weights", "message"),
    [((1.0, 2.0), "be 3 numbers, one for each class"), ((1.0, 0.0, 1.0), "positive"), (2.0, "be 3 numbers")],
)
def test_weights_that_are_none(weights: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        certify(network("tanh", 1), DATA, class_weights=weights, rho=0.1)


def test_a_regression_has_no_classes() -> None:
    model, data = network("tanh", 1, classes=1), (DATA[0], DATA[0][:, 0])
    with pytest.raises(ArgumentError, match=r"`class_weights` must be left out for regression"):
        certify(model, data, class_weights=(1.0,), criterion=SquaredError(), rho=0.1)
