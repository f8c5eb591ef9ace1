"""Bounds and rounding against ball arithmetic: what float64 computes must hold in exact arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flint import arb, arb_series
from torch import Tensor, nn

import certus
from certus.bounds.norm_proposals import claim_norm
from certus.certificates.problem import Problem
from certus.kernel import pointwise
from certus.kernel.norms import checked_quadratic
from certus.kernel.operators import Convolution, Dense, Product
from certus.kernel.pointwise import Pointwise
from certus.kernel.problem import rounding_at
from certus.kernel.rounding import slack
from certus.kernel.rules import Proposal
from certus.layers import LogCosh, Residual, SmoothAbs
from certus.losses import loss_and_slope
from tests.bounds.ascent import climb, margin_loss
from tests.bounds.balls import (
    FUNCTIONS,
    balls,
    coefficient,
    cross_entropy,
    exact,
    gram_is_below,
    outputs,
)

TABLE = [Pointwise(entry, (1,)) for entry in pointwise._SMOOTH]
UNITS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "softplus": lambda: nn.Softplus(beta=3.0, threshold=200.0),
    "log cosh": lambda: LogCosh(2.0),
    "smooth absolute value": SmoothAbs,
    "residual": nn.Tanh,
}


def network(kind: str, seed: int, size: float = 1.0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers: tuple[nn.Module, ...] = (
        nn.Linear(3, 5),
        UNITS[kind](),
        nn.Linear(5, 4),
        UNITS[kind](),
        nn.Linear(4, 3),
    )
    if kind == "residual":
        branch = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 5))
        layers = (nn.Linear(3, 5), nn.Tanh(), Residual(branch), nn.Tanh(), nn.Linear(5, 3))
    model = nn.Sequential(*layers).double()
    for weights in model.parameters():
        weights.data *= size
    return model


def some_points(seed: int, count: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-1, 1, count, dtype=torch.float64).unsqueeze(1)
    return sizes * torch.randn(count, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("entry", TABLE, ids=lambda entry: entry.scalar.name)
def test_the_table_of_activations(entry: Pointwise) -> None:
    """σ' and σ'' at single points and inside intervals, the listed peaks among them."""
    peaks = [*entry.scalar.slope_peaks, *entry.scalar.curvature_peaks]
    places = torch.tensor([*peaks, *torch.linspace(-30, 30, 121).tolist()], dtype=torch.float64)
    slopes, bends = entry.slope_range(places, places), entry.curvature_range(places, places)
    wide = places - 0.7, places + 0.4
    around = entry.slope_range(*wide), entry.curvature_range(*wide)
    least, most, flattest, sharpest = entry.extremes
    with balls():
        for index, place in enumerate(places.tolist()):
            if entry.scalar.name == "elu":
                if place == 0:
                    continue
                slope = arb(place).exp() if place < 0 else arb(1)
                bend = slope if place < 0 else arb(0)
            else:
                series = FUNCTIONS[entry.scalar.name](arb_series([arb(place), 1]))
                slope, bend = coefficient(series, 1), 2 * coefficient(series, 2)
            for low, high in (slopes, around[0]):
                assert float(low[index]) <= slope <= float(high[index])
            for low, high in (bends, around[1]):
                assert float(low[index]) <= bend <= float(high[index])
            assert least <= slope <= most
            assert flattest <= bend <= sharpest


@pytest.mark.parametrize("size", [1.0, 40.0])
@pytest.mark.parametrize("kind", UNITS)
def test_rounding_of_outputs_losses_and_gradients(kind: str, size: float) -> None:
    model, points = network(kind, 0, size), some_points(0)
    targets = torch.tensor([0, 1, 2, 0])
    problem = Problem.of(
        model, (points, targets), certus.CrossEntropy(), certus.SquaredL2(), certus.domains.Unbounded()
    )
    bound = rounding_at(problem.graph, points)
    leaf = points.clone().requires_grad_()
    computed = problem.loss.model(leaf)
    (rows,) = torch.autograd.grad(computed[:, 0].sum(), leaf)
    kernel = problem.kernel
    proposal = Proposal.at(kernel, 1.0, points)
    off, off_slope = kernel.slack(proposal.loss, bound), kernel.slope_error(proposal.loss, bound)
    losses, slopes = loss_and_slope(problem.loss, points.clone().requires_grad_(), targets)
    with balls():
        for index, point in enumerate(points):
            lines = [outputs(model, point, axis) for axis in torch.eye(3, dtype=torch.float64)]
            for value, series in zip(exact(computed[index]), lines[0], strict=True):
                assert abs(value - coefficient(series, 0)) <= float(bound.values[index])
            loss = [cross_entropy(line, int(targets[index])) for line in lines]
            for stated in (proposal.loss, losses.detach()):
                assert abs(arb(float(stated[index])) - coefficient(loss[0], 0)) <= float(off[index])
            wrong = [
                row - coefficient(line[0], 1) for row, line in zip(exact(rows[index]), lines, strict=True)
            ]
            assert sum(entry * entry for entry in wrong) <= arb(float(bound.slopes[index])) ** 2
            for gradient in (proposal.slope, slopes):
                pairs = zip(exact(gradient[index]), loss, strict=True)
                wrong = [row - coefficient(line, 1) for row, line in pairs]
                assert sum(entry * entry for entry in wrong) <= arb(float(off_slope[index])) ** 2


@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.soak)], ids=["quick", "full"])
@pytest.mark.parametrize("kind", UNITS)
def test_curvature_at_the_points_that_an_ascent_found(kind: str, seeds: tuple[int, ...]) -> None:
    """vᵀ∇²ℓv, enclosed, against every rule, everywhere and on a ball; and slopes along v."""
    for seed in seeds:
        model, targets = network(kind, seed, 2.0), torch.tensor([0, 1, 2, 0])
        found = climb(margin_loss(model, targets), some_points(seed), steps=30)
        everywhere = certus.input_smoothness(model)
        around = certus.bounds.local_smoothness(model, found.point, targets, 1e-9)
        with balls():
            for index in range(4):
                series = cross_entropy(
                    outputs(model, found.point[index], found.direction[index]), int(targets[index])
                )
                length = sum(entry * entry for entry in exact(found.direction[index]))
                bend, slope = 2 * coefficient(series, 2) / length, coefficient(series, 1) / length.sqrt()
                assert float(bend.mid()) == pytest.approx(float(found.curvature[index]), rel=1e-6)
                assert all(bend <= limit for limit in everywhere.bounds.values())
                assert all(bend <= float(limit[index]) for limit in around.bounds.values())
                assert abs(slope) <= min(everywhere.lipschitz, float(around.lipschitz[index]))


def test_a_linear_softmax_is_bounded_from_above_to_the_last_bit() -> None:
    """The supremum is D²/4: the bound is above it in exact arithmetic, and hardly."""
    for seed in range(10):
        torch.manual_seed(seed)
        layer = nn.Linear(4, 3).double()
        bound = certus.input_smoothness(nn.Sequential(layer)).curvature
        with balls():
            rows = [exact(row) for row in layer.weight]
            apart = [
                sum((a - b) * (a - b) for a, b in zip(rows[i], rows[j], strict=True)) / 4
                for i, j in ((0, 1), (0, 2), (1, 2))
            ]
            assert all(one < bound for one in apart)
            assert any(one * (1 + arb("1e-7")) > bound for one in apart)


@pytest.mark.parametrize("size", [1e-120, 1.0, 1e120])
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
def test_norms_of_matrices(shape: tuple[int, int], size: float) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    plain, scaled = Dense(matrix, None), Dense(matrix * size, None)
    for operator in (plain, scaled):
        claim_norm(operator)
    weights = torch.rand(3, shape[0], dtype=torch.float64)
    curved = checked_quadratic(matrix, weights)
    with balls():
        for norm in (plain.norm, scaled.norm / size):
            assert gram_is_below(norm**2 * (1 + 2**-51), matrix)
            assert not gram_is_below(norm**2 * (1 - 1e-9), matrix)
        for norm, row in zip(curved.tolist(), weights, strict=True):
            assert gram_is_below(norm, matrix, row)
            assert not gram_is_below(norm * (1 - 1e-6), matrix, row)


def test_norms_of_convolutions_and_products(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    weight = torch.randn(2, 2, 3, dtype=torch.float64)
    for large in (False, True):
        if large:
            monkeypatch.setattr("certus.bounds.norm_proposals._SMALL_SIDE", 0)
        layer = Convolution(weight, None, (2, 5), stride=(1,), padding=((1, 1),), dilation=(1,), groups=1)
        mix = Dense(torch.randn(4, 10, dtype=torch.float64), None, (2, 5), (4,))
        written = mix.matrix() @ layer.matrix()
        product = Product((layer, mix))
        claim_norm(product)
        assert product.written is not large
        with balls():
            assert gram_is_below(layer.norm**2, layer.matrix())
            assert gram_is_below(product.norm**2, written)
            for axis, norms in ((0, product.column_norms), (1, product.row_norms)):
                lines = written if axis == 1 else written.T
                for norm, line in zip(norms.flatten().tolist(), lines, strict=True):
                    length = sum(entry * entry for entry in exact(line)).sqrt()
                    assert length * (1 - arb("1e-15")) <= norm  # the product itself is rounded
                    if not large:
                        assert norm <= length * (1 + arb("1e-9"))


def test_a_sum_rounds_by_no_more_than_its_slack() -> None:
    """Sums of many products in float64, in torch's own order."""
    torch.manual_seed(0)
    with balls():
        for terms in (1, 7, 100, 3000):
            left, right = torch.randn(2, terms, dtype=torch.float64)
            truth = sum((a * b for a, b in zip(exact(left), exact(right), strict=True)), arb(0))
            size = sum((abs(a * b) for a, b in zip(exact(left), exact(right), strict=True)), arb(0))
            off = abs(arb(float(left @ right)) - truth)
            assert off <= slack(terms) * size
            assert slack(terms) <= (terms + 8) * 2.0**-51
