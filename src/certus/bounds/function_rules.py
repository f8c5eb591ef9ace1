"""Rules for torch functions in an exported graph: affine maps, pooling and activations.

A tensor is a ``Constant``, which does not depend on the inputs, or a ``Variable``, the output of an earlier
node. A ``BatchSize`` stands for any number of samples, so nothing but a shape may depend on it.

A rule takes a call and returns its input and the primitives that it consists of, in order. Most delegate to
the rules of layers, with the arguments of the call in place of a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from certus.bounds.layer_rules import BUILTIN_RULES, double, in_order, per_axis
from certus.errors import UnsupportedError
from certus.kernel.groups import GroupLength
from certus.kernel.operators import (
    Affine,
    AxisProduct,
    Convolution,
    Dense,
    Diagonal,
    Reshape,
    Transposed,
)
from certus.kernel.passes import Primitive, Shape
from certus.kernel.pointwise import Pointwise, scalar

BATCHES = (5, 7)
"""Batch sizes that are compared: what is equal for both does not depend on the batch size."""


@dataclass(frozen=True, eq=False)
class Variable:
    """The output of an earlier node, by its number, with the shape of one sample."""

    number: int
    shape: Shape


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor independent of the inputs; if ``batched``, its first axis is the batch, of size 1."""

    value: Tensor
    batched: bool = False


@dataclass(frozen=True)
class BatchSize:
    """A number that depends on the batch size: its values for ``BATCHES``."""

    values: tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a function in an exported graph, with values in place of nodes."""

    node: fx.Node
    args: list[Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the torch function, such as "conv2d"."""
        target = self.node.target
        return target._schema.name.split("::")[1] if isinstance(target, OpOverload) else str(target)

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Arguments of a torch function by name, defaults included."""
        schema = self.node.target._schema.arguments  # type: ignore[union-attr]
        given = {each.name: value for each, value in zip(schema, self.args, strict=False)} | self.options
        defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
        return given | {name: value for name, value in defaults.items() if name not in given}

    @property
    def shape(self) -> Shape | None:
        """Shape of one sample of the output; None unless the output is a tensor with a batch axis."""
        value = self.node.meta.get("val")
        if not isinstance(value, Tensor) or value.dim() < 1 or not isinstance(value.shape[0], torch.SymInt):
            return None
        rest = tuple(value.shape[1:])
        return None if any(isinstance(size, torch.SymInt) for size in rest) else rest

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

    def fixed(self, name: str) -> Any:
        """Return an argument that must not depend on the inputs: a tensor, a number or a list."""
        value = self.arguments.get(name)
        for part in tree_leaves(value):
            if isinstance(part, Variable):
                raise UnsupportedError(f"a `{name}` that depends on the inputs; only constants have a rule")
            if isinstance(part, BatchSize):
                raise UnsupportedError(f"a `{name}` that depends on the batch size")
        return value.value if isinstance(value, Constant) else value

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.fixed(name)
        if isinstance(value, Tensor | list):
            raise UnsupportedError(f"a `{name}` that is not a plain number")
        return default if value is None else float(value)


_Translation = tuple[Variable, Sequence[Primitive]]
"""The input of the call, and its primitives in order."""

_PRODUCTS = {
    "linear": ("input", "weight", "bias"),
    "matmul": ("self", "other", ""),
    "mm": ("self", "mat2", ""),
    "addmm": ("mat1", "mat2", "self"),
}
"""Names of inputs, matrix and bias."""


def matrix_product(call: Call) -> _Translation:
    """x ↦ Wx + b along the last axis of a sample."""
    first, second, third = _PRODUCTS[call.name]
    inputs, weight, bias = call.moving(first), call.fixed(second), call.fixed(third)
    if weight.dim() != 2 or (bias is not None and bias.dim() != 1):
        raise UnsupportedError("a product with anything but a constant matrix")
    weight = double(weight if call.name == "linear" else weight.T.contiguous()) * call.number("alpha", 1.0)
    bias = None if bias is None else double(bias) * call.number("beta", 1.0)
    shape = inputs.shape
    if not shape or weight.shape[1] != shape[-1]:
        raise UnsupportedError(f"a matrix of {weight.shape[1]} columns for inputs of shape {shape}")
    return inputs, [Dense(weight, bias) if len(shape) == 1 else AxisProduct((weight,), bias, shape)]


def convolve_transposed(call: Call) -> _Translation:
    inputs, weight, bias = call.moving("input"), call.fixed("weight"), call.fixed("bias")
    assert call.shape is not None
    axes = weight.dim() - 2
    turned = Convolution(
        *(double(weight), None, call.shape),
        stride=per_axis(call["stride"], axes),
        padding=tuple((amount, amount) for amount in per_axis(call["padding"], axes)),
        dilation=per_axis(call["dilation"], axes),
        groups=call["groups"],
    )
    if turned.out_shape != inputs.shape:
        raise UnsupportedError(f"an output of shape {call.shape} for inputs of shape {inputs.shape}")
    return inputs, [Transposed(turned, None if bias is None else double(bias).reshape(-1, *([1] * axes)))]


def total_over_axes(call: Call) -> _Translation:
    """A mean or sum over axes of a sample: the axes are moved to the end and flattened, and their entries
    weighted equally."""
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
    return inputs, [
        first,
        AxisProduct((weight,), None, first.out_shape),
        Reshape((math.prod(left), 1), call.shape),
    ]


def interpolate(call: Call) -> _Translation:
    inputs, scales = call.moving("input"), call.get("scale_factors")
    assert call.shape is not None
    matrices = []
    for axis, size in enumerate(call.shape[1:]):
        basis = torch.eye(inputs.shape[1 + axis], dtype=torch.float64).unsqueeze(1)
        wanted: dict[str, Any] = {"size": size} if scales is None else {"scale_factor": scales[axis]}
        matrix = functional.interpolate(basis, **wanted, mode="linear", align_corners=call["align_corners"])
        matrices.append(matrix.squeeze(1).T.contiguous())
    return inputs, [AxisProduct(tuple(matrices), None, inputs.shape)]


def scaled_by(factor: float | Tensor, bias: Tensor | None, shape: Shape) -> Affine:
    """factor·x + bias, both broadcast to the shape."""
    scale = double(torch.as_tensor(factor, dtype=torch.float64))
    return Diagonal(scale, None if bias is None else double(bias).expand(shape).contiguous(), shape)


_LAYERS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "mish": nn.Mish,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
    "celu": nn.CELU,
    "leaky_relu": nn.LeakyReLU,
    "hardtanh": nn.Hardtanh,
    "log_softmax": nn.LogSoftmax,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), nn.Conv2d),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), nn.BatchNorm2d),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d"), nn.AvgPool2d),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool2d_with_indices"), nn.MaxPool2d),
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"), nn.AdaptiveAvgPool2d
    ),
}
"""Functions that compute a layer, whose settings are their arguments of the same names."""


def by_layer_rule(call: Call) -> _Translation:
    """Apply the rule of a layer, with the arguments of the call in place of a module."""
    first, *names = call.arguments
    inputs, settings = call.moving(first), {name: call.fixed(name) for name in names}
    if settings.get("training"):
        raise UnsupportedError("training=True, so that samples of a batch depend on each other")
    if settings.get("scale", 1) != 1 or settings.get("input_scale", 1) != 1:
        raise UnsupportedError("a `scale` other than 1")
    if call.name.startswith("conv"):
        weight = settings["weight"]
        settings |= {"kernel_size": weight.shape[2:], "in_channels": weight.shape[1] * settings["groups"]}
    module = SimpleNamespace(padding_mode="zeros", return_indices=False, **settings)
    primitive = BUILTIN_RULES[_LAYERS[call.name]](module, inputs.shape)
    assert isinstance(primitive, Primitive)
    return inputs, [primitive]


def length_over_axes(call: Call) -> _Translation:
    """The Euclidean norm over axes of a sample."""
    inputs, order = call.moving("self"), call.number("ord", 2.0)
    shape, axes = inputs.shape, call.get("dim") or []
    chosen = sorted(axis % (len(shape) + 1) - 1 for axis in axes)
    if order != 2 or not chosen or chosen[0] < 0:
        raise UnsupportedError("a norm other than the Euclidean one, or over the batch")
    rest = [axis for axis in range(len(shape)) if axis not in chosen]
    places = torch.arange(math.prod(shape)).reshape(shape).permute(*rest, *chosen)
    assert call.shape is not None
    return inputs, [
        GroupLength(places.flatten(len(rest)).reshape(math.prod(call.shape), -1), shape, call.shape)
    ]


def absolute_value(call: Call) -> _Translation:
    inputs = call.moving("self")
    return inputs, [Pointwise(scalar("piecewise_linear", -1.0, 1.0), inputs.shape)]


def clamp_units(call: Call) -> _Translation:
    inputs = call.moving("self")
    if call.get("min") is None and call.get("max") is None:
        raise UnsupportedError("no limit")
    low, high = call.number("min", -math.inf), call.number("max", math.inf)
    if not low < high:
        raise UnsupportedError(f"limits {low} and {high}; the first must be smaller")
    return inputs, [Pointwise(scalar("clamp", low, high), inputs.shape)]


FUNCTIONS: dict[str, Callable[[Call], _Translation]] = {
    **dict.fromkeys(_PRODUCTS, matrix_product),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), convolve_transposed),
    **dict.fromkeys(("mean", "sum"), total_over_axes),
    **dict.fromkeys(("upsample_bilinear2d", "upsample_linear1d"), interpolate),
    **dict.fromkeys(_LAYERS, by_layer_rule),
    "abs": absolute_value,
    "linalg_vector_norm": length_over_axes,
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max"), clamp_units),
}
"""The rules of torch functions by name."""
