"""Distances between samples against POT and closed forms, and the paper's statistical terms against their
formulas."""

from __future__ import annotations

import math
from typing import Any

import ot
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor, nn

from certus import SquaredL2
from certus.certificates.covering_number_bounds import (
    attained_budget_error,
    lipschitz_cover,
    lipschitz_error,
    softmax_uniform_error,
    uniform_error,
)
from certus.certificates.transport import estimated_distance, transport_distance
from certus.costs import Masked, WeightedL2
from certus.data import Samples
from certus.errors import ArgumentError, CertusError, UnsupportedError


def sample(count: int, seed: int, move: float = 0.0) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 3, generator=generator).double() + move
    return Samples(points, torch.arange(count) % 2)


def test_exact_against_pot() -> None:
    first, second = sample(40, 0), sample(60, 1, 0.5)
    costs = ot.dist(first.inputs.numpy(), second.inputs.numpy())
    priced = costs + 0.7 * (first.targets[:, None] != second.targets[None]).numpy()
    found = transport_distance(first, second, SquaredL2(), label_cost=0.7)
    assert found.exact
    assert found.low <= ot.emd2([], [], priced) <= found.high
    parts = [
        ot.emd2([], [], costs[first.targets == label][:, (second.targets == label).numpy()])
        for label in (0, 1)
    ]
    stays = transport_distance(first, second, SquaredL2())
    assert stays.low <= sum(parts) / 2 <= stays.high


def test_a_translation_is_known_and_blocks_bound_it() -> None:
    """W_c(A, A + v) = ‖v‖²: Jensen's bound is met, and every coupling of blocks costs more."""
    first = sample(300, 2)
    second = Samples(first.inputs + torch.tensor([0.3, 0.0, -0.4]).double(), first.targets)
    weights = torch.tensor([1.0, 2.0, 4.0]).double()
    for cost, exact in ((SquaredL2(), 0.25), (WeightedL2(weights), 0.09 + 4 * 0.16)):
        found = transport_distance(first, second, cost, label_cost=1.0, exact_up_to=100, block=60)
        assert not found.exact
        assert found.blocks == 5
        assert found.low == pytest.approx(exact)
        whole = transport_distance(first, second, cost, label_cost=1.0)
        assert whole.high == pytest.approx(exact, rel=1e-6)
        assert found.low <= whole.high <= found.high
        assert found.spread > 0


def weighted(data: Samples, seed: int) -> Samples:
    """With whole weights from 0 to 3, which stand for as many rows of the same kind."""
    source = torch.Generator().manual_seed(seed)
    return Samples(data.inputs, data.targets, torch.randint(0, 4, (len(data),), generator=source))


def test_all_weight_on_one_row_is_that_row() -> None:
    points = torch.tensor([[0.0], [7.0]]).double()
    first, second = (
        Samples(points, torch.zeros(2), torch.tensor(weights)) for weights in ([1.0, 0.0], [0.0, 5.0])
    )
    found = transport_distance(first, second, SquaredL2())
    assert found.exact
    assert found.low <= 49 <= found.high
    assert found.high == pytest.approx(49)


@pytest.mark.parametrize("labels", ["priced", "none"])
def test_weights_against_pot_and_against_repeated_rows(labels: str) -> None:
    first, second = weighted(sample(40, 0), 5), weighted(sample(50, 1, 0.5), 6)
    price = 0.7 if labels == "priced" else None
    if labels == "none":
        first, second = (
            Samples(part.inputs, torch.zeros(len(part)), part.weights) for part in (first, second)
        )
    costs = ot.dist(first.inputs.numpy(), second.inputs.numpy())
    costs = costs + (price or 0) * (first.targets[:, None] != second.targets[None]).numpy()
    assert first.weights is not None
    assert second.weights is not None
    masses = [(part / part.sum()).double().numpy() for part in (first.weights, second.weights)]
    found = transport_distance(first, second, SquaredL2(), label_cost=price)
    exact = ot.emd2(*masses, costs)
    assert found.exact
    assert found.low <= exact <= found.high
    repeated = [
        Samples(part.inputs.repeat_interleave(weights, 0), part.targets.repeat_interleave(weights, 0))
        for part, weights in ((first, first.weights), (second, second.weights))
    ]
    plain = transport_distance(repeated[0], repeated[1], SquaredL2(), label_cost=price)
    assert found.high == pytest.approx(plain.high, rel=1e-6)
    assert found.labels == (None if labels == "none" else pytest.approx(plain.labels))
    blocks = transport_distance(first, second, SquaredL2(), label_cost=price, exact_up_to=20, block=15)
    assert not blocks.exact
    assert 0 < blocks.low <= exact <= blocks.high


def test_weights_decide_on_the_shares_of_labels() -> None:
    """Three quarters of label 0 in each, though the rows of both are halves; each class moves to itself."""
    first, second = sample(40, 0), sample(60, 1, 0.5)
    heavy = [torch.where(part.targets == 0, 3.0, 1.0) for part in (first, second)]
    found = transport_distance(
        Samples(first.inputs, first.targets, heavy[0]),
        Samples(second.inputs, second.targets, heavy[1]),
        SquaredL2(),
    )
    costs = ot.dist(first.inputs.numpy(), second.inputs.numpy())
    parts = [
        ot.emd2([], [], costs[first.targets == label][:, (second.targets == label).numpy()])
        for label in (0, 1)
    ]
    assert found.low <= 0.75 * parts[0] + 0.25 * parts[1] <= found.high
    plain = transport_distance(Samples(first.inputs, first.targets, heavy[0]), second, SquaredL2())
    assert plain.high == math.inf
    assert plain.labels == pytest.approx(0.25)


def test_weights_that_cannot_be_used_are_refused() -> None:
    first = sample(4, 0)
    for weights in ([1.0, 1.0, 1.0, -1.0], [0.0] * 4, [1.0, 1.0, 1.0, 1e-12], [1.0] * 3):
        odd = Samples(first.inputs, first.targets, torch.tensor(weights))
        with pytest.raises(ArgumentError, match="weights"):
            transport_distance(first, odd, SquaredL2(), label_cost=1.0)
    with pytest.raises(ArgumentError, match="`second` must hold at least one row"):
        transport_distance(first, first[:0], SquaredL2(), label_cost=1.0)
    with pytest.raises(ArgumentError, match="`second` must have no weights"):
        estimated_distance(first, Samples(first.inputs, first.targets, torch.ones(4)), SquaredL2())


@pytest.mark.parametrize(("count", "block"), [(150, 500), (150, 151), (150, 150), (150, 149), (101, 50)])
def test_blocks_that_do_not_divide_a_sample(count: int, block: int) -> None:
    """Larger than ``exact_up_to`` and smaller than a block: one coupling. Else as many as are needed."""
    first, second = sample(count, 2), sample(count // 2, 3, 0.2)
    points = [Samples(part.inputs, torch.zeros(len(part))) for part in (first, second)]
    exact = ot.emd2([], [], ot.dist(*(part.inputs.numpy() for part in points)))
    found = transport_distance(points[0], points[1], SquaredL2(), exact_up_to=100, block=block)
    assert found.blocks == math.ceil(count / block)
    assert found.exact == (found.blocks == 1)
    assert found.low <= exact <= found.high
    assert math.isfinite(found.spread)


@pytest.mark.parametrize("price", [None, 1.0])
def test_labels_below_0_are_refused(price: float | None) -> None:
    data = sample(10, 0)
    below = Samples(data.inputs, data.targets - 1)
    for first, second, name in ((below, data, "first"), (data, below, "second")):
        with pytest.raises(ArgumentError, match=f"`{name}`.*labels"):
            transport_distance(first, second, SquaredL2(), label_cost=price)
    numbers = Samples(data.inputs, data.targets.double() - 1)  # of a regression
    assert transport_distance(numbers, numbers, SquaredL2()).high == pytest.approx(0, abs=1e-9)


def test_labels_that_cannot_move() -> None:
    first, second = sample(20, 3), sample(21, 4)
    found = transport_distance(first, second, SquaredL2())
    assert found.high == math.inf
    assert "label shares differ by 0.0238" in str(found.reason)
    with pytest.raises(UnsupportedError, match="infinite between most samples"):
        transport_distance(first, second, Masked(SquaredL2(), torch.tensor([True, False, True])))
    with pytest.raises(ArgumentError, match="`label_cost` must be left out for regression; got 1"):
        transport_distance(
            Samples(first.inputs, first.inputs[:, 0]),
            Samples(second.inputs, second.inputs[:, 0]),
            SquaredL2(),
            label_cost=1,
        )


def test_the_papers_terms() -> None:
    cover = lipschitz_cover(5, 2.0, 3.0)
    integral, _ = quad(lambda e: math.sqrt(5 * math.log1p(6.0 / (4.0 * e))), 0, 1)
    exact = 1.5 * 4.0 * integral / math.sqrt(900) + 2.5 * 4.0 * math.sqrt(3.0 / 900)
    found = uniform_error(900, 4.0, 3.0, cover, b1=1.5, b2=2.5)
    assert exact <= found <= exact * 1.01
    size = 2.0 * 3.0 + 1.0
    assert lipschitz_error(
        900, 5, 3.0, lipschitz=2.0, diameter=3.0, start_bound=1.0, b1=1.5, b2=2.5
    ) == pytest.approx(1.5 * size * math.sqrt(5 / 900) + 2.5 * size * math.sqrt(3 / 900))
    constants = {"ceiling": 2.0, "slope": 1.5, "cross_smoothness": 0.5, "modulus": 0.8}
    t = attained_budget_error(10_000, 0.05, cover, **constants)
    right = 2.0 * math.sqrt(2 * (math.log(40) + cover(0.8 * t / 3.0)) / 10_000)
    assert t == pytest.approx(right)
    with pytest.raises(CertusError, match="grow too fast"):
        attained_budget_error(10, 0.05, lambda width: 1e30, **constants)
    with pytest.raises(ArgumentError, match="`b1` must be positive and finite; got 0"):
        uniform_error(900, 4.0, 3.0, cover, b1=0, b2=2.5)


RINGS: dict[str, Any] = {"classes": 3, "inputs": 2, "norm": 1.5, "radius": 2.0, "gamma": 1.5}


def test_the_constants_of_the_uniform_bound_hold_at_random_weights() -> None:
    """φ_γ by brute force over a grid: within [0, M], and √2·R-Lipschitz in W."""
    norm, radius, gamma = 1.5, 2.0, 1.5
    ceiling = math.log(3) + math.sqrt(2) * norm * radius + norm**2 / (2 * gamma)
    slope = math.sqrt(2) * (radius + math.sqrt(2) * norm / (2 * gamma))
    axis = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)
    moves = torch.cartesian_prod(axis, axis)
    generator = torch.Generator().manual_seed(0)

    def surrogate(weights: Tensor, point: Tensor) -> float:
        losses = nn.functional.cross_entropy(
            (point + moves) @ weights.T, torch.zeros(len(moves), dtype=torch.long), reduction="none"
        )
        return float((losses - gamma * moves.square().sum(1)).max())

    for _ in range(200):
        pair = torch.randn(2, 3, 2, generator=generator, dtype=torch.float64)
        pair *= norm / torch.linalg.matrix_norm(pair).clamp_min(norm)[:, None, None]
        point = torch.randn(2, generator=generator, dtype=torch.float64)
        point *= radius / point.norm().clamp_min(radius)
        first, second = (surrogate(weights, point) for weights in pair)
        assert 0 <= first <= ceiling
        assert abs(first - second) <= slope * float(torch.linalg.matrix_norm(pair[0] - pair[1])) + 1e-9


def test_the_uniform_bound_is_hoeffdings_over_a_net() -> None:
    """No width gives less than the best of its grid, up to the grid's factor of 2."""
    ceiling = math.log(3) + math.sqrt(2) * 3.0 + 0.75
    slope = math.sqrt(2) * (2.0 + math.sqrt(2) / 2)
    found = softmax_uniform_error(1000, 0.1, **RINGS)
    widths = [10 ** (-power / 20) for power in range(200)]
    other = [
        ceiling * math.sqrt((math.log(10) + 6 * math.log1p(3.0 / width)) / 2000) + 2 * slope * width
        for width in widths
    ]
    assert min(other) <= found * (1 + 1e-3)
    assert found <= 1.05 * min(other)


def test_the_uniform_bound_falls_with_samples_and_says_nothing_of_large_classes() -> None:
    errors = [softmax_uniform_error(count, 0.1, **RINGS) for count in (10**3, 10**5, 10**7)]
    assert errors == sorted(errors, reverse=True)
    assert 8 < errors[0] / errors[1] < 11  # √100, but for the logarithm
    large = RINGS | {"classes": 10, "inputs": 71_000}  # as many weights as the MNIST network has
    assert softmax_uniform_error(60_000, 0.1, **large) > math.log(10) + math.sqrt(2) * 3.0 + 0.75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": 1}, "`classes` must be a whole number, at least 2"),
        ({"inputs": 0}, "`inputs` must be a whole number, at least 1"),
        ({"norm": 0.0}, "`norm` must be positive and finite"),
        ({"gamma": math.inf}, "`gamma` must be positive and finite"),
    ],
)
def test_a_class_without_a_uniform_bound(options: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        softmax_uniform_error(10, 0.1, **(RINGS | options))
    with pytest.raises(ArgumentError, match="`failure` must lie between 0 and 1"):
        softmax_uniform_error(10, 1.0, **RINGS)
