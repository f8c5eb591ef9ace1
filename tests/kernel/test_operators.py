"""Every kind of affine operator beside its matrix, which is written out from the layer itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.bounds.merging import merge
from certus.kernel.operators import Dense, Diagonal, Product, Reshape
from certus.layers import Normalize, Scale
from tests.kernel.reading import dense, operator

Shape = tuple[int, ...]


def _layers() -> dict[str, tuple[nn.Module, Shape]]:
    norm = nn.BatchNorm2d(3)
    norm.running_mean, norm.running_var = torch.randn(3), torch.rand(3) + 0.2
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return {
        "linear": (nn.Linear(4, 3), (4,)),
        "no bias": (nn.Linear(3, 5, bias=False), (3,)),
        "flatten linear": (nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), (3, 2, 2)),
        "batch norm": (norm, (3, 2, 2)),
        "normalise": (Normalize([0.3, -2.0], [0.5, 4.0]), (2, 3)),
        "scale": (Scale(-0.7), (2, 2)),
        "flatten": (nn.Flatten(), (2, 3)),
        "conv": (nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(1, 0), groups=2), (2, 4, 5)),
        "pool": (nn.AvgPool2d((2, 3), stride=(1, 2), padding=(1, 1)), (2, 4, 5)),
        "pool linear": (nn.Sequential(nn.AvgPool1d(2), nn.Flatten(), nn.Linear(6, 4)), (2, 6)),
        "norm conv": (nn.Sequential(norm, nn.Conv2d(3, 2, 2)), (3, 3, 3)),
        "conv norm": (nn.Sequential(nn.Conv2d(2, 3, 2), norm), (2, 3, 3)),
        "linear norm": (nn.Sequential(nn.Linear(4, 3), Scale(-3.0)), (4,)),
        "norm linear": (nn.Sequential(Normalize([0.3, -2.0], [0.5, 4.0]), nn.Linear(2, 3)), (2,)),
        "norm norm": (nn.Sequential(norm, Scale(2.5), norm), (3, 2, 2)),
    }


with torch.random.fork_rng():
    torch.manual_seed(0)
    LAYERS = {name: (layer.double().eval(), shape) for name, (layer, shape) in _layers().items()}


def close(found: Tensor, truth: Tensor) -> None:
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-13)


def shift_of(layer: nn.Module, shape: Shape) -> Tensor:
    with torch.no_grad():
        shift: Tensor = layer(torch.zeros(1, *shape, dtype=torch.float64))[0].flatten()
    return shift


@pytest.mark.parametrize("name", LAYERS)
def test_beside_its_matrix(name: str) -> None:
    layer, shape = LAYERS[name]
    found, matrix, shift = operator(layer, shape), dense(layer, shape), shift_of(layer, shape)
    outputs, inputs = matrix.shape
    assert found.in_shape == shape
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(5, inputs, dtype=torch.float64, generator=generator)
    rows = torch.randn(5, outputs, dtype=torch.float64, generator=generator)
    behind, before = points.reshape(5, *shape), rows.reshape(5, *found.out_shape)
    close(found.apply(behind).flatten(1), points @ matrix.T + shift)
    close(found.transpose(before).flatten(1), rows @ matrix)
    close(found.matrix(), matrix)
    if not name.startswith("pool linear"):  # |A| of a chain is the product of its |Aᵢ|, tested below
        sizes = points.abs() @ matrix.abs().T
        close(found.absolute(behind.abs()).flatten(1), sizes)
        pulled = found.absolute_transpose(before.abs()).flatten(1)
        close(pulled, rows.abs() @ matrix.abs())
        rows_1, columns_1 = matrix.abs().sum(1).max(), matrix.abs().sum(0).max()
        assert found.absolute_norm == pytest.approx(float((rows_1 * columns_1).sqrt()), rel=1e-12)
        assert found.absolute_norm >= float((rows_1 * columns_1).sqrt()) * (1 - 1e-15)
    spectral = float(torch.linalg.matrix_norm(matrix, 2))
    assert spectral * (1 - 1e-14) <= found.norm <= spectral * (1 + 1e-6)
    for norms, axis in ((found.row_norms, 1), (found.column_norms, 0)):
        torch.testing.assert_close(norms.flatten(), matrix.norm(dim=axis), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", LAYERS)
def test_rounding_counts_every_term(name: str) -> None:
    """``terms`` is at least the number of products in any row or column, and one more for the shift; what
    ``apply`` rounds is measured by |A||x| + |b|, with b as it was before anything cancelled."""
    layer, shape = LAYERS[name]
    found, matrix, shift = operator(layer, shape), dense(layer, shape), shift_of(layer, shape)
    filled = (matrix.abs() > 1e-12).double()
    if not isinstance(found, Reshape | Diagonal):
        assert found.terms >= max(int(filled.sum(0).max()), int(filled.sum(1).max()))
    assert found.rounding >= (found.terms + 3) * 2.0**-53
    points = torch.rand(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    least = points.flatten(1) @ matrix.abs().T + shift.abs()
    assert (found.sizes(points).flatten(1) >= least * (1 - 1e-14)).all()


def test_a_chain_rounds_as_often_as_its_parts_do() -> None:
    """Sums of 300 products with sums of 400: 1 + u to the power of 700, at least."""
    parts = [Dense(torch.ones(300, 400, dtype=torch.float64), None), Diagonal(torch.ones(300), None, (300,))]
    found = Product((*parts, Dense(torch.ones(2, 300, dtype=torch.float64), None)))
    assert found.terms >= 400 + 1 + 300
    assert found.rounding >= (400 + 1 + 300) * 2.0**-53


def test_a_shift_that_cancels_keeps_its_size() -> None:
    """(x − 1e8)·1 + 1e8: the shift is 0, but its rounding is that of 1e8. In a fold, and in a chain."""
    norm = nn.BatchNorm1d(1, eps=0.0).double().eval()
    norm.running_mean, norm.running_var = torch.tensor([1e8]).double(), torch.ones(1).double()
    nn.init.constant_(norm.bias, 1e8)
    one = nn.Linear(1, 1).double()
    nn.init.constant_(one.weight, 1.0)
    nn.init.constant_(one.bias, -1e8)
    back = nn.Linear(1, 1).double()
    nn.init.constant_(back.weight, 1.0)
    nn.init.constant_(back.bias, 1e8)
    for model in (norm, nn.Sequential(norm, Scale(1.0)), nn.Sequential(one, back)):
        found = operator(model.double(), (1,))
        zero = torch.zeros(1, 1, dtype=torch.float64)
        assert float(found.apply(zero)) == 0
        assert float(found.sizes(zero)) >= 2e8


def test_the_absolute_values_of_a_chain_are_those_of_its_parts() -> None:
    layer, shape = LAYERS["pool linear"]
    assert isinstance(layer, nn.Sequential)
    found = operator(layer, shape)
    first, last = dense(layer[0], shape).abs(), dense(layer[2], (6,)).abs()
    points = torch.rand(4, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    there = found.absolute(points.reshape(4, *shape))
    close(there, points @ first.T @ last.T)
    back = found.absolute_transpose(points[:, :4])
    close(back.flatten(1), points[:, :4] @ last @ first)


def test_what_only_reshapes_joins_its_neighbour() -> None:
    """So that the matrix behind it is known: bounds of a flattened network are those of the plain one."""
    torch.manual_seed(4)
    matrix = torch.randn(6, 4, dtype=torch.float64)
    plain, shift = Dense(matrix, None), torch.randn(6, dtype=torch.float64)
    for run, into, out in (
        ([Reshape((2, 2), (4,)), plain], (2, 2), (6,)),
        ([plain, Reshape((6,), (2, 3))], (4,), (2, 3)),
        ([Reshape((2, 2), (4,)), Dense(matrix, shift), Reshape((6,), (2, 3))], (2, 2), (2, 3)),
        ([Reshape((4, 1), (2, 2)), Reshape((2, 2), (4,)), plain], (4, 1), (6,)),
    ):
        found = merge(list(run))
        assert isinstance(found, Dense)
        assert (found.in_shape, found.out_shape) == (into, out)
        assert torch.equal(found.matrix(), matrix)
    alone = merge([Reshape((4, 1), (2, 2)), Reshape((2, 2), (4,))])
    assert isinstance(alone, Reshape)
    assert (alone.in_shape, alone.out_shape) == ((4, 1), (4,))
    layers = (nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    bound = certus.input_smoothness(nn.Sequential(*layers).double())
    flat = certus.input_smoothness(nn.Sequential(nn.Flatten(), *layers).double(), input_shape=(2, 2))
    assert flat.bounds == pytest.approx(bound.bounds, rel=1e-12)
