"""Models in the wrappers of torch: compiled, and spread over processes, they are the module inside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

import certus
from certus import WRM, ModelLoss
from certus.attacks import PGD
from certus.attacks.evaluation import evaluate
from certus.data import Samples
from certus.errors import UnreadableModelError

# The compiler hides a warning of its own by a filter.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)

INPUTS = torch.randn(24, 2, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] * INPUTS[:, 1] > 0).long()

Wrap = Callable[[nn.Module], nn.Module]


def dense() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 8), nn.ELU(), nn.Linear(8, 2))


def compiled(model: nn.Module) -> nn.Module:
    wrapped = torch.compile(model, backend="eager")
    assert isinstance(wrapped, nn.Module)
    return wrapped


WRAPPERS: dict[str, Wrap] = {
    "compiled": compiled,
    "distributed": lambda model: DistributedDataParallel(model),
    "both": lambda model: compiled(DistributedDataParallel(model)),
    "parallel": lambda model: DataParallel(model),
}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path) -> Iterator[None]:
    """One process that believes to be one of several."""
    address = f"file://{tmp_path / 'meeting'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    torch.compiler.reset()
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", WRAPPERS)
def test_certified_as_the_module_inside(name: str) -> None:
    model = dense()
    plain = certus.certify(model, (INPUTS, TARGETS), rho=0.01, progress=False)
    wrapped = certus.certify(WRAPPERS[name](model), (INPUTS, TARGETS), rho=0.01, progress=False)
    assert wrapped.evidence == "proven"
    assert wrapped.curve() == plain.curve()
    assert certus.bounds.validate(WRAPPERS[name](model), (2,)) == []


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("certified", [False, True])
def test_trained_as_the_module_inside(name: str, certified: bool) -> None:
    plain, inner = dense(), dense()
    wrapped = WRAPPERS[name](inner)
    for model in (plain, wrapped):
        trained = certus.fit(
            model,
            (INPUTS, TARGETS),
            method=WRM(gamma=3.0),
            epochs=2,
            batch_size=8,
            weight_decay={"2": 0.1},
            certified=certus.training.CertifiedTraining() if certified else None,
            progress=False,
        )
        assert trained.model is model
        assert (trained.proof is not None) is certified
        assert not any(part.training for part in model.modules())
    for one, other in zip(plain.parameters(), inner.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", WRAPPERS)
def test_attacked_as_the_module_inside(name: str) -> None:
    model = dense()
    loss, wrapped = ModelLoss(model), ModelLoss(WRAPPERS[name](model))
    for attack in (WRM(gamma=2.0), PGD(0.3, 2.0, steps=4)):
        torch.manual_seed(3)
        moved = attack(loss, INPUTS, TARGETS)
        torch.manual_seed(3)
        torch.testing.assert_close(attack(wrapped, INPUTS, TARGETS), moved)
    data = Samples(INPUTS, TARGETS)
    expected, outcome = (evaluate(each.model, data, PGD(0.3, 2.0, steps=4)) for each in (loss, wrapped))
    torch.testing.assert_close(outcome.losses, expected.losses)


def test_a_loop_of_ones_own_still_exchanges_gradients() -> None:
    model = DistributedDataParallel(dense())
    loss, wrm = ModelLoss(model), WRM(gamma=2.0)
    plain = copy.deepcopy(model.module)
    for _ in range(2):
        loss(wrm(loss, INPUTS, TARGETS), TARGETS).mean().backward()
    assert model.require_backward_grad_sync
    own = ModelLoss(plain)
    for _ in range(2):
        own(wrm(own, INPUTS, TARGETS), TARGETS).mean().backward()
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_hooks_of_a_wrapper_are_not_lost() -> None:
    """They change what the wrapper computes: nothing is proven of it."""
    model = DataParallel(dense())
    model.register_forward_hook(lambda module, inputs, outputs: -outputs)
    with pytest.raises(UnreadableModelError, match="certify_smoothed"):
        certus.certify(model, (INPUTS, TARGETS), rho=0.01, progress=False)
