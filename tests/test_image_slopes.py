"""Slopes in images by the short way: the same numbers as by PyTorch's own, in float64."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus import losses
from certus.losses import loss_and_slope

SHAPE = (8, 3, 38, 40)


WATCHED = nn.Conv2d(3, 1, 5)


def _slopes(layer: nn.Module, inputs: Tensor, weights: Tensor) -> Tensor:
    leaf = inputs.clone().requires_grad_()
    values = (layer(leaf) * weights).sum()
    with losses.fast_image_gradients(WATCHED, inputs):
        return torch.autograd.grad(values, leaf)[0]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the gradients that took the short way."""
    counted: list[int] = []
    fold = functional.fold

    def count(windows: Tensor, *sizes: tuple[int, ...]) -> Tensor:
        counted.append(1)
        return fold(windows, *sizes)

    monkeypatch.setattr(functional, "fold", count)
    return counted


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 5, 5),
        nn.Conv2d(3, 5, 8, stride=2, padding=3),
        nn.Conv2d(3, 5, (4, 7), stride=(3, 1), padding=(2, 0), dilation=(1, 2)),
        nn.Conv2d(3, 5, 5, padding="same", dilation=3, bias=False),
        nn.Conv2d(3, 5, 5, padding=1, padding_mode="circular"),
        nn.Conv2d(3, 1, (38, 40)),
    ],
    ids=str,
)
def test_the_short_way_gives_the_same_slopes(layer: nn.Conv2d, taken: list[int]) -> None:
    draws = torch.Generator().manual_seed(3)
    inputs = torch.randn(SHAPE, generator=draws)
    weights = torch.randn(layer(inputs).shape, generator=draws)
    short = _slopes(layer, inputs, weights)
    assert taken == [1]
    exact = _slopes(layer.double(), inputs.double(), weights.double())
    layer.float()
    assert taken == [1], "float64 keeps PyTorch's own way"
    torch.testing.assert_close(short.double(), exact, rtol=1e-5, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize(
    "layer",
    [nn.Conv2d(3, 6, 3, groups=3), nn.ConvTranspose2d(3, 5, 3), nn.Conv2d(3, 6, 1, groups=3)],
    ids=str,
)
def test_other_convolutions_keep_their_own(layer: nn.Module, taken: list[int]) -> None:
    inputs = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
    weights = torch.ones_like(layer(inputs))
    slopes = _slopes(layer, inputs, weights)
    assert taken == []
    exact = _slopes(layer.double(), inputs.double(), weights.double())
    torch.testing.assert_close(slopes.double(), exact, rtol=1e-4, atol=1e-5)


def test_gradients_of_weights_are_not_touched(taken: list[int]) -> None:
    layer = nn.Conv2d(3, 5, 5)
    inputs = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))
    with losses.fast_image_gradients(layer, inputs):
        layer(inputs.requires_grad_()).sum().backward()
    assert taken == []
    assert layer.weight.grad is not None


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(4560, 2)), SHAPE),
        (nn.Conv2d(3, 5, 3), SHAPE),
        (nn.Conv2d(3, 5, 5), (2, 3, 38, 40)),
        (nn.Conv2d(5, 5, 5), (8, 5, 38, 40)),
        (nn.Conv1d(3, 5, 25), (100, 3, 400)),
        (None, SHAPE),
    ],
    ids=["no convolution", "small windows", "few images", "many channels", "no images", "no model"],
)
def test_where_nothing_is_gained_nothing_is_watched(model: nn.Module | None, shape: tuple[int, ...]) -> None:
    assert isinstance(losses.fast_image_gradients(model, torch.zeros(shape)), nullcontext)


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_slopes_of_a_loss_on_the_papers_network(form: torch.memory_format, taken: list[int]) -> None:
    torch.manual_seed(5)
    loss = certus.ModelLoss(certus.models.mnist_cnn())
    images = torch.rand(48, 1, 28, 28)
    targets = torch.arange(48) % 10
    placed = images.to(memory_format=form).requires_grad_()
    _, slope = loss_and_slope(loss, placed, targets)
    assert taken == [1]
    _, exact = loss_and_slope(
        certus.ModelLoss(loss.model.double()), images.double().requires_grad_(), targets
    )
    torch.testing.assert_close(slope.double(), exact, rtol=1e-4, atol=1e-7)


def test_second_derivatives_go_through_it() -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(1, 4, 5), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 24 * 24, 2))
    images, targets = torch.rand(48, 1, 28, 28), torch.arange(48) % 2
    bent = []
    for dtype in (torch.float32, torch.float64):
        leaf = images.to(dtype).requires_grad_()
        _, slope = loss_and_slope(certus.ModelLoss(model.to(dtype)), leaf, targets, keep_graph=True)
        bent.append(torch.autograd.grad(slope.square().sum(), leaf)[0].double())
    torch.testing.assert_close(bent[0], bent[1], rtol=1e-3, atol=1e-7)
