"""Operator norms against the dense SVD: never below, and close."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certus.bounds import spectral
from certus.bounds.network import read_layers
from certus.bounds.operators import Convolution, Operator, merge_affine_steps
from certus.bounds.spectral import circulant_norm, gram_iteration, matrix_norm


def dense(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """The matrix of an affine layer from the layer itself, one basis image at a time."""
    size = int(torch.tensor(shape).prod())
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    with torch.no_grad():
        images: Tensor = layer(basis) - layer(torch.zeros_like(basis))
    return images.flatten(1).T


def operator(layer: nn.Module, shape: tuple[int, ...]) -> Operator:
    (step,) = merge_affine_steps(read_layers(layer.eval(), shape))
    assert isinstance(step.stage, Operator)
    return step.stage


def svd_norm(matrix: Tensor) -> float:
    return float(torch.linalg.svdvals(matrix)[0])


CONFIGURATIONS = [
    options
    for options in itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2), (1, 2), (3, 5))
    if options[5] + 2 * options[2] > options[3] * (options[0] - 1)
]


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_convolutions_against_the_dense_svd(kernel: int) -> None:
    """All of stride × padding × dilation × groups × size: the FFT bound and the best one."""
    torch.manual_seed(kernel)
    ratios = []
    for _, stride, padding, dilation, groups, size in (c for c in CONFIGURATIONS if c[0] == kernel):
        for make, shape in ((nn.Conv1d, (2, size)), (nn.Conv2d, (2, size, size))):
            options: dict[str, Any] = {
                "stride": stride,
                "padding": padding,
                "dilation": dilation,
                "groups": groups,
            }
            layer = make(2, 4, kernel, **options).double()
            truth = svd_norm(dense(layer, shape))
            found = operator(layer, shape)
            assert isinstance(found, Convolution)
            torus = circulant_norm(found.weights[0], found.padded, found.stride, found.dilation, groups)
            assert torus >= truth
            assert truth <= found.norm <= truth * (1 + 1e-6)
            ratios.append(torus / truth)
            matrix = dense(layer, shape)
            torch.testing.assert_close(found.row_norms.flatten(), matrix.norm(dim=1))
            torch.testing.assert_close(found.column_norms.flatten(), matrix.norm(dim=0))
            torch.testing.assert_close(found.matrix(), matrix)
            rows = torch.randn(2, *found.out_shape).double()
            torch.testing.assert_close(found.transpose(rows).flatten(1), rows.flatten(1) @ matrix)
    assert len(ratios) >= 60
    assert sorted(ratios)[len(ratios) // 2] < 1.3


def test_where_the_fft_at_the_unpadded_size_is_wrong() -> None:
    """Kernel [1, −1] on 3 numbers with padding: the circle of size 3 has norm √3, the layer 1.848."""
    weight = torch.tensor([[[1.0, -1.0]]]).double()
    layer = nn.Conv1d(1, 1, 2, padding=1, bias=False).double()
    layer.weight.data = weight
    truth = svd_norm(dense(layer, (1, 3)))
    assert truth == pytest.approx(1.8477591)
    assert circulant_norm(weight, (3,), (1,), (1,), 1) == pytest.approx(3**0.5)
    assert circulant_norm(weight, (5,), (1,), (1,), 1) >= truth


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_in_words(padding: str) -> None:
    layer = nn.Conv2d(2, 3, (3, 3), padding=padding, dilation=(1, 2)).double()
    found = operator(layer, (2, 6, 7))
    torch.testing.assert_close(found.matrix(), dense(layer, (2, 6, 7)))


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (40, 40)])
@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "low rank", "zero"])
def test_gram_iteration_is_an_upper_bound_and_tight(shape: tuple[int, int], kind: str) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    if kind == "orthogonal":
        matrix = torch.nn.init.orthogonal_(matrix)
    if kind == "low rank":
        matrix = torch.outer(matrix[:, 0], matrix[0])
    if kind == "zero":
        matrix = torch.zeros_like(matrix)
    truth = svd_norm(matrix)
    found = gram_iteration(matrix.unsqueeze(0))
    assert truth * (1 - 1e-12) <= found <= truth * 1.005
    assert truth <= matrix_norm(matrix) <= truth * (1 + 1e-8)


def test_large_channel_counts_use_gram_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "_DENSE", 2)
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 8, 3, padding=1).double()
    weight = layer.weight.detach()
    assert svd_norm(dense(layer, (6, 4, 4))) <= circulant_norm(weight, (6, 6), (1, 1), (1, 1), 1)


POOLS = [
    nn.AvgPool2d(2),
    nn.AvgPool2d(3, stride=1, padding=1),
    nn.AvgPool2d((3, 2), stride=(2, 1), padding=(1, 0), count_include_pad=False),
    nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True),
    nn.AdaptiveAvgPool2d((2, 3)),
    nn.AdaptiveAvgPool2d(1),
]


def test_the_papers_constant_by_hand() -> None:
    """√(N·m_u)/m_l: windows of m_l to m_u entries, N of which share one."""
    assert operator(nn.AvgPool2d(2), (1, 4, 4)).paper_norm == pytest.approx(math.sqrt(1 * 4) / 4)
    assert operator(nn.AvgPool1d(3, stride=1), (1, 7)).paper_norm == pytest.approx(math.sqrt(3 * 3) / 3)
    assert operator(nn.AdaptiveAvgPool1d(2), (1, 3)).paper_norm == pytest.approx(math.sqrt(2 * 2) / 2)
    uneven = nn.AvgPool1d(3, stride=3, padding=1, count_include_pad=False)  # windows of two and of three
    assert operator(uneven, (1, 5)).paper_norm == pytest.approx(math.sqrt(1 * 3) / 2)


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 5), (1, 5, 7)], ids=str)
def test_pooling_and_the_papers_constant(pool: nn.Module, shape: tuple[int, ...]) -> None:
    found, truth = operator(pool, shape), svd_norm(dense(pool, shape))
    assert truth <= found.norm <= truth * (1 + 1e-8)
    assert found.paper_norm >= found.norm
    torch.testing.assert_close(found.matrix(), dense(pool, shape))


def test_folded_layers_have_the_norm_of_the_product() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(4)
    norm.running_var = torch.tensor([0.1, 1.0, 5.0, 0.01])
    norm.running_mean = torch.randn(4)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), norm).double().eval()
    found, matrix = operator(model, (2, 6, 6)), dense(model, (2, 6, 6))
    assert svd_norm(matrix) <= found.norm <= svd_norm(matrix) * (1 + 1e-6)
    model = nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 5)).double()
    found, matrix = operator(model, (2, 6, 6)), dense(model, (2, 6, 6))
    assert svd_norm(matrix) <= found.norm <= svd_norm(matrix) * (1 + 1e-6)


def test_norms_are_remembered_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(7, 5).double()
    first = operator(layer, (7,)).norm
    monkeypatch.setattr("certus.bounds.operators.matrix_norm", lambda matrix: 0.0)
    assert operator(layer, (7,)).norm == first
    layer.weight.data[0, 0] += 1
    assert operator(layer, (7,)).norm == 0.0


def test_gram_iteration_of_tiny_and_huge_matrices() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(9, 7, dtype=torch.float64)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    for scale in (1e-140, 1.0, 1e140):
        found = spectral.gram_iteration((scale * matrix)[None]) / scale
        assert exact <= found * (1 + 1e-9)
        assert found <= 1.01 * exact
