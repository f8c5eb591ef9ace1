"""Checked norms leave room for the rounding of each step of their proof, and little more."""

from __future__ import annotations

import math

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.norms import checked_norm, checked_quadratic, circulant_blocks
from certus.kernel.passes import Refused
from certus.kernel.rounding import slack
from tests.kernel.margins import near

ctx.prec = 200


def whole(*shape: int) -> Tensor:
    """Small whole numbers, whose products and sums float64 has exactly; none is 0."""
    numbers = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    return (3 * numbers) % 7 - 3.5 + 0.5 * (numbers % 2)


@pytest.mark.parametrize("size", [1.0, 2.0**300, 2.0**-300])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 4), (2, 60)])
@pytest.mark.parametrize("kind", [torch.float64, torch.complex128])
def test_a_norm_is_raised_by_twice_the_rounding_of_its_proof(
    shape: tuple[int, int], size: float, kind: torch.dtype
) -> None:
    """s² + slack(terms)f + slack(side + 8)(side·s² + f), f = ‖A‖²_F; eight times it for complex numbers."""
    matrices = size * torch.stack([whole(*shape), whole(*shape) / 2]).to(kind)
    side, terms = min(shape), max(shape)
    frobenius = float((matrices[0].abs() / size).square().sum())
    claim = 1.01 * math.sqrt(frobenius)
    bound = arb(checked_norm(matrices, claim * size)) / arb(size) / (1 + arb(slack(2)))
    square = arb(claim) ** 2
    lost = slack(terms) * frobenius + slack(side + 8) * float(side * square + frobenius)
    lost *= 8 if kind.is_complex else 1
    assert 0.9 * lost <= float(bound**2 - square) <= 1.1 * lost


def test_a_norm_is_refused_where_a_number_is_not_finite() -> None:
    for wrong in (math.nan, math.inf):
        matrix = whole(1, 2, 2)
        matrix[0, 0, 1] = wrong
        with pytest.raises(Refused):
            checked_norm(matrix, 1e3)


def quadratic(matrix: Tensor, weights: Tensor, claim: float) -> float:
    return float(checked_quadratic(matrix, weights, torch.tensor(claim, dtype=torch.float64)))


@pytest.mark.parametrize("weight", [1.0, 2.0**-200])
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 5), (4, 4), (2, 60), (60, 2)])
def test_a_quadratic_form_is_raised_by_twice_the_rounding_of_its_proof(
    shape: tuple[int, int], weight: float
) -> None:
    """Above the candidate c + slack(4·side²)t, t the trace: slack(terms + 4)t of the Gram matrix, and
    (slack(side + 1)·side + slack(4))(c + t) of the shift and the factorisation. A trace rounds alone."""
    matrix, weights = whole(*shape), torch.full((shape[0],), weight, dtype=torch.float64)
    side, terms = min(shape), max(shape)
    trace = float(matrix.square().sum())
    raised = 1 + slack(8)
    for claim in (trace, 2 * trace):
        candidate = arb(claim) + slack(4 * side * side) * trace
        lost = slack(terms + 4) * trace + (slack(side + 1) * side + slack(4)) * (float(candidate) + trace)
        bound = arb(quadratic(matrix, weights, claim * weight)) / arb(weight)
        assert 0.9 * lost <= float(bound / raised - candidate) <= 1.1 * lost
    largest = float(torch.linalg.matrix_norm(matrix, 2)) ** 2
    own = float(checked_quadratic(matrix, weights)) / weight
    assert largest <= own <= largest * (1 + 1e-11)
    for refuted in (0.0, math.nan, -math.inf, 0.9 * largest):
        bound = arb(quadratic(matrix, weights, refuted * weight)) / arb(weight)
        margin = 2 * slack(terms + side) * trace
        assert 0.9 * margin <= float(bound / raised - trace) <= 1.1 * margin


def test_quadratic_forms_of_huge_and_tiny_numbers() -> None:
    """What is scaled neither overflows nor vanishes; what vanishes is counted."""
    matrix = torch.tensor([[2.0**500, -(2.0**-500)], [-(2.0**500), 0.0]], dtype=torch.float64)
    weights = torch.tensor([[2.0**-300, 0.0], [0.0, 2.0**-300], [0.0, 0.0]], dtype=torch.float64)
    bounds = checked_quadratic(matrix, weights)
    assert bounds[:2].tolist() == near([2.0**700] * 2, rel=1e-12)
    assert float(bounds[2]) == 0
    for claims in (None, torch.full((3,), math.nan, dtype=torch.float64)):
        assert checked_quadratic(-matrix, weights, claims).tolist() == near(bounds.tolist(), rel=1e-12)
    lonely = torch.tensor([[1.0], [2.0**-530]], dtype=torch.float64)
    seen = float(checked_quadratic(lonely, torch.tensor([0.0, 1.0], dtype=torch.float64)))
    assert 2.0**-999 <= seen <= 2.0**-997
    infinite = torch.tensor([[math.inf, 1.0]], dtype=torch.float64)
    assert float(checked_quadratic(infinite, torch.ones(1, dtype=torch.float64))) == math.inf
    one_of_two = torch.tensor([[1.0], [math.inf]], dtype=torch.float64)
    assert checked_quadratic(whole(2, 2), one_of_two.expand(2, 2)).tolist()[1] == math.inf


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_the_error_of_a_fourier_transform(stride: int, dilation: int) -> None:
    """Eight times the rounding of a sum of absolute entries, in the Frobenius norm over the channels."""
    weight = whole(2, 3, 3)
    matrices, error = circulant_blocks(weight, (12,), (stride,), (dilation,), 1)
    torus = -(-12 // stride)
    sums = torch.zeros(2, 3 * stride, dtype=torch.float64)
    for entry in range(3):
        phase = entry * dilation % stride
        sums[:, 3 * phase : 3 * phase + 3] += weight[:, :, entry].abs()
    assert error == near(8 * slack(torus) * float(torch.linalg.matrix_norm(sums)), rel=1e-12)
    assert matrices.shape == (torus // 2 + 1, 2, 3 * stride)
