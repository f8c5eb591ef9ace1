"""Models whose answer for one sample depends on the batch around it, on memory that layers share, or on a
precision: refused, or read as they are."""

# mypy: disable-error-code="no-any-return, arg-type, index, operator"

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import certus
from certus.bounds import Analysis
from certus.errors import UnsupportedError

Forward = Callable[[Tensor], Tensor]


class Does(nn.Module):
    """A function, and a linear layer behind it."""

    def __init__(self, function: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function, self.last = function, nn.Linear(4, 3).double().requires_grad_(False)
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(
            self.function(x, **{name: each for name, each in self._modules.items() if name != "last"})
        )


TIED: dict[str, tuple[Forward, str]] = {
    # Each is right for the batches that a reading tries, and another function for others.
    "a batch of one": (lambda x: x if x.shape[0] > 1 else 10 * x, "differ for a batch of one"),
    "no batch of one": (lambda x: x.squeeze(), "differ for a batch of one"),
    "rows from the eleventh on": (
        lambda x: x * (100 - 99 * torch.ones(x.shape[0], 4, dtype=x.dtype).triu(-10)),
        "triu.*may depend on the batch size",
    ),
    "more than ten": (
        lambda x: x * (1 + torch.full((4,), torch.sym_max(0, x.shape[0] - 10), dtype=x.dtype)),
        "full.*a number that depends on the batch size",
    ),
    "rolled by the batch": (
        lambda x: x.reshape(-1, 2, 2).roll(x.shape[0], 2).flatten(1),
        "roll.*a number that depends on the batch size",
    ),
    "35 samples on": (lambda x: torch.roll(x, 35, dims=-2), "roll.*outputs that mix samples of a batch"),
    "35 samples on, flattened": (lambda x: torch.roll(x, 140), "roll.*outputs that mix samples of a batch"),
}


@pytest.mark.parametrize("name", TIED)
def test_samples_that_depend_on_the_batch_are_refused(name: str) -> None:
    function, message = TIED[name]
    with pytest.raises(UnsupportedError, match=message):
        certus.input_smoothness(Does(function), input_shape=(4,))


def test_sizes_of_a_batch_that_are_sizes_only() -> None:
    def function(x: Tensor) -> Tensor:
        batch = x.shape[0]
        moved = x * x.new_ones(batch, 4) * 2 + torch.zeros(batch, 4, dtype=x.dtype)
        return moved.reshape(batch, 2, 2).expand(batch, 2, 2).flatten(1) + torch.full((batch, 1), 3.0)

    model = Does(function)
    found = certus.input_smoothness(model, input_shape=(4,))
    assert found.output_lipschitz == pytest.approx(2 * float(torch.linalg.matrix_norm(model.last.weight, 2)))


def test_an_input_spread_to_another_of_them() -> None:
    model = Does(lambda x: x[:, :1].expand_as(x))
    found = certus.input_smoothness(model, input_shape=(4,))
    assert found.output_lipschitz == pytest.approx(float(model.last.weight.sum(1).norm()))


FAR = 1e8  # beyond every point at which a reading is tried


def _steep_far_out(x: Tensor, hand_on: Forward) -> Tensor:
    """Written over through another name: 50 times as steep below −10⁸."""
    x = x * 1.0
    other = hand_on(x)
    other.add_(FAR)
    F.leaky_relu_(other, 50.0)
    other.sub_(FAR)
    return x


SHARING: dict[str, Callable[[], nn.Module | Forward]] = {
    "identity": nn.Identity,
    "flatten": nn.Flatten,
    "dropout": lambda: nn.Dropout(0.5),
    "alpha dropout": lambda: nn.AlphaDropout(0.5),
    "a function": lambda: lambda x: F.dropout(x, 0.5, False),
}


@pytest.mark.parametrize("name", SHARING)
def test_memory_that_two_names_share(name: str) -> None:
    made = SHARING[name]()
    if isinstance(made, nn.Module):
        model = Does(lambda x, layer: _steep_far_out(x, layer), layer=made).eval()
    else:
        model = Does(lambda x: _steep_far_out(x, made)).eval()
    found = certus.input_smoothness(model, input_shape=(4,))
    points = torch.full((1, 4), -3 * FAR, dtype=torch.float64)
    with torch.no_grad():
        there, beside = model(points), model(points + torch.tensor([1.0, 0, 0, 0]))
    slope = float((there - beside).norm())
    assert slope == pytest.approx(50 * float(model.last.weight[:, 0].norm()), rel=1e-5)
    assert slope <= found.output_lipschitz


def test_layers_that_drop_in_training_are_read_through() -> None:
    layers = {
        "one": nn.AlphaDropout(0.5),
        "two": nn.FeatureAlphaDropout(0.5),
        "three": nn.Dropout(1.0),
        "four": nn.ELU(inplace=True),
        "five": nn.Dropout(0.5, inplace=True),
    }

    def function(x: Tensor, **layers: nn.Module) -> Tensor:
        for layer in layers.values():
            x = layer(x)
        return x

    model = Does(function, **layers)
    network = Analysis(model, input_shape=(4,)).graph.apply
    points = torch.randn(9, 4, dtype=torch.float64)
    torch.testing.assert_close(network(points), model.last(F.elu(points)), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", [torch.int64, torch.float16, torch.bfloat16], ids=str)
def test_a_copy_that_rounds_is_refused(kind: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        other = torch.zeros_like(x, dtype=kind)
        other.copy_(x * 2**30)  # off by 10⁻⁹ of a unit in whole numbers: no point tells
        return other.double() / 2**30

    with pytest.raises(UnsupportedError, match=rf"copy.*outputs in {kind}, which rounds"):
        certus.input_smoothness(Does(function), input_shape=(4,))


class Coarse(nn.Linear):
    """Cannot run in float64, and is a tenth off what its graph says."""

    def forward(self, x: Tensor) -> Tensor:
        outputs = F.linear(x, self.weight, self.bias)
        if isinstance(x, FakeTensor):
            return outputs
        assert x.dtype == torch.bfloat16
        return 1.1 * outputs


def test_a_model_that_runs_in_bfloat16_alone_is_refused() -> None:
    torch.manual_seed(0)
    model = Coarse(4, 3).to(torch.bfloat16)
    with pytest.raises(UnsupportedError, match=r"runs only in torch\.bfloat16, which is too coarse"):
        certus.input_smoothness(model, input_shape=(4,))
    plain = nn.Linear(4, 3).to(torch.bfloat16)  # of which a copy runs in float64
    assert certus.input_smoothness(plain, input_shape=(4,)).curvature > 0
