"""Claimed operator norms against the dense SVD: never below, and close."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import nn

from certus.bounds import norm_proposals
from certus.bounds.layer_summary import _printed_norm
from certus.bounds.norm_proposals import claim_norm
from certus.kernel.norms import circulant_blocks
from certus.kernel.operators import Convolution, Dense
from certus.kernel.passes import Refused
from tests.kernel.reading import dense, operator, svd_norm


def torus_norm(layer: Convolution) -> float:
    """The largest norm of the circular convolution on the torus of the padded input."""
    options = layer.padded, layer.stride, layer.dilation, layer.groups
    blocks, error = circulant_blocks(layer.weights[0], *options)
    return max(svd_norm(block) for block in blocks) + error


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
            torus = torus_norm(found)
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
    small, _ = circulant_blocks(weight, (3,), (1,), (1,), 1)
    assert max(map(svd_norm, small)) == pytest.approx(3**0.5)
    padded = operator(layer, (1, 3))
    assert isinstance(padded, Convolution)
    assert torus_norm(padded) >= truth
    with pytest.raises(Refused, match="larger than the claim"):
        padded.accept((3**0.5,))


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_in_words(padding: str) -> None:
    layer = nn.Conv2d(2, 3, (3, 3), padding=padding, dilation=(1, 2)).double()
    found = operator(layer, (2, 6, 7))
    torch.testing.assert_close(found.matrix(), dense(layer, (2, 6, 7)))


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (40, 40)])
@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "low rank", "zero"])
@pytest.mark.parametrize("small", [True, False])
def test_matrices(shape: tuple[int, int], kind: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By eigenvalues, and by power iteration where the matrix is large."""
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    if kind == "orthogonal":
        matrix = torch.nn.init.orthogonal_(matrix)
    if kind == "low rank":
        matrix = torch.outer(matrix[:, 0], matrix[0])
    if kind == "zero":
        matrix = torch.zeros_like(matrix)
    if not small:
        monkeypatch.setattr(norm_proposals, "_SMALL_SIDE", 2)
        monkeypatch.setattr(norm_proposals, "_CACHE", type(norm_proposals._CACHE)())
    truth, layer = svd_norm(matrix), Dense(matrix, None)
    claim_norm(layer)
    assert truth <= layer.norm * (1 + 1e-15)
    assert layer.norm <= truth * (1 + (1e-10 if small else 1e-3))


def test_many_channels_by_power_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_proposals, "_SMALL_SIDE", 2)
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 8, 3, padding=1).double()
    found = operator(layer, (6, 4, 4))
    assert isinstance(found, Convolution)
    assert svd_norm(dense(layer, (6, 4, 4))) <= found.norm
    assert found.norm <= torus_norm(found) * (1 + 1e-3)


def test_a_frequency_that_power_iteration_overlooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first claim is too small and refused; then all frequencies are decomposed."""
    right = norm_proposals._power_iteration
    monkeypatch.setattr(norm_proposals, "_power_iteration", lambda *given: -right(*given))
    monkeypatch.setattr(norm_proposals, "_SMALL_SIDE", 20)
    monkeypatch.setattr(norm_proposals, "_CACHE", type(norm_proposals._CACHE)())
    torch.manual_seed(0)
    found = operator(nn.Conv2d(3, 4, 3, padding=1), (3, 8, 8))
    assert isinstance(found, Convolution)
    assert not found.written
    assert torus_norm(found) <= found.norm <= torus_norm(found) * (1 + 1e-9)


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
    assert _printed_norm(operator(nn.AvgPool2d(2), (1, 4, 4))) == pytest.approx(math.sqrt(1 * 4) / 4)
    assert _printed_norm(operator(nn.AvgPool1d(3, stride=1), (1, 7))) == pytest.approx(math.sqrt(3 * 3) / 3)
    assert _printed_norm(operator(nn.AdaptiveAvgPool1d(2), (1, 3))) == pytest.approx(math.sqrt(2 * 2) / 2)
    uneven = nn.AvgPool1d(3, stride=3, padding=1, count_include_pad=False)  # windows of two and of three
    assert _printed_norm(operator(uneven, (1, 5))) == pytest.approx(math.sqrt(1 * 3) / 2)


@pytest.mark.parametrize("pool", POOLS, ids=str)
@pytest.mark.parametrize("shape", [(2, 5, 5), (1, 5, 7)], ids=str)
def test_pooling_and_the_papers_constant(pool: nn.Module, shape: tuple[int, ...]) -> None:
    found, truth = operator(pool, shape), svd_norm(dense(pool, shape))
    assert truth <= found.norm <= truth * (1 + 1e-8)
    assert _printed_norm(found) >= found.norm
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


def test_claims_are_cached_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(7, 5).double()
    first = operator(layer, (7,)).norm
    monkeypatch.setattr(norm_proposals, "_largest_norm", lambda matrices: 100.0)
    assert operator(layer, (7,)).norm == first
    layer.weight.data[0, 0] += 0.01
    changed = operator(layer, (7,))
    assert changed.claim[0] == pytest.approx(100)  # a foolish claim
    assert changed.norm == changed.absolute_norm  # makes the bound loose, never wrong
