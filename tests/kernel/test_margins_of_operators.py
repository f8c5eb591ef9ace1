"""Operators, pools and costs exceed exact values by the rounding of the theory, and little more."""

from __future__ import annotations

import math

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.costs import Claimed, Domain, Lp, Quadratic
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import (
    Affine,
    AxisProduct,
    Convolution,
    Dense,
    Diagonal,
    Gather,
    Product,
    Reshape,
)
from certus.kernel.passes import Refused, Rounded
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.rounding import FEW, MANY, SOME, slack
from tests.kernel.margins import near

ctx.prec = 200


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def float64(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def exceeds(bound: float, exact: arb, share: float, most: float = 2.0) -> bool:
    """Whether a bound is above an exact value by at least a share of it, and at most a multiple of that."""
    return 0.85 * share <= float(arb(bound) / exact - 1) <= most * share


def convolution() -> Convolution:
    options = {"stride": (2,), "padding": ((1, 0),), "dilation": (1,)}
    return Convolution(random(2, 2, 3), random(2, 1), (2, 6), groups=1, **options)  # type: ignore[arg-type]


OPERATORS = {
    "dense": lambda: Dense(random(3, 40), random(3)),
    "tall": lambda: Dense(random(40, 3), None),
    "diagonal": lambda: Diagonal(random(4), random(4, seed=1), (4,)),
    "gather": lambda: Gather(torch.tensor([0, 0, -1, 3, 0]), (4,)),
    "reshape": lambda: Reshape((2, 2), (4,)),
    "axes": lambda: AxisProduct((random(3, 2), random(2, 5, seed=1)), None, (2, 2, 5)),
    "convolution": convolution,
}


def exactly(matrix: Tensor, vector: Tensor) -> list[arb]:
    pairs = (zip(row, vector.flatten().tolist(), strict=True) for row in matrix.tolist())
    return [sum((arb(a) * arb(b) for a, b in each), arb(0)) for each in pairs]


def entries(operator: Affine) -> Tensor:
    """A, column by column, from its values at the basis: sums with one term, so without rounding, but for
    products of matrices."""
    basis = torch.eye(math.prod(operator.in_shape), dtype=torch.float64)
    return operator.act(basis.reshape(-1, *operator.in_shape), operator.weights).flatten(1).T


@pytest.mark.parametrize("folds", [0, 500])
@pytest.mark.parametrize("name", OPERATORS)
def test_absolute_values_and_norms_of_rows(name: str, folds: int) -> None:
    operator = OPERATORS[name]()
    operator.folds = folds
    share, matrix = slack(operator.terms + folds), entries(operator)
    points = random(1, *operator.in_shape, seed=2).abs()
    for bound, exact in zip(
        operator.absolute(points).flatten().tolist(), exactly(matrix.abs(), points), strict=True
    ):
        assert bound == exact == 0 or exceeds(bound, exact, share)
    rows = random(1, *operator.out_shape, seed=3).abs()
    found = operator.absolute_transpose(rows).flatten().tolist()
    for bound, exact in zip(found, exactly(matrix.abs().T, rows), strict=True):
        assert bound == exact == 0 or exceeds(bound, exact, share)
    scales = slack(len(operator.weights))
    for norms, sides in ((operator.row_norms, matrix), (operator.column_norms, matrix.T)):
        for bound, side in zip(norms.flatten().tolist(), sides.tolist(), strict=True):
            exact = sum((arb(each) ** 2 for each in side), arb(0)).sqrt()
            assert bound == exact == 0 or exceeds(bound, exact, share + scales)
    row = max(exactly(matrix.abs(), torch.ones(matrix.shape[1])), key=float)
    column = max(exactly(matrix.abs().T, torch.ones(matrix.shape[0])), key=float)
    assert exceeds(operator.absolute_norm, (row * column).sqrt(), share + FEW)


@pytest.mark.parametrize("folds", [0, 500])
@pytest.mark.parametrize("name", OPERATORS)
def test_errors_of_an_operator(name: str, folds: int) -> None:
    """|A|e + u(|A||x| + |b|) forwards, and ‖A‖e + u‖|A|‖(‖v‖ + e) backwards."""
    operator = OPERATORS[name]()
    operator.folds = folds
    point, error = random(1, *operator.in_shape), 1e-9 * random(1, *operator.in_shape, seed=1).abs()
    sizes = entries(operator).abs() @ point.abs().flatten()
    bias = operator.apply(torch.zeros_like(point)).abs().flatten()
    expected = entries(operator).abs() @ error.flatten() + slack(operator.terms + folds) * (sizes + bias)
    value, found = operator.rounded(point, error)
    assert torch.equal(value, operator.apply(point))
    assert found.flatten().tolist() == near(expected.tolist(), rel=1e-9)
    size, off = float64([3.0]), float64([1e-12])
    length, pulled = operator.backward_error(size, off, Rounded(point, error))
    assert float(length) == near(3 * operator.norm)
    rounding = slack(operator.terms + folds) * operator.absolute_norm
    assert float(pulled) == near(operator.norm * 1e-12 + rounding * 3, rel=1e-9)


@pytest.mark.parametrize("folds", [0, 500])
def test_folds_raise_a_claimed_norm(folds: int) -> None:
    operator = Dense(torch.eye(5).double() * 2 + 0.1, None)
    claim = float(torch.linalg.matrix_norm(operator.matrix(), 2)) * (1 + 1e-9)
    operator.accept((claim,))
    before = operator.norm
    operator.folds = folds
    raised = slack(folds) * operator.absolute_norm if folds else 0.0
    assert operator.norm - before == near(min(raised, operator.absolute_norm - before), rel=1e-3)


def test_norms_of_products_and_axes() -> None:
    parts = tuple(Diagonal(random(4, seed=k), None, (4,)) for k in range(3))
    whole = Product(parts)
    exact = arb(1)
    for part in parts:
        exact *= max(map(abs, part.weights[0].tolist()))
    assert exceeds(whole.composed_norm, exact, slack(3))
    assert whole.terms == 27
    axes = AxisProduct((torch.eye(3).double() * 3, torch.eye(2).double() * 5), None, (2, 3, 2))
    axes.accept((3 * (1 + 1e-13), 5 * (1 + 1e-13)))
    own = [Dense(matrix, None) for matrix in axes.weights]
    checked = [arb(each.check((claim,))) for each, claim in zip(own, axes.claim, strict=True)]
    assert exceeds(axes.check(axes.claim), checked[0] * checked[1], slack(2))


def test_norms_of_rows_of_a_product() -> None:
    """The smaller of ‖row of A‖·‖P‖ and |A| times the row norms of P."""
    first, second = Diagonal(float64([1.0, 2.0]), None, (2,)), Dense(random(3, 2), None)
    second.accept((float(torch.linalg.matrix_norm(random(3, 2), 2)) * (1 + 1e-12),))
    whole = Product((first, second))
    by_norm = second.row_norms * first.norm
    by_entries = second.absolute(first.row_norms[None])[0]
    least = torch.minimum(by_norm, by_entries)
    assert bool((whole.row_norms / least - 1 >= 0.85 * slack(1)).all())
    assert bool((whole.row_norms / least - 1 <= 2 * slack(1)).all())
    assert bool((by_norm < by_entries).any())
    again = Product((first, first, second))
    assert bool((again.row_norms <= second.row_norms * 4 * (1 + 1e-12)).all())
    assert bool((again.row_norms >= torch.linalg.vector_norm(again.matrix(), dim=1) * (1 + FEW)).all())


@pytest.mark.parametrize("overlap", [1, 2, 3, 5])
def test_pools(overlap: int) -> None:
    """Each of several windows holds the middle entry."""
    window = torch.tensor([[k, overlap] for k in range(overlap)])
    pool = MaxPool((window,), (1, overlap + 1))
    assert pool.overlap == overlap
    assert exceeds(pool.gain, arb(overlap).sqrt(), FEW)
    size, error = float64([2.0]), float64([0.5])
    point = torch.zeros(1, 1, overlap + 1).double()
    length, off = pool.backward_error(size, error, Rounded(point, point))
    assert float(length) == near(2 * pool.gain)
    assert float(off) == near(pool.gain * 4.5)
    rows = torch.ones(1, 1, 1, overlap, dtype=torch.float64)
    spread = pool._spread(rows)[0, 0, 0]
    assert exceeds(float(spread[-1]), arb(overlap), slack(overlap))
    assert spread[0] == near(1)


@pytest.mark.parametrize("sharpness", [1.0, 2.5])
@pytest.mark.parametrize("name", ["tanh", "gelu", "silu"])
def test_errors_of_units(name: str, sharpness: float) -> None:
    """sup|σ'|e and the rounding of σ, relative to |σ(z)| + |z| + 1/b."""
    units = Pointwise(scalar(name), (3,), sharpness)
    point = float64([[-2.0, 0.1, 3.0]])
    nothing = torch.zeros_like(point)
    found = units.rounded(point, nothing)
    own = slack(8) * (units.apply(point).abs() + point.abs() + 1 / sharpness)
    assert found.error[0].tolist() == near(own[0].tolist(), rel=1e-6)
    wide = units.rounded(point, nothing + 1e-3).error
    low, high = units.slope_range(point - 1e-3, point + 1e-3)
    steep = torch.maximum(low.abs(), high.abs())
    assert wide[0].tolist() == near((1e-3 * steep + own)[0].tolist(), rel=1e-9)
    size, error = float64([3.0]), float64([1e-2])
    length, off = units.backward_error(size, error, Rounded(point, nothing + 1e-3))
    unsure = (high - low + slack(8) * (1 + sharpness * point.abs())).amax()
    assert float(length) == near(3 * float(steep.amax()))
    assert float(off) == near(float(1e-2 * steep.amax() + 3.01 * unsure), rel=1e-9)
    unsure = slack(8) * (1 + sharpness * point.abs()) + units.slope_range(point, point)[1]
    unsure = (unsure - units.slope_range(point, point)[0]).amax()
    off = units.backward_error(size, 0 * error, Rounded(point, nothing))[1]
    assert float(off) == near(float(3 * unsure), rel=1e-9)


def power_norm(numbers: list[arb], p: float) -> arb:
    sizes = [abs(number) for number in numbers]
    if p == math.inf:
        return max(sizes, key=float)
    return sum((size ** arb(p) for size in sizes), arb(0)) ** (1 / arb(p))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, math.inf])
def test_costs_and_dual_norms(p: float, weighted: bool) -> None:
    weights = [0.3, 1.7, 2.2] if weighted else [1.0, 1.0, 1.0]
    cost = Lp(shape=(3,), p=p, scales=float64(weights) if weighted else None)
    share = slack(3) + SOME
    assert cost.rounding == near(share)
    move, origin = [0.3, -1.1, 0.7], torch.zeros(1, 3).double()
    stretched = [arb(v) * arb(w).sqrt() for v, w in zip(move, weights, strict=True)]
    points = float64([move])
    assert exceeds(float(cost.raised(points, origin)), power_norm(stretched, p) ** 2, share)
    shrunk = [arb(v) / arb(w).sqrt() for v, w in zip(move, weights, strict=True)]
    conjugate = math.inf if p == 1 else 1 / (1 - 1 / p)
    assert exceeds(float(cost.dual(points)), power_norm(shrunk, conjugate), share)
    assert exceeds(float(cost.farthest(points.abs())), power_norm(stretched, p), MANY)
    least = arb(min(weights)).sqrt() * (arb(3) ** -0.5 if p == math.inf else 1)
    assert exceeds(float(cost.dual_size(float64([2.0]))), 2 / least, MANY + share)
    assert cost.length == near(math.sqrt(3) if p == math.inf else 1)
    if p != 2:
        assert exceeds(cost.length, arb(3).sqrt() if p == math.inf else arb(1), FEW)
        assert p == math.inf or cost.unit == 1 + FEW
    if weighted:
        assert cost.whitening is not None
        for factor, weight in zip(cost.whitening.tolist(), weights, strict=True):
            assert exceeds(factor, 1 / arb(weight).sqrt(), slack(1))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_constants_of_a_quadratic_cost(scale: float) -> None:
    """1/√(1 − Δ) and √(1 − Δ)/‖S‖, Δ = ‖SᵀMS − I‖ with its rounding."""
    matrix = torch.diag(float64([4.0, scale]))
    off = 1.001
    root = torch.diag(float64([0.5 * off, 1 / math.sqrt(scale)]))
    cost = Quadratic(shape=(2,), matrix=matrix, root=root)
    terms = [arb(float(root[k, k])) ** 2 * arb(float(matrix[k, k])) for k in range(2)]
    error = sum(((term - 1) ** 2 for term in terms), arb(0)).sqrt()
    size = sum((term**2 for term in terms), arb(0)).sqrt()
    error = error + slack(6) * size
    length = 1 / (1 - error).sqrt()
    assert exceeds(cost.length, length, FEW, 4)
    assert cost.unit == cost.length
    largest = arb(max(float(root.diagonal().max()), 0.0))
    floor = 1 / (largest * length)
    assert -1e-12 <= float(arb(cost.floor) / floor - 1) <= -0.85 * FEW
    condition = math.hypot(4, scale) / cost.floor**2
    assert cost.rounding == near(slack(16) * condition**2 + SOME, rel=1e-9)


def test_roots_and_matrices_that_are_refused() -> None:
    eye = torch.eye(2).double()
    for matrix, root in (
        (eye, eye * math.sqrt(1.5)),
        (eye, eye * 0),
        (float64([[1.0, 0.1], [0.0, 1.0]]), eye),
        (torch.diag(float64([1.0, 1e7])), torch.diag(float64([1.0, 10**-3.5]))),
    ):
        with pytest.raises(Refused):
            Quadratic(shape=(2,), matrix=matrix, root=root)
    Quadratic(shape=(2,), matrix=eye, root=eye * math.sqrt(1.3))


def claimed(**changes: float) -> Claimed:
    constants = {"growth": 2.0, "strong_convexity": 2.0, "floor": 0.5} | changes
    return Claimed(
        shape=(2,),
        assumptions=("convex",),
        values=lambda x, y: ((x - y) ** 2).sum(1),
        slopes=lambda x, y: 2 * (x - y),
        length_of=lambda v: v.norm(dim=1),
        dual_of=lambda v: v.norm(dim=1),
        value_terms=lambda x, y: (x.abs() + y.abs()).sum(1),
        gradient_terms=lambda x, y: (x.abs() + 2 * y.abs()).sum(1),
        **constants,  # type: ignore[arg-type]
    )


def test_a_claimed_cost() -> None:
    cost, one = claimed(lost=1e-6), torch.ones(1, 2).double()
    assert exceeds(cost.length, arb(2), FEW)
    assert cost.unit == cost.length
    assert cost.rounding == near(slack(2) + SOME + 1e-6, rel=1e-9)
    assert float(cost.value_error(2 * one, one)) == near(slack(16) * 6)
    assert float(cost.gradient_error(2 * one, one)) == near(slack(16) * 8)
    assert float(cost.raised(2 * one, one)) == near(2 * (1 + cost.rounding) + slack(16) * 6, rel=1e-15)
    assert claimed(strong_convexity=0.0).strong_convexity == 0
    for name, value in (
        *(("growth", 0.0), ("growth", math.inf), ("growth", math.nan), ("floor", 0.0), ("floor", math.inf)),
        *(("strong_convexity", -1.0), ("strong_convexity", math.inf), ("lost", 1e-3), ("lost", -1e-9)),
    ):
        with pytest.raises(Refused):
            claimed(**{name: value})


def test_a_domain_is_all_of_space_unless_it_is_given() -> None:
    assert (float(Domain().lower), float(Domain().upper)) == (-math.inf, math.inf)
    found = Lp(shape=(2,)).gap(float64([[3.0, -4.0]]), float64([[0.3, 0.4]]), float64([2.0]), Domain())
    assert float(found) == near(25 / 4, rel=1e-11)


def test_powers_that_overflow_or_vanish() -> None:
    for size in (1e-250, 1.0, 1e250):
        moves = size * float64([[1.0, -1.0, 1.0]])
        assert float(Lp(shape=(3,), p=1.5).norm(moves)) == near(size * 3 ** (1 / 1.5), rel=1e-12)
        assert float(Lp(shape=(3,), p=1.5).dual(moves)) == near(size * 3 ** (1 / 3), rel=1e-11)
    assert Lp(shape=(3,), p=1.5).norm(torch.zeros(1, 3).double()) == 0


def test_weights_below_the_norm() -> None:
    """‖v‖² ≥ Σ wᵢvᵢ²: w itself for p ≤ 2, and the least of them over the dimension for the sup-norm."""
    scales = float64([0.5, 2.0])
    for p in (1.0, 1.5, 2.0):
        assert Lp(shape=(2,), p=p, scales=scales).weights is not None
        assert torch.equal(torch.as_tensor(Lp(shape=(2,), p=p, scales=scales).weights), scales)
    assert float(Lp(shape=(2,), p=math.inf, scales=scales).weights) == near(0.25)
    assert float(Lp(shape=(2,), p=math.inf).weights) == near(0.5)
    assert float(Lp(shape=(2,), p=2.0).weights) == 1
    assert Lp(shape=(2,)).length == Lp(shape=(2,)).unit == 1.0


def test_the_gap_in_a_ball_around_another_center() -> None:
    """The maximum over z of 3z − (z − x)², x = 2 and |z − 2.5| ≤ 0.2, is at z = 2.7, from below."""
    cost, domain = Lp(shape=(1,)), Domain(center=float64([2.5]), radius=0.2)
    found = float(cost.gap(float64([[3.0]]), float64([[2.0]]), float64([2.0]), domain))
    assert 3 * 0.7 - 0.49 <= found <= 3 * 0.7 - 0.49 + 1e-9


@pytest.mark.parametrize("radius", [0.6, 1.0, 5.0])
def test_the_gap_in_a_ball_has_room_for_its_rounding(radius: float) -> None:
    """‖g − 2λq‖²/4(s + λ) + λ(R² − ‖q‖²) at the λ of the maximiser, and the rounding of every term."""
    cost, modulus = Lp(shape=(2,)), float64([2.0])
    gradient, point = float64([[3.0, -4.0]]), float64([[0.3, 0.4]])
    found = float(cost.gap(gradient, point, modulus, Domain(center=torch.zeros(1).double(), radius=radius)))
    ahead = [arb(0.3) + arb(3.0) / 2, arb(0.4) - arb(4.0) / 2]
    length = power_norm(ahead, 2)
    multiplier = length / arb(radius) - 1
    if multiplier < 0:
        assert found == near(25 / 4)
        return
    rest = power_norm([3 - 2 * multiplier * arb(0.3), -4 - 2 * multiplier * arb(0.4)], 2)
    inside = arb(radius) ** 2 - arb(0.3) ** 2 - arb(0.4) ** 2
    exact = rest**2 / (4 * (1 + multiplier)) + multiplier * inside
    margin = 2 * cost.rounding * (5 + float(multiplier)) * float(rest / (4 * (1 + multiplier)))
    margin += float(multiplier) * cost.rounding * (radius**2 + 0.25)
    assert 0.97 * margin <= float(arb(found) - exact) <= 1.03 * margin
