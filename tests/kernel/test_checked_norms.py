"""Claimed norms are confirmed where they hold, and refused where they do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from certus.kernel.norms import checked_norm, checked_quadratic, circulant_blocks
from certus.kernel.operators import AxisProduct, Convolution, Dense, Diagonal, Gather, Product
from certus.kernel.passes import Refused


def matrices() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 1), (3, 5), (8, 2), (40, 40), (130, 7)]
    plain = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes]
    basis = torch.linalg.qr(plain[3]).Q
    scaled = [plain[1] * 1e200, plain[1] * 1e-200, plain[2].diag_embed()[:, :, 0]]
    return [*plain, basis, *scaled, torch.ones(6, 6, dtype=torch.float64)]


@pytest.mark.parametrize("matrix", matrices(), ids=lambda matrix: f"{tuple(matrix.shape)}")
def test_a_bound_is_above_the_norm_and_close_to_the_claim(matrix: Tensor) -> None:
    norm = float(np.linalg.norm(matrix.numpy(), 2))
    claim = norm * (1 + 1e-11)
    bound = checked_norm(matrix.unsqueeze(0), claim)
    assert norm <= bound <= claim * (1 + 1e-10)
    for short in (1 - 1e-9, 0.9, 1e-3):
        with pytest.raises(Refused, match="larger than the claim"):
            checked_norm(matrix.unsqueeze(0), norm * short)


@pytest.mark.parametrize("claim", [0.0, -1.0, float("inf"), float("nan")])
def test_claims_that_are_no_norms_are_refused(claim: float) -> None:
    with pytest.raises(Refused, match="positive and finite"):
        checked_norm(torch.ones(1, 2, 2, dtype=torch.float64), claim)


def test_nothing_has_the_norm_0() -> None:
    assert checked_norm(torch.zeros(1, 3, 2, dtype=torch.float64), 1.0) == 0
    assert checked_norm(torch.zeros(1, 0, 2, dtype=torch.float64), 1.0) == 0


def test_the_largest_of_several_decides() -> None:
    several = torch.stack([torch.eye(3), 5 * torch.eye(3), 2 * torch.eye(3)]).double()
    assert 5 <= checked_norm(several, 5 * (1 + 1e-12)) <= 5 * (1 + 1e-10)
    with pytest.raises(Refused):
        checked_norm(several, 4.999)


def test_a_matrix_that_is_known_up_to_an_error() -> None:
    matrix = torch.eye(3, dtype=torch.float64).unsqueeze(0)
    assert checked_norm(matrix, 1 + 1e-9, error=0.5) >= 1.5


def test_not_a_number_is_refused() -> None:
    matrix = torch.ones(1, 2, 2, dtype=torch.float64)
    matrix[0, 0, 0] = float("inf")
    with pytest.raises(Refused):
        checked_norm(matrix, 10.0)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (1, 3), (20, 20)])
def test_eigenvalues_of_weighted_grams(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randn(*shape, generator=generator, dtype=torch.float64)
    weights = torch.rand(6, shape[0], generator=generator, dtype=torch.float64)
    weights[0], weights[1, 0] = 0, 1e6
    bounds = checked_quadratic(matrix, weights)
    for bound, own in zip(bounds.tolist(), weights, strict=True):
        exact = float(np.linalg.eigvalsh((matrix.T @ torch.diag(own) @ matrix).numpy())[-1])
        assert exact <= bound * (1 + 1e-15) + 1e-300
        assert bound <= exact * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("groups", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_the_torus_bounds_a_convolution(
    stride: int, padding: tuple[int, int], groups: int, dilation: int
) -> None:
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(4, 4 // groups, 3, 2, generator=generator, dtype=torch.float64)
    layer = Convolution(
        *(weight, None, (4, 7, 8)),
        stride=(stride, stride),
        padding=(padding, padding),
        dilation=(dilation, dilation),
        groups=groups,
    )
    truth = float(np.linalg.norm(layer.matrix().numpy(), 2))
    blocks, error = circulant_blocks(weight, layer.padded, layer.stride, layer.dilation, groups)
    assert error < 1e-10
    torus = float(torch.linalg.matrix_norm(blocks, 2).max()) * (1 + 1e-11)
    layer.accept((torus,))
    assert truth <= layer.norm <= torus * (1 + 1e-9)
    layer.accept((truth * (1 + 1e-11),), written=True)
    assert truth <= layer.norm <= truth * (1 + 1e-9)


def operators() -> list[object]:
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    dense = Dense(normal(5, 6), normal(5))
    pooling = AxisProduct((normal(2, 4).abs(), normal(3, 5).abs()), None, (2, 4, 5))
    index = torch.tensor([[0, 2, -1], [1, 1, 5]])
    image = Convolution(
        *(normal(3, 2, 3), None, (2, 9)), stride=(2,), padding=((1, 2),), dilation=(1,), groups=1
    )
    return [
        dense,
        Diagonal(normal(4), normal(4), (4,)),
        pooling,
        Gather(index, (6,)),
        AxisProduct((normal(3, 4),), normal(3), (5, 4)),
        Product((dense, Diagonal(normal(5), None, (5,)))),
        image,
    ]


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: type(operator).__name__)
def test_without_a_claim_bounds_hold_as_well(operator: Dense) -> None:
    matrix = operator.matrix()
    points = torch.randn(3, *operator.in_shape, dtype=torch.float64)
    image = (points.flatten(1) @ matrix.T).reshape(-1, *operator.out_shape)
    assert torch.allclose(operator.apply(points), image if operator.bias is None else image + operator.bias)
    rows = torch.randn(2, *operator.out_shape, dtype=torch.float64)
    assert torch.allclose(operator.transpose(rows).flatten(1), rows.flatten(1) @ matrix)
    assert operator.norm >= float(np.linalg.norm(matrix.numpy(), 2))
    assert bool((operator.row_norms.flatten() >= matrix.norm(dim=1)).all())
    assert bool((operator.column_norms.flatten() >= matrix.norm(dim=0)).all())
    sizes = points.flatten(1).abs() @ matrix.abs().T
    assert bool((operator.absolute(points.abs()).flatten(1) >= sizes * (1 - 1e-15)).all())
