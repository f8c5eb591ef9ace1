"""Rules for torch functions in an exported graph: affine maps, pooling and activations.

A tensor is a ``Constant``, which does not depend on the inputs, or a ``Variable``, the output of an earlier
node. A ``BatchSize`` stands for any number of samples, so nothing but a shape may depend on it.

A rule takes a call and returns its input and the stages that it consists of, in order. Most delegate to the
rules of layers, with the arguments of the call in place of a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from certus.bounds import activations, layer_rules
from certus.bounds.activations import Activation, log_softmax_over
from certus.bounds.layer_rules import PLAIN_ACTIVATIONS, double
from certus.bounds.operators import (
    AxisProduct,
    Convolution,
    Dense,
    Diagonal,
    Gather,
    LastAxis,
    Operator,
    Reshape,
    Transposed,
)
from certus.bounds.passes import Shape, Stage
from certus.errors import UnsupportedError

BATCHES = (5, 7)
"""Batch sizes that are compared: what is equal for both does not depend on the batch size."""


@dataclass(frozen=True, eq=False)
class Variable:
    """The output of an earlier node, by its number, with the shape of one sample."""

    number: int
    shape: Shape


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that does not depend on the inputs; if ``batched``, its first axis is the batch, of size 1
    here."""

    value: Tensor
    batched: bool = False


@dataclass(frozen=True)
class BatchSize:
    """A number that depends on the batch size: its values for ``BATCHES``."""

    values: tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a torch function with its arguments by name.

    Attributes:
        name: of the torch function, such as "conv2d".
        shape: of one sample of the output; None for several outputs, or without a batch axis.
    """

    name: str
    node: fx.Node
    arguments: dict[str, Any]
    shape: Shape | None

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)

    def moving(self, name: str) -> Variable:
        """Return an argument that must depend on the inputs."""
        value = self.arguments[name]
        if not isinstance(value, Variable):
            raise UnsupportedError(f"a constant `{name}`, where it must depend on the inputs")
        return value

    def fixed(self, name: str) -> Tensor | None:
        """Return an argument that must not depend on the inputs: a parameter, a buffer, a number."""
        value = self.arguments.get(name)
        if isinstance(value, Variable):
            raise UnsupportedError(f"a `{name}` that depends on the inputs; only constants have a rule")
        if isinstance(value, BatchSize):
            raise UnsupportedError(f"a `{name}` that depends on the batch size")
        if isinstance(value, Constant):
            return value.value
        return None if value is None else torch.as_tensor(value, dtype=torch.float64)

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.arguments.get(name)
        if isinstance(value, BatchSize | Variable | Constant):
            raise UnsupportedError(f"a `{name}` that is not a plain number")
        return default if value is None else float(value)


def bind(target: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a torch function by name, defaults included."""
    schema = target._schema.arguments
    given = {each.name: value for each, value in zip(schema, args, strict=False)} | options
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    return given | {name: value for name, value in defaults.items() if name not in given}


def flatten_nested(value: Any) -> list[Any]:
    """The values in nested lists."""
    if isinstance(value, list | tuple):
        return [part for each in value for part in flatten_nested(each)]
    return [value]


def map_nested(value: Any, swap: Callable[[Any], Any]) -> Any:
    """Apply a function to every value in nested lists."""
    if isinstance(value, list | tuple):
        return [map_nested(each, swap) for each in value]
    return swap(value)


def module_like(**settings: Any) -> Any:
    """An object with the attributes that a layer rule reads, from the arguments of a call."""
    return SimpleNamespace(**settings)


def by_layer_rule(
    inputs: Variable, rule: layer_rules.LayerRule, **settings: Any
) -> tuple[Variable, Sequence[Stage]]:
    """Apply the rule of a layer to a call, with its arguments in place of a module."""
    stage = rule(module_like(**settings), inputs.shape)
    assert isinstance(stage, Stage)
    return inputs, [stage]


FunctionRule = Callable[[Call], tuple[Variable, Sequence[Stage]]]
"""The input of the call, and its stages in order."""

FUNCTIONS: dict[str, FunctionRule] = {}
_Function = TypeVar("_Function", bound=FunctionRule)


def function_rule(*names: str) -> Callable[[_Function], _Function]:
    """Register a function as the rule for torch functions of these names."""

    def register(function: _Function) -> _Function:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


@function_rule("linear")
def linear_function(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs, weight, bias = call.moving("input"), call.fixed("weight"), call.fixed("bias")
    assert weight is not None
    return inputs, [along_last_axis(double(weight), None if bias is None else double(bias), inputs.shape)]


@function_rule("matmul", "mm")
def matrix_product(call: Call) -> tuple[Variable, Sequence[Stage]]:
    second = "other" if call.name == "matmul" else "mat2"
    inputs, weight = call.moving("self"), call.fixed(second)
    if weight is None or weight.dim() != 2:
        raise UnsupportedError("a product with anything but a constant matrix")
    return inputs, [along_last_axis(double(weight).T.contiguous(), None, inputs.shape)]


@function_rule("addmm")
def matrix_product_and_bias(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs, weight, bias = call.moving("mat1"), call.fixed("mat2"), call.fixed("self")
    if weight is None or bias is None or bias.dim() != 1:
        raise UnsupportedError("a product with anything but a constant matrix")
    weight = double(weight).T.contiguous() * call.number("alpha", 1.0)
    return inputs, [along_last_axis(weight, double(bias) * call.number("beta", 1.0), inputs.shape)]


def along_last_axis(weight: Tensor, bias: Tensor | None, shape: Shape) -> Operator:
    """x ↦ Wx + b along the last axis of a sample."""
    if not shape or weight.shape[1] != shape[-1]:
        raise UnsupportedError(f"a matrix of {weight.shape[1]} columns for inputs of shape {shape}")
    return Dense(weight, bias) if len(shape) == 1 else LastAxis(weight, bias, shape)


@function_rule("conv1d", "conv2d", "conv3d")
def convolve(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs, weight = call.moving("input"), call.fixed("weight")
    assert weight is not None
    axes = weight.dim() - 2
    settings = {name: _each(call[name], axes) for name in ("stride", "dilation")}
    padding = call["padding"] if isinstance(call["padding"], str) else _each(call["padding"], axes)
    return by_layer_rule(
        inputs,
        layer_rules.convolution,
        **settings,
        weight=weight,
        bias=call.fixed("bias"),
        padding=padding,
        padding_mode="zeros",
        kernel_size=tuple(weight.shape[2:]),
        in_channels=weight.shape[1] * call["groups"],
        groups=call["groups"],
    )


@function_rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolve_transposed(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs, weight, bias = call.moving("input"), call.fixed("weight"), call.fixed("bias")
    assert weight is not None
    assert call.shape is not None
    axes = weight.dim() - 2
    turned = Convolution(
        *(double(weight), None, call.shape),
        stride=_each(call["stride"], axes),
        padding=tuple((amount, amount) for amount in _each(call["padding"], axes)),
        dilation=_each(call["dilation"], axes),
        groups=call["groups"],
    )
    if turned.out_shape != inputs.shape:
        raise UnsupportedError(f"an output of shape {call.shape} for inputs of shape {inputs.shape}")
    return inputs, [Transposed(turned, None if bias is None else double(bias).reshape(-1, *([1] * axes)))]


@function_rule("avg_pool1d", "avg_pool2d")
def average_windows(call: Call) -> tuple[Variable, Sequence[Stage]]:
    return by_layer_rule(
        call.moving("self"),
        layer_rules.average_pool,
        kernel_size=call["kernel_size"],
        stride=call["stride"] or call["kernel_size"],
        padding=call["padding"],
        ceil_mode=call["ceil_mode"],
        count_include_pad=call["count_include_pad"],
        divisor_override=call.get("divisor_override"),
    )


@function_rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def average_to_size(call: Call) -> tuple[Variable, Sequence[Stage]]:
    rule, sizes = layer_rules.adaptive_average_pool, tuple(call["output_size"])
    return by_layer_rule(call.moving("self"), rule, output_size=sizes)


@function_rule("max_pool1d", "max_pool2d", "max_pool2d_with_indices")
def largest_of_windows(call: Call) -> tuple[Variable, Sequence[Stage]]:
    return by_layer_rule(
        call.moving("self"),
        layer_rules.max_pool,
        kernel_size=call["kernel_size"],
        stride=call["stride"] or call["kernel_size"],
        padding=call["padding"],
        dilation=call["dilation"],
        ceil_mode=call["ceil_mode"],
        return_indices=False,
    )


@function_rule("batch_norm", "_native_batch_norm_legit_no_training")
def normalise_by_running_statistics(call: Call) -> tuple[Variable, Sequence[Stage]]:
    if call.get("training"):
        raise UnsupportedError("training=True, so that samples of a batch depend on each other")
    return by_layer_rule(
        call.moving("input"),
        layer_rules.batch_norm,
        running_mean=call.fixed("running_mean"),
        running_var=call.fixed("running_var"),
        weight=call.fixed("weight"),
        bias=call.fixed("bias"),
        eps=call["eps"],
    )


@function_rule("mean", "sum")
def total_over_axes(call: Call) -> tuple[Variable, Sequence[Stage]]:
    """A mean or sum over axes of a sample: they are moved to the end, flattened, and weighted equally."""
    inputs = call.moving("self")
    shape, axes = inputs.shape, call.get("dim")
    chosen = sorted(axis % (len(shape) + 1) for axis in axes) if axes else [0]
    if 0 in chosen:
        raise UnsupportedError("a reduction over the batch, so that samples depend on each other")
    chosen = [axis - 1 for axis in chosen]
    rest = [axis for axis in range(len(shape)) if axis not in chosen]
    count, left = math.prod(shape[axis] for axis in chosen), tuple(shape[axis] for axis in rest)
    turned = torch.arange(math.prod(shape)).reshape(shape).permute(*rest, *chosen)
    first = in_order(turned.reshape(math.prod(left), count), shape)
    weight = torch.full((1, count), 1 / count if call.name == "mean" else 1.0, dtype=torch.float64)
    assert call.shape is not None
    return inputs, [first, AxisProduct((weight,), first.out_shape), Reshape((math.prod(left), 1), call.shape)]


@function_rule("upsample_bilinear2d", "upsample_linear1d")
def interpolate(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs, scales = call.moving("input"), call.get("scale_factors")
    assert call.shape is not None

    def spread(axis: int) -> Tensor:
        assert call.shape is not None
        basis = torch.eye(inputs.shape[1 + axis], dtype=torch.float64).unsqueeze(1)
        wanted: dict[str, Any] = (
            {"size": call.shape[1 + axis]} if scales is None else {"scale_factor": scales[axis]}
        )
        matrix = functional.interpolate(basis, **wanted, mode="linear", align_corners=call["align_corners"])
        return matrix.squeeze(1).T.contiguous()

    return inputs, [AxisProduct(tuple(spread(axis) for axis in range(len(call.shape) - 1)), inputs.shape)]


def in_order(index: Tensor, in_shape: Shape) -> Operator:
    """A gather by its index, or a reshape if it keeps the order."""
    plain = index.numel() == math.prod(in_shape) and bool(
        (index.flatten() == torch.arange(index.numel())).all()
    )
    return Reshape(in_shape, tuple(index.shape)) if plain else Gather(index, in_shape)


def scaled_by(factor: Tensor, bias: Tensor | None, shape: Shape) -> Operator:
    """factor·x + bias, both broadcast to the shape."""
    return Diagonal(double(factor), None if bias is None else double(bias).expand(shape).contiguous(), shape)


def _each(values: Any, axes: int) -> tuple[int, ...]:
    """A setting for every axis; torch accepts one number for all."""
    listed = [int(value) for value in values] if isinstance(values, list | tuple) else [int(values)]
    return tuple(listed * axes if len(listed) == 1 else listed)


_PLAIN = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "selu": nn.SELU,
}
_ABSOLUTE = activations.piecewise_linear("abs", -1.0, 1.0, torch.abs)


@function_rule(*_PLAIN, "abs", "gelu", "softplus", "elu", "celu", "leaky_relu", "hardtanh", "log_softmax")
def activate(call: Call) -> tuple[Variable, Sequence[Stage]]:
    inputs = call.moving("self")
    return inputs, [_activation(call, inputs.shape)]


def _activation(call: Call, shape: Shape) -> Stage:
    match call.name:
        case "abs":
            return _ABSOLUTE
        case "gelu":
            return layer_rules.gelu(module_like(approximate=call["approximate"]), shape)
        case "softplus":
            settings = module_like(beta=call.number("beta", 1.0), threshold=call.number("threshold", 20.0))
            return layer_rules.softplus(settings, shape)
        case "elu":
            if call.number("scale", 1.0) != 1 or call.number("input_scale", 1.0) != 1:
                raise UnsupportedError("a `scale` other than 1")
            return layer_rules.elu(module_like(alpha=call.number("alpha", 1.0)), shape)
        case "celu":
            return layer_rules.celu(module_like(alpha=call.number("alpha", 1.0)), shape)
        case "leaky_relu":
            return layer_rules.leaky_relu(
                module_like(negative_slope=call.number("negative_slope", 0.01)), shape
            )
        case "hardtanh":
            return activations.clamp("Hardtanh", call.number("min_val", -1.0), call.number("max_val", 1.0))
        case "log_softmax":
            return log_softmax_over(call["dim"], shape)
    return PLAIN_ACTIVATIONS[_PLAIN[call.name]]


@function_rule("clamp", "clamp_min", "clamp_max")
def clamp_units(call: Call) -> tuple[Variable, Sequence[Stage]]:
    """Clamp on both sides or on one."""
    low, high = (None if call.get(name) is None else call.number(name) for name in ("min", "max"))
    return call.moving("self"), [_clamp(low, high)]


def _clamp(low: float | None, high: float | None) -> Activation:
    if low is not None and high is not None:
        if not low < high:
            raise UnsupportedError(f"limits {low} and {high}; the first must be smaller")
        return activations.clamp("clamp", low, high)
    if low is not None:
        return activations.one_sided("clamp", low, above=True)
    if high is None:
        raise UnsupportedError("no limit")
    return activations.one_sided("clamp", high, above=False)
