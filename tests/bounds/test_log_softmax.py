"""Log-softmax as the last layer changes no loss of classes; anywhere else, and over another axis, it does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus.errors import UnsupportedError
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin, SquaredError


class Called(nn.Module):
    """The same as a function."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, points: Tensor) -> Tensor:
        return functional.log_softmax(points, dim=self.dim)


def body() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4)]


@pytest.mark.parametrize("last", [nn.LogSoftmax(1), nn.LogSoftmax(-1), Called(1), Called(-1)], ids=str)
@pytest.mark.parametrize(
    "criterion", [CrossEntropy(), CrossEntropy(label_smoothing=0.2, temperature=0.5), SmoothMargin()], ids=str
)
def test_as_the_last_layer_it_is_left_out(criterion: Criterion, last: nn.Module) -> None:
    """Losses and their gradients are the same by torch, so their bounds must be."""
    layers = body()
    plain, behind = nn.Sequential(*layers).double(), nn.Sequential(*layers, last).double()
    points, targets = torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 4
    slopes = []
    for model in (plain, behind):
        leaf = points.clone().requires_grad_()
        losses = criterion(model(leaf), targets)
        slopes += [losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]]
    torch.testing.assert_close(slopes[:2], slopes[2:])
    one, other = (
        certus.input_smoothness(model, criterion=criterion, input_shape=(3,)) for model in (plain, behind)
    )
    assert other.bounds == one.bounds
    assert other.lipschitz == one.lipschitz >= float(slopes[1].norm(dim=1).max())


@pytest.mark.parametrize(
    ("layers", "shape", "message"),
    [
        ([*body(), nn.LogSoftmax(0)], (3,), "dim=0 for inputs of shape"),
        ([*body(), nn.LogSoftmax()], (3,), "dim=None for inputs of shape"),
        ([nn.Conv1d(2, 2, 2), nn.LogSoftmax(1)], (2, 4), r"dim=1 for inputs of shape \(2, 3\)"),
        ([nn.Conv1d(2, 2, 2), nn.LogSoftmax(-1), nn.Flatten()], (2, 4), "dim=-1 for inputs of shape"),
        ([nn.LogSoftmax(1), *body()], (3,), "as the last layer only"),
        ([*body(), nn.LogSoftmax(1), nn.Linear(4, 3)], (3,), "as the last layer only"),
        ([*body(), nn.LogSoftmax(1), nn.Tanh()], (3,), "as the last layer only"),
        ([*body(), nn.LogSoftmax(1), nn.LogSoftmax(1)], (3,), "as the last layer only"),
    ],
    ids=lambda value: None,
)
def test_elsewhere_it_has_no_rule(layers: list[nn.Module], shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        certus.input_smoothness(nn.Sequential(*layers), input_shape=shape)


@pytest.mark.parametrize("criterion", [SquaredError(), Logistic()], ids=str)
def test_other_losses_see_it(criterion: Criterion) -> None:
    """Those of numbers see what it subtracts."""
    with pytest.raises(UnsupportedError, match="before CrossEntropy or SmoothMargin"):
        certus.input_smoothness(nn.Sequential(nn.Linear(3, 1), nn.LogSoftmax(1)), criterion=criterion)
