"""Upper bounds are above the truth to the last bit: exact fractions, and many small cases.

Without its outward rounding a bound falls below the truth in about every second case.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from certus.bounds.norm_proposals import claim_norm
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, Dense, Diagonal, Product
from certus.kernel.smoothness import Outputs
from tests.kernel.reading import operator

Exact = list[list[Fraction]]


def exact(matrix: Tensor) -> Exact:
    return [[Fraction(float(entry)) for entry in row] for row in matrix]


def product(left: Exact, right: Exact) -> Exact:
    columns = list(zip(*right, strict=True))
    return [
        [sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns]
        for row in left
    ]


def absolute(matrix: Exact) -> Exact:
    return [[abs(entry) for entry in row] for row in matrix]


def transposed(matrix: Exact) -> Exact:
    return [list(column) for column in zip(*matrix, strict=True)]


def square(row: list[Fraction]) -> Fraction:
    return sum((entry * entry for entry in row), Fraction(0))


def check(found: Affine, matrix: Exact, sizes: Exact) -> None:
    """Check that all bounds of an operator A hold and are tight, with |A| (or more) in ``sizes``."""
    ones = [[Fraction(1)] for _ in matrix[0]]
    rows = [row[0] for row in product(sizes, ones)]
    columns = [sum(column, Fraction(0)) for column in zip(*sizes, strict=True)]
    points = torch.ones(1, *found.in_shape, dtype=torch.float64)
    for value, truth in zip(found.absolute(points).flatten().tolist(), rows, strict=True):
        assert truth <= Fraction(value) <= truth * (1 + Fraction(1, 10**12))
    behind = torch.ones(1, *found.out_shape, dtype=torch.float64)
    for value, truth in zip(found.absolute_transpose(behind).flatten().tolist(), columns, strict=True):
        assert truth <= Fraction(value) <= truth * (1 + Fraction(1, 10**12))
    assert Fraction(found.absolute_norm) ** 2 >= max(rows) * max(columns)
    for norms, lines in ((found.row_norms, matrix), (found.column_norms, transposed(matrix))):
        for value, line in zip(norms.flatten().tolist(), lines, strict=True):
            assert Fraction(value) ** 2 >= square(line)


def some(*shape: int, seed: int) -> Tensor:
    """Entries of all sizes, whose sums and squares do not fit into 53 bits."""
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return entries * torch.randn(*shape, dtype=torch.float64, generator=generator).exp()


@pytest.mark.parametrize("seed", range(25))
def test_matrices_and_factors(seed: int) -> None:
    matrix = some(3, 4, seed=seed)
    check(Dense(matrix, None), exact(matrix), absolute(exact(matrix)))
    factors = some(3, seed=seed)
    whole = exact(torch.diag(factors))
    check(Diagonal(factors, None, (3,)), whole, absolute(whole))


def claimed(parts: tuple[Affine, ...], *, whole: bool) -> Product:
    """A product with the norms of its parts claimed, and with that of the matrix written out."""
    for part in parts:
        claim_norm(part)
    found = Product(parts)
    if whole:
        claim_norm(found)
    assert found.written is whole
    return found


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_products(seed: int, whole: bool) -> None:
    """The product itself is exact here, and so is the product of absolute values."""
    parts = [some(3, 4, seed=seed), some(2, 3, seed=seed + 50), some(5, 2, seed=seed + 100)]
    found = claimed(tuple(Dense(part, None) for part in parts), whole=whole)
    matrix, sizes = exact(parts[0]), absolute(exact(parts[0]))
    for part in parts[1:]:
        matrix, sizes = product(exact(part), matrix), product(absolute(exact(part)), sizes)
    check(found, matrix, sizes)


def test_a_product_that_cancels() -> None:
    """(2²⁷ + 1)(2²⁷ − 1) − 2²⁷·2²⁷ = −1, which float64 may compute as 0."""
    left = torch.tensor([[2.0**27 + 1, -(2.0**27)]], dtype=torch.float64)
    right = torch.tensor([[2.0**27 - 1], [2.0**27]], dtype=torch.float64)
    found = claimed((Dense(right, None), Dense(left, None)), whole=True)
    assert 1 <= float(found.row_norms) < 1000
    assert 1 <= float(found.column_norms) < 1000
    assert 1 <= found.norm < 1000


@pytest.mark.parametrize("whole", [True, False])
def test_a_long_product_whose_factors_round_down(whole: bool) -> None:
    """Each of 150 factors is the one of 20 whose product with all before it loses most of its last bit."""
    generator = torch.Generator().manual_seed(0)
    value, truth, factors = 1.0, Fraction(1), []
    for _ in range(150):
        choice = (0.5 + torch.rand(20, generator=generator, dtype=torch.float64)).tolist()
        factor = min(choice, key=lambda each: Fraction(each * value) / (Fraction(each) * Fraction(value)))
        factors.append(factor)
        value, truth = value * factor, truth * Fraction(factor)
    assert value < truth * (1 - Fraction(80, 2**53))
    diagonals = (Diagonal(torch.tensor([each], dtype=torch.float64), None, (1,)) for each in factors)
    found = claimed(tuple(diagonals), whole=whole)
    for norm in (found.norm, float(found.row_norms), float(found.column_norms)):
        assert truth <= Fraction(norm) <= truth * (1 + Fraction(1, 10**11))


def test_rows_of_zeros_and_tiny_numbers() -> None:
    """Squares of 10⁻²⁰⁰ vanish unless they are scaled by the largest."""
    found = Dense(torch.tensor([[0.0, 3e-200, 4e-200]], dtype=torch.float64), None)
    assert 5e-200 <= float(found.row_norms) <= 5.001e-200


@pytest.mark.parametrize("seed", range(10))
def test_convolutions(seed: int) -> None:
    layer = nn.Conv1d(2, 2, 2, padding=1, bias=False).double()
    layer.weight.data = some(2, 2, 2, seed=seed)
    found = operator(layer, (2, 3))
    matrix = exact(found.matrix())  # its entries are those of the kernel, and no sums
    check(found, matrix, absolute(matrix))


def outputs(rows: Tensor, rounding: Tensor) -> Outputs:
    """Outputs with these gradients, known up to ``rounding``."""
    made = Outputs(Dense(rows, None), tuple(rows.shape[1:]), with_zero=False)
    assert torch.equal(made.rows, rows)
    assert (made.rounding > 0).all()  # that of a matrix product, in place of which the test has its own
    made.rounding = rounding
    return made


@pytest.mark.parametrize("seed", range(20))
def test_differences_of_outputs(seed: int) -> None:
    rows = some(3, 4, seed=seed)
    lines = exact(rows)
    found = outputs(rows, torch.zeros_like(rows))
    apart = {
        (i, j): [a - b for a, b in zip(lines[i], lines[j], strict=True)] for i in range(3) for j in range(3)
    }
    distances = found.distances
    for (i, j), line in apart.items():
        assert Fraction(float(distances[i, j])) ** 2 >= square(line)
    pairs = found.differences
    for index, (i, j) in enumerate(zip(*(part.tolist() for part in found.pairs()), strict=True)):
        assert Fraction(float(pairs.norm[0, index])) ** 2 >= square(apart[i, j])
        inside(pairs.low[0, index], apart[i, j], pairs.high[0, index])
    labels = torch.tensor([2, 0])
    against, boxes = found.against(labels), found.hull(labels)
    everything = found.hull(None)
    for sample, label in enumerate(labels.tolist()):
        for k in range(3):
            inside(against.low[sample, k], apart[k, label], against.high[sample, k])
            inside(boxes[0][sample, 0], apart[k, label], boxes[1][sample, 0])
            inside(everything[0][0, 0], apart[k, label], everything[1][0, 0])
            assert Fraction(float(against.norm[sample, k])) ** 2 >= square(apart[k, label])


def inside(low: Tensor, line: list[Fraction], high: Tensor) -> None:
    for least, truth, most in zip(low.tolist(), line, high.tolist(), strict=True):
        assert Fraction(least) <= truth <= Fraction(most)


@pytest.mark.parametrize("seed", range(20))
def test_mixtures_of_outputs(seed: int) -> None:
    """Σ uₖwₖ at the corners of a box of coefficients."""
    rows, low = some(2, 3, seed=seed), some(1, 2, seed=seed + 40)
    high = low + some(1, 2, seed=seed + 80).abs()
    found = outputs(rows, torch.zeros_like(rows)).mixture(low, high)
    lines = exact(rows)
    for first in (low[0, 0], high[0, 0]):
        for second in (low[0, 1], high[0, 1]):
            u, v = Fraction(float(first)), Fraction(float(second))
            line = [u * a + v * b for a, b in zip(*lines, strict=True)]
            inside(found.low[0, 0], line, found.high[0, 0])
            assert Fraction(float(found.norm)) ** 2 >= square(line)


@pytest.mark.parametrize("seed", range(10))
def test_outputs_whose_rows_are_known_up_to_their_rounding(seed: int) -> None:
    rows = some(2, 3, seed=seed)
    rounding = rows.abs() / 64  # covers the truth, and the rounding of rows ± rounding too
    found = outputs(rows, rounding)
    low, high = -some(1, 2, seed=seed + 40).abs(), torch.full((1, 2), 2.0**-9, dtype=torch.float64)
    singles, mixture = found.singles(), found.mixture(low, high)
    for sign in (-1, 1):
        lines = [
            [row + sign * off * Fraction(9, 10) for row, off in zip(*both, strict=True)]
            for both in zip(exact(rows), exact(rounding), strict=True)
        ]
        for k in range(2):
            inside(singles.low[0, k], lines[k], singles.high[0, k])
            assert Fraction(float(singles.norm[0, k])) ** 2 >= square(lines[k])
            assert float(singles.norm[0, k]) <= 1.02 * float(rows[k].norm())
    for u in (low, high):
        weights = exact(u)[0]
        for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            line = [
                sum(
                    weight
                    * (Fraction(float(rows[k, i])) + sign * Fraction(float(rounding[k, i])) * Fraction(9, 10))
                    for k, (weight, sign) in enumerate(zip(weights, signs, strict=True))
                )
                for i in range(3)
            ]
            inside(mixture.low[0, 0], [Fraction(entry) for entry in line], mixture.high[0, 0])


@pytest.mark.parametrize("overlap", range(1, 12))
def test_the_gain_of_windows(overlap: int) -> None:
    """As many windows of one and the same entry."""
    found = MaxPool((torch.zeros(overlap, 1, dtype=torch.long),), (1, 1))
    assert found.overlap == overlap
    assert Fraction(found.gain) ** 2 >= overlap
    assert found.gain <= math.sqrt(overlap) * (1 + 1e-14)
