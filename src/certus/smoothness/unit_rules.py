"""Rules of torch functions that act on each unit alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from certus.errors import UnsupportedError
from certus.smoothness import activation_rules as layer_rules
from certus.smoothness import activations as table
from certus.smoothness.activation import Activation
from certus.smoothness.calls import Call, Moving, module_like
from certus.smoothness.function_rules import FUNCTIONS, function_rule
from certus.smoothness.log_softmax import log_softmax_over
from certus.smoothness.rules import PLAIN_ACTIVATIONS
from certus.smoothness.stage import Shape, Stage


def _units(name: str, argument: str = "self") -> Callable[[Callable[[Call, Shape], Stage]], None]:
    """Register what makes the stage of a function of each unit alone."""

    def register(make: Callable[[Call, Shape], Stage]) -> None:
        def units(call: Call) -> tuple[Moving, Sequence[Stage]]:
            inputs = call.moving(argument)
            return inputs, [make(call, inputs.shape)]

        FUNCTIONS[name] = units

    return register


for _name, _kind in {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "selu": nn.SELU,
}.items():
    _units(_name)(lambda call, shape, kind=_kind: PLAIN_ACTIVATIONS[kind])  # type: ignore[misc]  # a default binds it

_ABSOLUTE = table.piecewise_linear("abs", -1.0, 1.0, torch.abs)
_units("abs")(lambda call, shape: _ABSOLUTE)


@_units("gelu")
def _gelu(call: Call, shape: Shape) -> Stage:
    return layer_rules.gelu(module_like(approximate=call["approximate"]), shape)


@_units("softplus")
def _softplus(call: Call, shape: Shape) -> Stage:
    settings = module_like(beta=call.number("beta", 1.0), threshold=call.number("threshold", 20.0))
    return layer_rules.softplus(settings, shape)


@_units("elu")
def _elu(call: Call, shape: Shape) -> Stage:
    if call.number("scale", 1.0) != 1 or call.number("input_scale", 1.0) != 1:
        raise UnsupportedError("a `scale` other than 1")
    return layer_rules.elu(module_like(alpha=call.number("alpha", 1.0)), shape)


@_units("celu")
def _celu(call: Call, shape: Shape) -> Stage:
    return layer_rules.celu(module_like(alpha=call.number("alpha", 1.0)), shape)


@_units("leaky_relu")
def _leaky_relu(call: Call, shape: Shape) -> Stage:
    settings = module_like(negative_slope=call.number("negative_slope", 0.01))
    return layer_rules.leaky_relu(settings, shape)


@_units("hardtanh")
def _hardtanh(call: Call, shape: Shape) -> Stage:
    return table.clamp("Hardtanh", call.number("min_val", -1.0), call.number("max_val", 1.0))


@_units("log_softmax")
def _log_softmax(call: Call, shape: Shape) -> Stage:
    return log_softmax_over(call["dim"], shape)


@function_rule("clamp", "clamp_min", "clamp_max")
def clamp_units(call: Call) -> tuple[Moving, Sequence[Stage]]:
    """Between two numbers, or on one side of one."""
    low, high = (None if call.get(name) is None else call.number(name) for name in ("min", "max"))
    return call.moving("self"), [_clamp(low, high)]


def _clamp(low: float | None, high: float | None) -> Activation:
    if low is not None and high is not None:
        if not low < high:
            raise UnsupportedError(f"limits {low} and {high}, which leave nothing between them")
        return table.clamp("clamp", low, high)
    if low is not None:
        return table.one_sided("clamp", low, above=True)
    if high is None:
        raise UnsupportedError("no limit")
    return table.one_sided("clamp", high, above=False)
