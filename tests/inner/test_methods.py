"""One interface for all methods: what they leave of a batch, their γ and their state."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import WRM, ModelLoss, fit
from certus.attacks import FGSM, PGD
from certus.errors import ArgumentError
from certus.inner.methods import ERM, FunctionMethod, Method, as_method
from certus.losses import AnyLoss

INPUTS = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
TARGETS = torch.tensor([0, 1, 0, 1, 1, 0])


def loss() -> ModelLoss:
    torch.manual_seed(0)
    return ModelLoss(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))


METHODS: dict[str, Method] = {"erm": ERM(), "fgsm": FGSM(0.1), "pgd": PGD(0.1, 2.0), "wrm": WRM(1.0)}


@pytest.mark.parametrize("name", METHODS)
def test_perturb_and_call_agree(name: str) -> None:
    method = METHODS[name]
    torch.manual_seed(0)
    moved = method(loss(), INPUTS, TARGETS)
    torch.manual_seed(0)
    found = method.perturb(loss(), INPUTS, TARGETS)
    assert torch.equal(found.inputs, moved)
    assert found.targets is not None
    assert torch.equal(found.targets, TARGETS)
    assert not found.inputs.requires_grad
    assert all(values.shape == (6,) for values in found.measured.values())


def test_measurements() -> None:
    assert METHODS["erm"].perturb(loss(), INPUTS, TARGETS).measured == {}
    found = METHODS["fgsm"].perturb(loss(), INPUTS, TARGETS)
    torch.testing.assert_close(found.measured["rho_running"], torch.full((6,), 3 * 0.1**2))
    told = METHODS["wrm"].perturb(loss(), INPUTS, TARGETS).measured
    solved = WRM(1.0).solve(loss(), INPUTS, TARGETS)
    assert torch.equal(told["phi"], solved.value)
    assert torch.equal(told["rho_running"], solved.transport_cost)


def test_labels_that_move_come_with_the_inputs() -> None:
    wrm = WRM(0.01, label_cost=certus.costs.LabelCost(0.1, 2))
    found = wrm.perturb(loss(), INPUTS, TARGETS)
    assert found.targets is not None
    assert bool((found.targets != TARGETS).any())


def test_only_a_penalty_has_a_gamma_and_a_state() -> None:
    assert [name for name, method in METHODS.items() if method.penalty is not None] == ["wrm"]
    for name in ("erm", "fgsm"):
        assert METHODS[name].state_dict() == {}
        METHODS[name].load_state_dict({})
        assert METHODS[name].train(False) is METHODS[name]
        with pytest.raises(
            ArgumentError, match=r"`state` must be empty for a method without state; got \['g"
        ):
            METHODS[name].load_state_dict({"gamma": 1.0})


def test_careful_holds_gamma_and_measures_more_precisely() -> None:
    wrm = WRM(rho=0.01)
    wrm(loss(), INPUTS, TARGETS)
    careful = wrm.careful()
    assert careful.gamma == wrm.gamma
    careful(loss(), INPUTS, TARGETS)
    assert careful.gamma == wrm.gamma
    assert float(careful.solve(loss(), INPUTS, TARGETS).gap.max()) <= 1e-4


def shifted(loss: AnyLoss, inputs: Tensor, targets: Tensor | None) -> Tensor:
    return inputs + 1.0


def test_a_function_is_a_method() -> None:
    made = as_method(shifted)
    assert isinstance(made, FunctionMethod)
    assert torch.equal(made(loss(), INPUTS, TARGETS), INPUTS + 1.0)
    data = certus.data.Samples(INPUTS, TARGETS)
    one, other = (nn.Linear(3, 2) for _ in range(2))
    other.load_state_dict(one.state_dict())
    fit(one, data, method=shifted, epochs=1)
    fit(other, certus.data.Samples(INPUTS + 1.0, TARGETS), epochs=1)
    torch.testing.assert_close(one.weight, other.weight)


def test_a_name_is_no_method() -> None:
    rule = r"`method` must be an object, certus\.WRM\(gamma=\.\.\.\) or .*; got 'wrm'"
    with pytest.raises(ArgumentError, match=rule):
        fit(nn.Linear(3, 2), certus.data.Samples(INPUTS, TARGETS), method="wrm")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["gradient", 3.0, WRM])
def test_values_that_are_not_methods_are_refused(method: object) -> None:
    data = certus.data.Samples(INPUTS, TARGETS)
    with pytest.raises(ArgumentError, match=r"`method` must be a method, such as certus.WRM\(gamma=2.0\)"):
        fit(nn.Linear(3, 2), data, method=method)  # type: ignore[arg-type]
