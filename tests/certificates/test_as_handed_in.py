"""What is certified is the model as it was handed in: wrappers, hooks, precision, labels, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certus
from certus.errors import CertusError, UnreadableModelError

INPUTS = torch.randn(120, 1, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


def signs(scale: float = 3.0) -> nn.Sequential:
    """Right on all samples for a positive scale, wrong on all for a negative one."""
    layer = nn.Linear(1, 2, bias=False)
    layer.weight.data = torch.tensor([[-scale], [scale]])
    return nn.Sequential(layer)


def subclass() -> nn.Module:
    class Negated(nn.DataParallel):  # type: ignore[type-arg]
        def forward(self, *inputs: Any) -> Tensor:
            outputs: Tensor = -self.module(*inputs)
            return outputs

    return Negated(signs())


def own_forward() -> nn.Module:
    inner = signs()
    wrapper: Any = nn.DataParallel(inner)
    wrapper.forward = lambda inputs: -inner(inputs)
    assert isinstance(wrapper, nn.Module)
    return wrapper


def compiled_with_forward() -> nn.Module:
    inner = signs()
    wrapper = torch.compile(inner, backend="eager")
    assert isinstance(wrapper, nn.Module)
    wrapper.forward = lambda inputs: -inner(inputs)
    return wrapper


def own_backend() -> nn.Module:
    def negating(graph: Any, example: Any) -> Callable[..., Any]:
        return lambda *inputs: [-each for each in graph(*inputs)]

    wrapper = torch.compile(signs(), backend=negating)
    assert isinstance(wrapper, nn.Module)
    return wrapper


WRAPPERS = [subclass, own_forward, compiled_with_forward, own_backend]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of dynamo, where an attack climbs
@pytest.mark.parametrize("make", WRAPPERS)
@pytest.mark.parametrize("options", [{}, {"sigma": 0.25, "draws": 20}])
def test_a_wrapper_that_computes_otherwise(make: Callable[[], nn.Module], options: dict[str, Any]) -> None:
    """It errs on every sample: whatever is certified must allow for that."""
    model = make()
    assert bool((model(INPUTS).argmax(1) != LABELS).all())
    try:
        way: Any = certus.certify_smoothed if options else certus.certify
        certificate = way(model, (INPUTS, LABELS), rho=0.01, progress=False, **options)
    except CertusError:
        return
    bound = certificate.bound(0.01) if options else certificate.error_bound(0.01)
    assert bound is None or bound == 1.0


@pytest.mark.parametrize("make", [compiled_with_forward, own_backend])
def test_its_smoothness_is_not_proven(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(CertusError):
        certus.input_smoothness(make(), input_shape=(1,))


def test_hooks_of_a_compiled_model_are_refused() -> None:
    model = torch.compile(signs(-3.0), backend="eager")
    assert isinstance(model, nn.Module)
    model.register_forward_hook(lambda module, inputs, outputs: -outputs)
    assert bool((model(INPUTS).argmax(1) == LABELS).all())
    with pytest.raises(UnreadableModelError, match="hooks"):
        certus.certify(model, (INPUTS, LABELS), rho=1e-12, progress=False)


def test_losses_of_a_criterion_without_a_rule_are_those_of_the_models_own_precision() -> None:
    """2²⁷ is added, and taken off again: the sign of x is lost in float32, and kept in float64."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 2))
    with torch.no_grad():
        for name, value in (("0.weight", 1.0), ("0.bias", 2.0**27)):
            model.get_parameter(name).fill_(value)
        model.get_parameter("1.weight").copy_(torch.tensor([[0.0], [1.0]]))
        model.get_parameter("1.bias").copy_(torch.tensor([0.0, -(2.0**27)]))
        outputs = model(INPUTS)
    exact = torch.cat([torch.zeros_like(INPUTS), INPUTS], 1)
    hinge, labels = nn.MultiMarginLoss(reduction="none"), torch.zeros_like(LABELS)
    own = float(hinge(outputs, labels).mean())
    assert own != pytest.approx(float(hinge(exact, labels).mean()), rel=1e-3)
    certificate = certus.certify(model, (INPUTS, labels), rho=0.0, criterion=hinge, progress=False)
    assert certificate.lower(0.0) == pytest.approx(own, rel=1e-6)


class Labelled:
    """An estimator that predicts one of its classes, in any order, by the sign."""

    def __init__(self, classes: list[Any], negative: Any, positive: Any) -> None:
        self.classes_, self._answers = np.array(classes), np.array([negative, positive])

    def predict(self, rows: Any) -> Any:
        return self._answers[(np.asarray(rows)[:, 0] > 0).astype(int)]


@pytest.mark.parametrize(
    ("classes", "answers", "targets"),
    [
        ([1, 0], (1, 0), (0, 1)),  # classes in another order
        (["b", "a"], ("b", "a"), ("a", "b")),
        ([0, 1], (7, 7), (9, 9)),  # neither label is known
        (["no", "yes"], ("never", "never"), ("yes ", "yes ")),
    ],
)
def test_a_model_that_errs_on_every_row(classes: list[Any], answers: Any, targets: Any) -> None:
    rows = INPUTS.double().numpy()
    labels = np.array(targets)[(rows[:, 0] > 0).astype(int)]
    model = Labelled(classes, *answers)
    assert not (model.predict(rows) == labels).any()
    certificate = certus.certify_smoothed(
        model, (rows, labels), rho=0.01, sigma=0.05, draws=50, progress=False
    )
    assert certificate.bound(0.01) > 0.9


class RandomShift(nn.Module):
    """One random number for each call, and scores so small that they hardly differ."""

    def __init__(self, dtype: torch.dtype, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale, dtype=dtype))

    def forward(self, inputs: Tensor) -> Tensor:
        score = (inputs + torch.randn((), dtype=inputs.dtype)) * self.scale
        return torch.cat([-score, score], 1)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05), (torch.float64, 1e-10)]
)
def test_a_module_with_a_random_number_for_each_call_is_refused(dtype: torch.dtype, scale: float) -> None:
    torch.manual_seed(0)
    rows = torch.full((100, 1), 0.3)
    with pytest.raises(CertusError, match="must be deterministic"):
        certus.certify_smoothed(
            RandomShift(dtype, scale),
            (rows, torch.ones(100).long()),
            rho=1e-4,
            sigma=0.25,
            draws=20,
            progress=False,
        )
