"""Quadratic forms behind a narrow matrix, and the parabolas made of them: against exact maxima, also where
much was left out of the matrix on purpose."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import SquaredL2
from certus.bounds import Analysis
from certus.certificates.proven.constants import everywhere
from certus.certificates.proven.majorants import (
    LowRankFactor,
    QuadraticForms,
    TangentPoints,
    Values,
    _decomposed,
    _isotropic,
    _Start,
    low_rank_factor,
    tangent_parabolas,
)
from certus.certificates.proven.problem import Problem
from certus.domains import Unbounded
from certus.layers import LogCosh
from certus.losses import CrossEntropy


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def truncated(matrix: Tensor, kept: int) -> LowRankFactor:
    """The largest singular values alone: what is lost is the next one, and no rounding is counted."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    lost = float(sizes[kept]) if kept < len(sizes) else 0.0
    return LowRankFactor(left[:, :kept] * sizes[:kept], right[:kept], lost)


def start(features: int, forms: int, seed: int, error: float = 0.0) -> _Start:
    gradient, move = random(forms, features, seed=seed), 2 * random(forms, features, seed=seed + 1)
    off = torch.full((forms,), error, dtype=torch.float64)
    return _Start(torch.zeros(forms, dtype=torch.float64), gradient, off, move, (move**2).sum(1))


def largest(form: Tensor, gradient: Tensor, move: Tensor, bend: float) -> float:
    """sup over u of ⟨g, u − u*⟩ + ½⟨u − u*, Q(u − u*)⟩ − (bend/2)‖u‖², by its stationary point."""
    tight = bend * torch.eye(len(form), dtype=torch.float64) - form
    if float(torch.linalg.eigvalsh(tight)[0]) <= 0:
        return math.inf
    point = torch.linalg.solve(tight, gradient - form @ move)
    way = point - move
    return float(gradient @ way + way @ form @ way / 2 - bend * point @ point / 2)


@pytest.mark.parametrize("size", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("kept", [1, 3, 4], ids=["1 of 4", "3 of 4", "all"])
def test_parabolas_lie_above_the_true_form(kept: int, size: float) -> None:
    """Four units in six features, most of them left out: the true form is behind the whole matrix."""
    matrix = random(4, 6, seed=0)
    spread = size * torch.rand(5, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    forms, begun = QuadraticForms.of(truncated(matrix, kept), spread), start(6, 5, seed=4)
    rise, bend = _decomposed(begun, forms)
    for row in range(5):
        form = matrix.T @ torch.diag(spread[row]) @ matrix
        assert float(torch.linalg.eigvalsh(form)[-1]) <= float(forms.curvature[row])
        for pair in range(rise.shape[1]):
            found = largest(form, begun.gradient[row], begun.move[row], float(bend[row, pair]))
            assert found <= float(rise[row, pair])
            if kept == 4:
                assert float(rise[row, pair]) == pytest.approx(max(found, 0.0), rel=1e-5, abs=1e-5)


def test_an_error_of_the_gradient_counts() -> None:
    """Whichever way the true gradient is off by as much."""
    matrix, spread = random(4, 6, seed=0), torch.ones(1, 4, dtype=torch.float64)
    exact, off = start(6, 1, seed=4), start(6, 1, seed=4, error=0.5)
    form = matrix.T @ matrix
    curvature = torch.linalg.eigvalsh(form)[-1:]
    ways = random(40, 6, seed=8)
    for rise, bend in (
        _decomposed(off, QuadraticForms.of(truncated(matrix, 4), spread)),
        _isotropic(off, curvature),
    ):
        for pair in range(rise.shape[1]):
            truths = [
                largest(form, exact.gradient[0] + 0.5 * way / way.norm(), exact.move[0], float(bend[0, pair]))
                for way in ways
            ]
            assert max(truths) <= float(rise[0, pair])


def test_the_inverse_reaches_outside_of_the_rows() -> None:
    """½⟨e, (λ − Q)⁻¹e⟩ against a solver: two units in five features leave three directions without any."""
    matrix, pull = random(2, 5, seed=1), 3 * random(3, 5, 2, seed=2)
    spread = torch.rand(3, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    forms = QuadraticForms.of(truncated(matrix, 2), spread)
    multiplier = forms.top * torch.tensor([1.1, 4.0], dtype=torch.float64)
    found = forms.supremum(pull, multiplier)
    for row in range(3):
        form = matrix.T @ torch.diag(spread[row]) @ matrix
        for pair in range(2):
            tight = float(multiplier[row, pair]) * torch.eye(5, dtype=torch.float64) - form
            exact = float(pull[row, :, pair] @ torch.linalg.solve(tight, pull[row, :, pair])) / 2
            assert exact <= float(found[row, pair]) <= exact * (1 + 1e-6)


def test_what_is_lost_of_the_first_layer_is_counted() -> None:
    """The computed product is off by its rounding, which 80-bit numbers show."""
    torch.manual_seed(0)
    left, right = (torch.linalg.qr(random(size, 50, seed=size)).Q for size in (200, 300))
    sizes = torch.cat([torch.ones(40), torch.full((9,), 1e-5), torch.full((1,), 1e-9)]).double()
    layer = nn.Linear(300, 200).double()
    layer.weight.data = (left * sizes) @ right.T
    analysis = Analysis(nn.Sequential(layer, LogCosh(1.0), nn.Linear(200, 2).double()))
    made = low_rank_factor(analysis)
    assert made is not None
    assert made.matrix.shape == (200, 49)
    wide = [
        part.detach().numpy().astype(np.longdouble) for part in (layer.weight, made.matrix, made.rotation)
    ]
    apart = np.asarray(wide[0] - wide[1] @ wide[2], dtype=np.float64)
    off = float(np.linalg.norm(apart, 2))
    assert 9e-10 < off <= made.lost < 3e-9


def test_points_too_far_for_squares_say_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    points = random(2, 2, seed=1)
    labels = model(points).argmax(1).detach()
    made = Problem.of(model, (points, labels), CrossEntropy(), SquaredL2(), Unbounded())
    known, bends = Values.at(made).margins, everywhere(made).margin_curvature
    assert known is not None
    assert bends is not None
    rivals = (labels + 1) % 3
    far = TangentPoints(
        torch.arange(2), rivals, torch.tensor([[1e200, 0.0], [0.5, 0.5]], dtype=torch.float64)
    )
    found = tangent_parabolas(made, known, bends, far)
    assert found is not None
    assert bool((found.rise[0] == math.inf).all())
    assert bool((found.coefficient[0] == math.inf).all())
    assert bool(torch.isfinite(found.rise[1, rivals[1]]).all())
