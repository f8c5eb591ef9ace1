"""The model as its caller has it, beside what was read of it: at the samples, and where they are moved to."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.compiler import is_compiling as being_compiled

import certus
from certus.certificates import Certificate
from certus.certificates.files import as_json
from certus.errors import UnreadableModelError
from certus.losses import SquaredError
from tests.certificates.problems import certify_exactly

HEIGHT = 100.0


def linear() -> nn.Linear:
    """Two logits, 0 and −x₀: loss ln(1 + exp(−x₀)) at label 0, which falls to the right."""
    layer = nn.Linear(2, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 0.0], [-1.0, 0.0]]))
        layer.bias.zero_()
    return layer


def hidden(points: Tensor, outputs: Tensor, low: float, high: float) -> Tensor:
    """A loss of about 100 at label 0 in a band of x₀."""
    inside = ((points[:, :1] > low) & (points[:, :1] < high)).to(outputs)
    return outputs + HEIGHT * inside * torch.tensor([[0.0, 1.0]]).to(outputs)


class Asks(nn.Module):
    """Computes something else while its graph is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, points: Tensor) -> Tensor:
        outputs: Tensor = self.layer(points)
        return outputs if torch.compiler.is_exporting() else hidden(points, outputs, 2.0, 2.5)


class AsksByAnotherName(Asks):
    def forward(self, points: Tensor) -> Tensor:
        outputs: Tensor = self.layer(points)
        return outputs if being_compiled() else hidden(points, outputs, 2.0, 2.5)


class AsksInAMethod(Asks):
    def _other(self) -> bool:
        return torch.compiler.is_compiling()

    def forward(self, points: Tensor) -> Tensor:
        outputs: Tensor = self.layer(points)
        return outputs if self._other() else hidden(points, outputs, 2.0, 2.5)


@pytest.mark.parametrize("kind", [Asks, AsksByAnotherName, AsksInAMethod])
def test_nothing_is_proven_of_a_forward_that_asks_whether_it_is_traced(kind: type[nn.Module]) -> None:
    """The samples stand beside the band, and a move of 1 leads into it: nothing below its height holds."""
    model = nn.Sequential(kind())
    inputs, labels = torch.full((5, 2), 1.5, dtype=torch.float64), torch.zeros(5, dtype=torch.long)
    moved = inputs + torch.tensor([0.75, 0.0])
    assert nn.functional.cross_entropy(model(moved), labels) > HEIGHT / 2
    with pytest.raises(UnreadableModelError, match="is_"):
        certus.certify(model, (inputs, labels), rho=1.0, progress=False)


class Unseen(nn.Module):
    """Looks at the kind of its inputs instead, which no reader of its code finds out."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.layer, self.low, self.high = linear(), low, high

    def forward(self, points: Tensor) -> Tensor:
        outputs: Tensor = self.layer(points)
        return outputs if isinstance(points, FakeTensor) else hidden(points, outputs, self.low, self.high)


@pytest.mark.parametrize("band", [(1.4, 1.6), (1.0, 1.35)], ids=["at a sample", "where it is moved to"])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32], ids=str)
def test_a_model_that_computes_something_else_where_it_counts_raises_the_alarm(
    band: tuple[float, float], kind: torch.dtype
) -> None:
    model = Unseen(*band).to(kind)
    inputs, labels = torch.full((5, 2), 1.5, dtype=torch.float64), torch.zeros(5, dtype=torch.long)
    with pytest.raises(certus.errors.ContradictionError, match="differ from those of its layers"):
        certus.certify(model, (inputs, labels), rho=0.09, progress=False)


def test_a_regression_is_asked_too() -> None:
    class Number(Unseen):
        def forward(self, points: Tensor) -> Tensor:
            return super().forward(points)[:, 1:]

    inputs, targets = torch.full((5, 2), 1.5, dtype=torch.float64), torch.full((5,), -1.5).double()
    for band in ((1.4, 1.6), (1.65, 2.0)):
        with pytest.raises(certus.errors.ContradictionError, match="differ from those of its layers"):
            certus.certify(
                Number(*band), (inputs, targets + 0.01), rho=0.09, criterion=SquaredError(), progress=False
            )


def test_later_changes_of_the_model_have_no_effect() -> None:
    model, inputs = nn.Sequential(linear(), nn.Tanh(), nn.Linear(2, 2).double()), torch.ones(4, 2).double()
    certificate = certus.certify(model, (inputs, torch.zeros(4).long()), rho=0.1, progress=False)
    with torch.no_grad():
        model.get_parameter("0.weight").mul_(-3)
    found, _ = certificate.worst_case_data(0.1)
    assert found.inputs.shape[1] == 2


class Twisted(torch.Tensor):
    """A tensor that is another one in a linear layer, at some inputs."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        outputs = super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]  # torch's
        if function is nn.functional.linear and not isinstance(args[0], FakeTensor):
            return hidden(args[0], outputs.as_subclass(Tensor), 2.0, 2.5)
        return outputs


def with_twisted_weight() -> nn.Linear:
    layer = linear()
    layer.weight = nn.Parameter(layer.weight.detach().as_subclass(Twisted))
    return layer


def with_twisted_attribute() -> nn.Linear:
    layer = linear()
    weight = layer.weight.detach().as_subclass(Twisted)
    del layer.weight
    layer.weight = weight
    return layer


def with_twisted_buffer() -> nn.Module:
    module = nn.Sequential(linear())
    module.register_buffer("unused", torch.ones(1).as_subclass(Twisted))
    return module


@pytest.mark.parametrize("make", [with_twisted_weight, with_twisted_attribute, with_twisted_buffer])
@pytest.mark.parametrize("way", [certus.certify, certify_exactly], ids=["certify", "linear"])
def test_tensors_of_another_class_are_refused(
    make: Callable[[], nn.Module], way: Callable[..., Certificate]
) -> None:
    model = make()
    inputs, labels = torch.full((5, 2), 1.5, dtype=torch.float64), torch.zeros(5, dtype=torch.long)
    with pytest.raises(UnreadableModelError, match=r"Twisted|functions"):
        way(model, (inputs, labels), rho=1.0)


def test_a_lazy_layer_is_refused() -> None:
    with pytest.raises(certus.CertusError, match="UninitializedParameter"):
        certus.bounds.input_smoothness(nn.Sequential(nn.LazyLinear(2)), input_shape=(2,))


def offset(seed: int) -> tuple[nn.Sequential, Tensor, Tensor]:
    """A float32 network that adds 2²⁷ to its inputs and takes it off again: exact in float64 alone."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        model.get_parameter("0.weight").copy_(torch.eye(2))
        model.get_parameter("0.bias").fill_(2.0**27)
        model.get_parameter("1.weight").copy_(torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))
        model.get_parameter("1.bias").zero_()
    inputs = torch.randn(200, 2)
    return model, inputs, (inputs[:, 1] > inputs[:, 0]).long()


@pytest.mark.parametrize("seed", [0, 1])
def test_rows_that_the_float32_model_predicts_otherwise_are_counted(seed: int) -> None:
    model, inputs, labels = offset(seed)
    with torch.no_grad():
        own, exact = model(inputs).argmax(1), copy.deepcopy(model).double()(inputs.double()).argmax(1)
    count = int((own != exact).sum())
    assert count > 20
    for way in (certus.certify, certify_exactly):
        certificate = way(model, (inputs, labels), rho=0.01)
        assert certificate.differing_predictions == count
        # The rate that is proven is that of the network in float64: it may be far from the model's own.
        bound = certificate.error_bound(0.01)
        assert bound is not None
        assert float((own != labels).double().mean()) <= bound + count / len(inputs)
        assert str(count) in str(certificate)
        assert as_json(certificate)["differing_predictions"] == count


def test_the_count_of_a_file_is_that_of_the_certificate(tmp_path: Path) -> None:
    model, inputs, labels = offset(0)
    certificate = certus.certify(model, (inputs, labels), rho=0.01, progress=False)
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(as_json(certificate)))
    assert Certificate.load(path).differing_predictions == certificate.differing_predictions > 0


def test_a_regression_counts_values_that_differ() -> None:
    model, inputs, _ = offset(0)
    model = nn.Sequential(*model, nn.Linear(2, 1))
    targets = torch.zeros(200)
    certificate = certus.certify(model, (inputs, targets), rho=0.01, criterion=SquaredError(), progress=False)
    with torch.no_grad():
        off = model(inputs) - copy.deepcopy(model).double()(inputs.double())
    assert 0 < certificate.differing_predictions <= 200
    assert certificate.differing_predictions >= int((off.abs() > 0.1).sum())


def test_an_ordinary_network_counts_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 3), nn.LogSoftmax(1))
    inputs = torch.randn(50, 2)
    certificate = certus.certify(
        model, (np.asarray(inputs), torch.zeros(50).long()), rho=0.01, progress=False
    )
    assert certificate.differing_predictions == 0
    assert "differing_predictions" not in as_json(certificate)
