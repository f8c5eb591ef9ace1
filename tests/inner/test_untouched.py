"""Whatever is solved, and whatever goes wrong, the model comes out exactly as it went in."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus import CrossEntropy, ModelLoss
from certus.inner import BarzilaiBorwein, PaperAscent

INPUTS = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 0, 1, 1, 0])


class Fragile(nn.Module):
    """Passes its input on, and raises at the call with the given number."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.fails_at = 0, 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the model broke")
        return inputs


def network() -> nn.Sequential:
    """Batch statistics and dropout, mixed modes, a frozen weight, gradients of an earlier step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ELU(), nn.Dropout(0.5), Fragile(), nn.Linear(8, 2)
    )
    model(INPUTS)
    model.train()
    model[1].eval()
    model[0].weight.requires_grad_(False)
    model[5].bias.grad = torch.full((2,), 7.0)
    return model


def snapshot(model: nn.Module) -> dict[str, object]:
    state: dict[str, object] = {f"state {name}": t.clone() for name, t in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state[f"grad {name}"] = None if parameter.grad is None else parameter.grad.clone()
        state[f"requires {name}"] = parameter.requires_grad
        state[f"identity {name}"] = id(parameter)
    for name, module in model.named_modules():
        state[f"mode {name}"] = module.training
    return state


def assert_same(before: dict[str, object], after: dict[str, object]) -> None:
    assert before.keys() == after.keys()
    for name, old in before.items():
        new = after[name]
        same = torch.equal(old, new) if isinstance(old, Tensor) and isinstance(new, Tensor) else old == new
        assert same, name


Work = Callable[[ModelLoss], object]
WORKS: dict[str, Work] = {
    "default": lambda loss: certus.WRM(1.0, maximizer=BarzilaiBorwein(1e-6)).solve(loss, INPUTS, TARGETS),
    "paper": lambda loss: certus.WRM(1.0, maximizer=PaperAscent(5)).solve(loss, INPUTS, TARGETS),
    "rho": lambda loss: certus.WRM(rho=0.1).solve(loss, INPUTS, TARGETS),
    "labels": lambda loss: certus.WRM(1.0, label_cost=certus.costs.LabelCost(0.1, 2)).solve(
        loss, INPUTS, TARGETS
    ),
    "curvature": lambda loss: certus.inner.largest_curvature(loss, INPUTS, TARGETS),
    "map": lambda loss: certus.inner.transport_map(loss, INPUTS, TARGETS, gamma=1.0),
}


@pytest.fixture
def loss() -> ModelLoss:
    return ModelLoss(network(), CrossEntropy())


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_success(work: Work, loss: ModelLoss) -> None:
    before = snapshot(loss.model)
    work(loss)
    assert_same(before, snapshot(loss.model))


@pytest.mark.parametrize("fails_at", [1, 2])
@pytest.mark.parametrize("work", [WORKS[name] for name in ("default", "paper", "rho", "labels")])
def test_failure(work: Work, fails_at: int, loss: ModelLoss) -> None:
    before = snapshot(loss.model)
    fragile = loss.model.get_submodule("4")
    assert isinstance(fragile, Fragile)
    fragile.calls, fragile.fails_at = 0, fails_at
    with pytest.raises(RuntimeError, match="the model broke"):
        work(loss)
    assert_same(before, snapshot(loss.model))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference"])
def test_callers_may_have_gradients_switched_off(context: Callable[[], object], loss: ModelLoss) -> None:
    expected = certus.WRM(1.0).solve(loss, INPUTS, TARGETS)
    with context():  # type: ignore[attr-defined]  # both are context managers
        found = certus.WRM(1.0).solve(loss, INPUTS.clone(), TARGETS.clone())
    torch.testing.assert_close(found.inputs, expected.inputs)
    torch.testing.assert_close(found.value, expected.value)


GLOBAL_MODEL = network()


class Keeper:
    """A loss that keeps its model in a list, behind a function."""

    def __init__(self, model: nn.Module) -> None:
        self.parts = [{"model": model}]

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(self.parts[0]["model"](inputs), targets, reduction="none")

    def method(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self(inputs, targets)


def plain(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), targets, reduction="none")


def nested(inputs: Tensor, targets: Tensor) -> Tensor:
    return plain(GLOBAL_MODEL, inputs, targets)


def hidings() -> dict[str, tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]]:
    """Models, and losses that refer to them in the ways that Python has."""
    local, kept = network(), network()
    return {
        "closure": (local, lambda x, y: plain(local, x, y)),
        "global": (GLOBAL_MODEL, lambda x, y: plain(GLOBAL_MODEL, x, y)),
        "function that calls a function": (GLOBAL_MODEL, lambda x, y: nested(x, y)),
        "default": (local, lambda x, y, model=local: plain(model, x, y)),  # type: ignore[misc]  # mypy infers no default
        "partial": (local, functools.partial(plain, local)),
        "object": (kept, Keeper(kept)),
        "method": (kept, Keeper(kept).method),
        "inner function": (local, lambda x, y: (lambda: plain(local, x, y))()),
    }


@pytest.mark.parametrize("name", hidings())
def test_models_that_a_loss_refers_to_are_found(name: str) -> None:
    """Each as safe as ``ModelLoss``."""
    model, loss = hidings()[name]
    before = snapshot(model)
    found = certus.WRM(1.0).solve(loss, INPUTS, TARGETS)
    assert_same(before, snapshot(model))
    expected = certus.WRM(1.0).solve(ModelLoss(model), INPUTS, TARGETS)
    assert torch.equal(found.inputs, expected.inputs)


def test_nothing_global_is_installed() -> None:
    seen = []

    def loss(inputs: Tensor) -> Tensor:
        seen.append(len(torch.nn.modules.module._global_forward_pre_hooks))
        return (inputs**2).sum(1)

    certus.WRM(1.0).solve(loss, INPUTS)
    assert seen
    assert not any(seen)


def test_the_callers_inputs_are_not_changed(loss: ModelLoss) -> None:
    inputs = INPUTS.clone().requires_grad_()
    certus.WRM(1.0)(loss, inputs, TARGETS)
    assert torch.equal(inputs, INPUTS)
    assert inputs.grad is None
    assert inputs.requires_grad


def test_the_ascent_uses_evaluation_statistics(loss: ModelLoss) -> None:
    """One sample alone moves as it does in a batch, which batch statistics or dropout would prevent."""
    together = certus.inner.transport_map(loss, INPUTS, TARGETS, gamma=1.0)
    alone = [
        certus.inner.transport_map(loss, INPUTS[i : i + 1], TARGETS[i : i + 1], gamma=1.0)
        for i in range(len(INPUTS))
    ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)
