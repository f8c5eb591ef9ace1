"""Operators too large to be written out take another path than small ones: both must hold, and agree.

The thresholds are lowered, so that small operators go both ways beside a dense oracle. Then operators of
CIFAR size go the large way, beside rows, columns and gains that are computed from the layers themselves.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.bounds import norm_proposals
from certus.bounds.norm_proposals import is_small
from certus.kernel import pointwise, smoothness
from certus.kernel.norms import checked_quadratic
from certus.kernel.operators import Affine
from tests.bounds.networks import sample
from tests.kernel.reading import dense, operator, svd_norm

Shape = tuple[int, ...]
Models = dict[str, tuple[nn.Sequential, Shape]]


def _chains() -> Models:
    """Affine layers in a row, of every kind and number that a network may have."""
    big = nn.Conv2d(1, 1, 1)
    big.weight.data.fill_(100.0)
    narrow = nn.Linear(6, 2, bias=False)
    return {
        "one by one": (nn.Sequential(big, nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)), (1, 5, 5)),
        "conv pool conv": (
            nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.AvgPool2d(2), nn.Conv2d(3, 4, 3)),
            (2, 8, 8),
        ),
        "four": (
            nn.Sequential(
                *(nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), nn.AvgPool2d(2, 1), nn.Conv2d(4, 3, 2)),
                nn.AdaptiveAvgPool2d(2),
            ),
            (2, 8, 8),
        ),
        "pool flatten linear": (nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(18, 5)), (2, 6, 6)),
        "narrow in the middle": (nn.Sequential(nn.Linear(9, 6), narrow, nn.Linear(2, 7)), (9,)),
        "conv1d": (nn.Sequential(nn.Conv1d(2, 3, 3), nn.AvgPool1d(2), nn.Conv1d(3, 2, 2)), (2, 12)),
    }


def _made(build: Callable[[], Models]) -> Models:
    """Models with weights from a fixed seed; torch's own generator stays as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return {name: (model.double().eval(), shape) for name, (model, shape) in build().items()}


CHAINS = _made(_chains)


def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes the path of large operators."""
    monkeypatch.setattr(norm_proposals, "_SMALL_SIDE", 0)
    monkeypatch.setattr(norm_proposals, "_CACHE", type(norm_proposals._CACHE)())


def check_norms(found: Affine, matrix: Tensor, loose: float) -> None:
    """Rows, columns and the whole: never below the dense truth."""
    assert (found.row_norms.flatten() >= matrix.norm(dim=1)).all()
    assert (found.column_norms.flatten() >= matrix.norm(dim=0)).all()
    assert svd_norm(matrix) <= found.norm <= loose * svd_norm(matrix)
    assert found.absolute_norm >= svd_norm(matrix.abs())
    ones = torch.ones(1, *found.in_shape, dtype=torch.float64)
    assert (found.absolute(ones).flatten() >= matrix.abs().sum(1)).all()


@pytest.mark.parametrize("name", CHAINS)
def test_both_paths_of_a_chain(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, shape = CHAINS[name]
    matrix = dense(model, shape)
    small = operator(model, shape)
    check_norms(small, matrix, 1 + 1e-6)
    torch.testing.assert_close(small.row_norms.flatten(), matrix.norm(dim=1))
    torch.testing.assert_close(small.column_norms.flatten(), matrix.norm(dim=0))
    large(monkeypatch)
    other = operator(model, shape)
    assert not is_small(other)
    check_norms(other, matrix, 3.0 if name != "four" else 8.0)
    for one, two in ((other.row_norms, small.row_norms), (other.column_norms, small.column_norms)):
        assert (one >= two * (1 - 1e-9)).all()


def test_the_rows_of_three_large_layers() -> None:
    """The norm of *all* that stands before a layer counts: 33×33 is too large to be written out."""
    big, plain = nn.Conv2d(1, 1, 1, bias=False), [nn.Conv2d(1, 1, 1, bias=False) for _ in range(2)]
    big.weight.data.fill_(100.0)
    for layer in plain:
        layer.weight.data.fill_(1.0)
    for layers in ([big, *plain], [*plain, big], [plain[0], big, plain[1]]):
        found = operator(nn.Sequential(*layers).double(), (1, 33, 33))
        assert not is_small(found)
        for norms in (found.row_norms, found.column_norms):
            torch.testing.assert_close(norms, torch.full((1, 33, 33), 100.0, dtype=torch.float64))


def test_the_curvature_behind_three_large_layers() -> None:
    """Without the first of them the bound was 123.5; the Hessian of this very network reaches 1,624."""
    torch.manual_seed(0)
    affine = [nn.Conv2d(1, 1, 1) for _ in range(3)]
    for layer, gain in zip(affine, (100.0, 1.0, 1.0), strict=True):
        layer.weight.data.fill_(gain)
    model = nn.Sequential(*affine, nn.Tanh(), nn.Flatten(), nn.Linear(1089, 2)).double()
    with torch.no_grad():
        shift = float(model[:3](torch.zeros(1, 1, 33, 33, dtype=torch.float64)).max())
    # Every unit at 0.6585, where tanh bends most.
    center = torch.full((1, 1, 33, 33), (0.6585 - shift) / 100.0, dtype=torch.float64)
    leaf = center.requires_grad_()
    margin = model(leaf) @ torch.tensor([1.0, -1.0], dtype=torch.float64)
    (slope,) = torch.autograd.grad(margin.sum(), leaf, create_graph=True)
    curved = torch.autograd.grad(slope.sum(), leaf)[0].abs().max()  # of a diagonal Hessian
    bound = certus.input_smoothness(model, input_shape=(1, 33, 33))
    assert bound.margin_curvature is not None
    assert curved > 100
    assert float(bound.margin_curvature.max()) >= float(curved)


def _large() -> Models:
    return {
        "conv pool conv": (
            nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.AvgPool2d(2), nn.Conv2d(16, 16, 3, padding=1)),
            (3, 32, 32),
        ),
        "strided, grouped": (
            nn.Sequential(
                nn.Conv2d(3, 12, 5, stride=2, padding=2, groups=3),
                nn.Conv2d(12, 24, 1),
                nn.AvgPool2d(3, 1, 1),
            ),
            (3, 32, 32),
        ),
        "linear above 1,024": (nn.Sequential(nn.Flatten(), nn.Linear(1452, 1100)), (3, 22, 22)),
        "depthwise": (
            nn.Sequential(
                nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
            ),
            (32, 16, 16),
        ),
    }


CIFAR = _made(_large)


@pytest.mark.parametrize("name", CIFAR)
def test_large_operators_against_their_layers(name: str) -> None:
    """Some rows and columns exactly, and the norm against power iteration, which is a lower bound."""
    model, shape = CIFAR[name]
    found = operator(model, shape)
    assert not is_small(found)
    zero = model(torch.zeros(1, *shape, dtype=torch.float64)).detach()
    generator = torch.Generator().manual_seed(2)
    for _ in range(12):
        leaf = torch.zeros(1, *shape, dtype=torch.float64, requires_grad=True)
        place = int(torch.randint(zero.numel(), (1,), generator=generator))
        (row,) = torch.autograd.grad(model(leaf).flatten()[place], leaf)
        assert row.norm() <= found.row_norms.flatten()[place]
        unit = torch.zeros(1, *shape, dtype=torch.float64).flatten()
        place = int(torch.randint(unit.numel(), (1,), generator=generator))
        unit[place] = 1
        column = model(unit.reshape(1, *shape)) - zero
        assert column.norm() <= found.column_norms.flatten()[place]
    vector = torch.randn(1, *shape, dtype=torch.float64, generator=generator)
    with torch.enable_grad():
        for _ in range(30):
            leaf = (vector / vector.norm()).detach().requires_grad_()
            image = model(leaf) - zero
            gain = image.norm()
            (vector,) = torch.autograd.grad(image.pow(2).sum() / 2, leaf)
    assert float(gain.detach()) <= found.norm <= 4 * float(gain.detach())


def test_exact_eigenvalues_and_what_stands_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row's own eigenvalue, one for all rows of a sample, or none: each looser than the one before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 4)).double()
    points, targets = torch.randn(40, 4).double(), torch.arange(40) % 4
    found = sample(model, certus.CrossEntropy(), points, targets, margins=True)
    seen: list[float] = []
    for work in (2e9, 3e4, 0.0):
        monkeypatch.setattr(pointwise, "_EIGENVALUE_WORK", work)
        bound = certus.input_smoothness(model)
        assert bound.margin_curvature is not None
        assert all(found.curvature.max() <= value for value in bound.bounds.values())
        assert (found.margin_curvature.amax(0) <= bound.margin_curvature + 1e-12).all()
        seen.append(float(bound.margin_curvature.sum()))
    assert seen[0] < seen[1] < seen[2]


def test_pairs_of_classes_and_the_box_around_them(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 5)).double()
    points, targets = torch.randn(30, 3).double(), torch.arange(30) % 5
    found = sample(model, certus.CrossEntropy(), points, targets, margins=True)
    pairs = certus.input_smoothness(model)
    near = certus.bounds.local_smoothness(model, points, targets, 0.2)
    monkeypatch.setattr(smoothness, "MOST_CLASSES", 2)
    box, around = (
        certus.input_smoothness(model),
        certus.bounds.local_smoothness(model, points, targets, 0.2),
    )
    assert (around.curvature >= near.curvature * (1 - 1e-9)).all()
    for bound in (pairs, box):
        assert bound.margin_curvature is not None
        assert bound.margin_lipschitz is not None
        assert (found.margin_curvature.amax(0) <= bound.margin_curvature + 1e-12).all()
        apart = (found.gradients.unsqueeze(2) - found.gradients.unsqueeze(1)).norm(dim=3).amax(0)
        assert (apart <= bound.margin_lipschitz).all()


@pytest.mark.parametrize("size", [1e-170, 1e-30, 1e150])
def test_norms_of_tiny_and_huge_weights(size: float) -> None:
    """Squares of such weights vanish or overflow."""
    torch.manual_seed(0)
    layer = nn.Linear(5, 4, bias=False).double()
    exact = layer.weight.detach().clone()
    layer.weight.data *= size
    found = operator(layer, (5,))
    for norms, axis in ((found.row_norms, 1), (found.column_norms, 0)):
        torch.testing.assert_close(norms / size, exact.norm(dim=axis))
        assert (norms / size >= exact.norm(dim=axis) * (1 - 1e-15)).all()
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0], dtype=torch.float64)
    if size < 1:
        root = 1 / size  # Aᵀ diag(c) A for c of size⁻¹, whose product neither vanishes nor overflows
        found_norm = checked_quadratic(layer.weight.detach(), weights * root)
        truth = torch.linalg.eigvalsh(exact.T @ torch.diag(weights) @ exact)[-1] * size
        torch.testing.assert_close(found_norm, truth)
