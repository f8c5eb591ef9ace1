"""Models that are not what their layers say, and settings that no bound covers: refused, or read right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import certus
from certus.bounds import Analysis
from certus.layers import LogCosh, Residual


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Sequential(nn.Linear(2, 4), nn.Tanh()), nn.Linear(4, 3))


def test_negative_sharpness_is_refused() -> None:
    for beta in (-1.0, -0.1, 0.0):
        with pytest.raises(certus.errors.UnsupportedError, match="must be positive and finite"):
            certus.input_smoothness(nn.Sequential(nn.Linear(1, 1), nn.Softplus(beta=beta), nn.Linear(1, 2)))
    model = nn.Sequential(nn.Linear(2, 4), LogCosh(2.0), nn.Linear(4, 3))
    model[1].sharpness.fill_(-1.0)  # type: ignore[operator]
    with pytest.raises(certus.errors.UnsupportedError, match="must be positive and finite"):
        certus.input_smoothness(model)


def test_a_sharpness_for_other_units_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 1), LogCosh(torch.tensor([1.0, 2.0, 3.0])), nn.Linear(1, 2))
    with pytest.raises(
        certus.errors.ArgumentError, match=r"`sharpness` must fit units of shape \(1,\); got shape"
    ):
        certus.input_smoothness(model)


def test_a_layer_used_twice_counts_twice() -> None:
    shared = nn.Linear(2, 2, bias=False)
    shared.weight.data.copy_(3 * torch.eye(2))
    last = nn.Linear(2, 2)
    last.weight.data.copy_(torch.eye(2))
    last.bias.data.fill_(1e4)
    bound = certus.input_smoothness(nn.Sequential(shared, shared, last))
    assert bound.curvature == pytest.approx(81 * 2 / 4, rel=1e-6)  # D²/4, D = 9√2
    activation = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 2), activation, nn.Linear(2, 2), activation)
    assert [found.path for found in certus.bounds.validate(model)] == ["1", "3"]
    assert certus.bounds.validate(certus.bounds.smooth(model)) == []


def far_out(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return output + 100 * torch.relu(inputs[0].sum(1, keepdim=True) - 9) ** 2


def test_hooks_and_functions_of_its_own_are_refused() -> None:
    model = small()
    model[0].register_forward_hook(far_out)
    with pytest.raises(certus.errors.UnsupportedError, match="The container 0 has hooks"):
        certus.input_smoothness(model)
    assert [found.path for found in certus.bounds.validate(model)] == ["0"]
    model = small()
    model[1].forward = lambda points: points[:, :3]
    with pytest.raises(certus.errors.UnsupportedError, match="replaced methods"):
        certus.input_smoothness(model)


class _Call(nn.Linear):
    def _call_impl(self, points: Tensor) -> Tensor:
        return far_out(self, (points,), self.forward(points))


class _Attribute(nn.Linear):
    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        return (lambda points: far_out(self, (points,), found(points))) if name == "forward" else found


class _Twice(nn.Sequential):
    def __iter__(self) -> Iterator[nn.Module]:
        return iter([*self._modules.values(), nn.Hardtanh(-1e3, 1e3)])


@pytest.mark.parametrize("kind", [_Call, _Attribute])
def test_calls_that_are_not_torchs_own_are_refused(kind: type[nn.Linear]) -> None:
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), kind(4, 3))
    with pytest.raises(certus.errors.UnsupportedError, match=r"layer 2 \(.*\) has .* replaced methods"):
        certus.input_smoothness(model)
    assert [found.path for found in certus.bounds.validate(model)] == ["2"]


@pytest.mark.parametrize(
    "name",
    [
        *("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "__getattribute__", "__getattr__"),
        "_conv_forward",
    ],
)
def test_each_function_that_torch_calls_counts(name: str) -> None:
    """Even one that only passes on what it is given: what it does is not known."""
    torchs = getattr(nn.Conv1d, name)
    kind = type("Own", (nn.Conv1d,), {name: lambda self, *given: torchs(self, *given)})
    layers = [nn.Flatten(), nn.Linear(2, 2)]
    with pytest.raises(certus.errors.UnsupportedError, match="replaced methods"):
        certus.input_smoothness(nn.Sequential(kind(1, 1, 2), *layers), input_shape=(1, 3))
    plain = type("Own", (nn.Conv1d,), {})
    assert certus.input_smoothness(nn.Sequential(plain(1, 1, 2), *layers), input_shape=(1, 3)).lipschitz > 0


def before_it(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (far_out(module, inputs, inputs[0]),)


def test_hooks_that_run_before_are_refused() -> None:
    model = small()
    model[0].register_forward_pre_hook(before_it)
    with pytest.raises(certus.errors.UnsupportedError, match="The container 0 has hooks"):
        certus.input_smoothness(model)
    hook = register_module_forward_pre_hook(before_it)  # type: ignore[arg-type]  # may return inputs
    try:
        with pytest.raises(certus.errors.UnsupportedError, match="has hooks"):
            certus.input_smoothness(small())
    finally:
        hook.remove()


def test_a_container_that_runs_more_than_it_holds_is_refused() -> None:
    with pytest.raises(certus.errors.UnsupportedError, match="container the model itself has"):
        certus.input_smoothness(_Twice(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)))


def test_a_convolution_of_its_own_is_refused() -> None:
    model = nn.Sequential(nn.Conv1d(1, 1, 2), nn.Flatten(), nn.Linear(2, 2))
    own = model[0]._conv_forward
    model[0]._conv_forward = lambda points, *rest: own(points.clamp(-9, 9), *rest)  # type: ignore[assignment, operator]
    with pytest.raises(certus.errors.UnsupportedError, match="replaced methods"):
        certus.input_smoothness(model, input_shape=(1, 3))


def test_hooks_on_every_module_are_refused() -> None:
    hook = register_module_forward_hook(far_out)  # type: ignore[arg-type]
    try:
        with pytest.raises(certus.errors.UnsupportedError, match="has hooks"):
            certus.input_smoothness(small())
    finally:
        hook.remove()
    assert certus.input_smoothness(small()).curvature > 0


@pytest.mark.parametrize("first", [[], [nn.Identity(), nn.Dropout(inplace=True)]])
def test_a_branch_that_writes_over_its_input_is_refused(first: list[nn.Module]) -> None:
    # Far from 0, where nothing is tried, the shortcut would read what the branch has cut off.
    branch = nn.Sequential(*first, nn.Hardtanh(-10, 10, inplace=True), nn.Linear(1, 1))
    for block in (Residual(branch), Residual(nn.Identity(), branch[:-1])):
        with pytest.raises(
            certus.errors.UnsupportedError, match=r"\(Hardtanh\) has inplace=True and overwrites"
        ):
            certus.input_smoothness(nn.Sequential(block, nn.Linear(1, 2)), input_shape=(1,))
    behind = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.ReLU(inplace=True))
    harmless = nn.Sequential(Residual(behind), nn.Linear(1, 2))
    assert certus.input_smoothness(harmless, input_shape=(1,)).lipschitz > 0


@pytest.mark.parametrize("kind", [torch.complex64, torch.int64])
def test_weights_that_are_no_real_numbers_are_refused(kind: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False))
    model[0].weight = nn.Parameter(torch.ones(2, 2, dtype=kind), requires_grad=False)
    with pytest.raises(certus.errors.ArgumentError, match=r"`model` must have real weights.*; got torch"):
        certus.input_smoothness(model)


def test_weights_are_read_once() -> None:
    model = small().double()
    analysis = Analysis(model)
    inputs, targets = torch.randn(4, 2).double(), torch.zeros(4, dtype=torch.long)
    before = certus.bounds.local_smoothness(analysis, inputs, targets, 0.1).curvature
    with torch.no_grad():
        model[1].weight.mul_(100)  # type: ignore[operator]
    assert torch.equal(certus.bounds.local_smoothness(analysis, inputs, targets, 0.1).curvature, before)


def test_elu_far_from_zero() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.CELU(0.01), nn.Linear(4, 3))
    local = certus.bounds.local_smoothness(model, 50 * torch.randn(50, 2), torch.zeros(50).long(), 0.1)
    assert torch.isfinite(local.curvature).all()
