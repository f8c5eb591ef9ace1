"""Rules of torch functions: affine ones and pooling. ``unit_rules`` has the activations.

A rule takes a call and returns the stages that it is, one behind another. The rules of layers do the work,
with the arguments of the call in place of the module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from certus.errors import UnsupportedError
from certus.smoothness import rules
from certus.smoothness.calls import Call, Moving, module_like
from certus.smoothness.convolution import AxisProduct, Convolution
from certus.smoothness.movement import LastAxis, Movement, Transposed
from certus.smoothness.operators import Dense, Diagonal, Operator, Reshape
from certus.smoothness.rules import double
from certus.smoothness.stage import Shape, Stage

FunctionRule = Callable[[Call], tuple[Moving, Sequence[Stage]]]
"""What is moved, and the stages that it goes through."""

FUNCTIONS: dict[str, FunctionRule] = {}
_Function = TypeVar("_Function", bound=FunctionRule)


def function_rule(*names: str) -> Callable[[_Function], _Function]:
    """Register a function as the rule for torch functions of these names."""

    def register(function: _Function) -> _Function:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


@function_rule("linear")
def linear_function(call: Call) -> tuple[Moving, Sequence[Stage]]:
    inputs, weight, bias = call.moving("input"), call.fixed("weight"), call.fixed("bias")
    assert weight is not None
    return inputs, [along_last_axis(double(weight), None if bias is None else double(bias), inputs.shape)]


@function_rule("matmul", "mm")
def matrix_product(call: Call) -> tuple[Moving, Sequence[Stage]]:
    second = "other" if call.name == "matmul" else "mat2"
    inputs, weight = call.moving("self"), call.fixed(second)
    if weight is None or weight.dim() != 2:
        raise UnsupportedError("a product with something else than a matrix of fixed numbers")
    return inputs, [along_last_axis(double(weight).T.contiguous(), None, inputs.shape)]


@function_rule("addmm")
def matrix_product_and_bias(call: Call) -> tuple[Moving, Sequence[Stage]]:
    inputs, weight, bias = call.moving("mat1"), call.fixed("mat2"), call.fixed("self")
    if weight is None or bias is None or bias.dim() != 1:
        raise UnsupportedError("a product with something else than a matrix of fixed numbers")
    weight = double(weight).T.contiguous() * call.number("alpha", 1.0)
    return inputs, [along_last_axis(weight, double(bias) * call.number("beta", 1.0), inputs.shape)]


def along_last_axis(weight: Tensor, bias: Tensor | None, shape: Shape) -> Operator:
    """x ↦ Wx + b for the last axis of one sample."""
    if not shape or weight.shape[1] != shape[-1]:
        raise UnsupportedError(f"a matrix of {weight.shape[1]} columns for inputs of shape {shape}")
    return Dense(weight, bias) if len(shape) == 1 else LastAxis(weight, bias, shape)


@function_rule("conv1d", "conv2d", "conv3d")
def convolve(call: Call) -> tuple[Moving, Sequence[Stage]]:
    inputs, weight = call.moving("input"), call.fixed("weight")
    assert weight is not None
    axes = weight.dim() - 2
    settings = {name: _each(call[name], axes) for name in ("stride", "dilation")}
    padding = call["padding"] if isinstance(call["padding"], str) else _each(call["padding"], axes)
    like = module_like(
        **settings,
        weight=weight,
        bias=call.fixed("bias"),
        padding=padding,
        padding_mode="zeros",
        kernel_size=tuple(weight.shape[2:]),
        in_channels=weight.shape[1] * call["groups"],
        groups=call["groups"],
    )
    return inputs, [_one(rules.convolution(like, inputs.shape))]


@function_rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def convolve_transposed(call: Call) -> tuple[Moving, Sequence[Stage]]:
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
def average_windows(call: Call) -> tuple[Moving, Sequence[Stage]]:
    like = module_like(
        kernel_size=call["kernel_size"],
        stride=call["stride"] or call["kernel_size"],
        padding=call["padding"],
        ceil_mode=call["ceil_mode"],
        count_include_pad=call["count_include_pad"],
        divisor_override=call.get("divisor_override"),
    )
    inputs = call.moving("self")
    return inputs, [_one(rules.average_pool(like, inputs.shape))]


@function_rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def average_to_size(call: Call) -> tuple[Moving, Sequence[Stage]]:
    inputs, sizes = call.moving("self"), tuple(call["output_size"])
    like = module_like(output_size=sizes)
    return inputs, [_one(rules.adaptive_average_pool(like, inputs.shape))]


@function_rule("max_pool1d", "max_pool2d", "max_pool2d_with_indices")
def largest_of_windows(call: Call) -> tuple[Moving, Sequence[Stage]]:
    like = module_like(
        kernel_size=call["kernel_size"],
        stride=call["stride"] or call["kernel_size"],
        padding=call["padding"],
        dilation=call["dilation"],
        ceil_mode=call["ceil_mode"],
        return_indices=False,
    )
    inputs = call.moving("self")
    return inputs, [_one(rules.max_pool(like, inputs.shape))]


@function_rule("batch_norm", "_native_batch_norm_legit_no_training")
def normalise_by_running_statistics(call: Call) -> tuple[Moving, Sequence[Stage]]:
    if call.get("training"):
        raise UnsupportedError("training=True, so that samples of a batch depend on each other")
    like = module_like(
        running_mean=call.fixed("running_mean"),
        running_var=call.fixed("running_var"),
        weight=call.fixed("weight"),
        bias=call.fixed("bias"),
        eps=call["eps"],
    )
    inputs = call.moving("input")
    return inputs, [_one(rules.batch_norm(like, inputs.shape))]


@function_rule("mean", "sum")
def total_over_axes(call: Call) -> tuple[Moving, Sequence[Stage]]:
    """A mean or a sum over axes of one sample: they are moved to the end, made one, and weighed alike."""
    inputs = call.moving("self")
    shape, axes = inputs.shape, call.get("dim")
    chosen = sorted(axis % (len(shape) + 1) for axis in axes) if axes else [0]
    if 0 in chosen:
        raise UnsupportedError("a batch that it reduces: samples would depend on each other")
    chosen = [axis - 1 for axis in chosen]
    rest = [axis for axis in range(len(shape)) if axis not in chosen]
    count, kept = math.prod(shape[axis] for axis in chosen), tuple(shape[axis] for axis in rest)
    turned = torch.arange(math.prod(shape)).reshape(shape).permute(*rest, *chosen)
    first = in_order(turned.reshape(math.prod(kept), count), shape)
    weight = torch.full((1, count), 1 / count if call.name == "mean" else 1.0, dtype=torch.float64)
    assert call.shape is not None
    return inputs, [first, AxisProduct((weight,), first.out_shape), Reshape((math.prod(kept), 1), call.shape)]


@function_rule("upsample_bilinear2d", "upsample_linear1d")
def interpolate(call: Call) -> tuple[Moving, Sequence[Stage]]:
    inputs, scales = call.moving("input"), call.get("scale_factors")
    assert call.shape is not None

    def spread(axis: int) -> Tensor:
        assert call.shape is not None
        basis = torch.eye(inputs.shape[1 + axis], dtype=torch.float64).unsqueeze(1)
        wanted: dict[str, Any] = (
            {"size": call.shape[1 + axis]} if scales is None else {"scale_factor": scales[axis]}
        )
        made = functional.interpolate(basis, **wanted, mode="linear", align_corners=call["align_corners"])
        return made.squeeze(1).T.contiguous()

    return inputs, [AxisProduct(tuple(spread(axis) for axis in range(len(call.shape) - 1)), inputs.shape)]


def in_order(index: Tensor, in_shape: Shape) -> Operator:
    """A movement by its index; a mere reshaping where it leaves all in their order."""
    plain = index.numel() == math.prod(in_shape) and bool(
        (index.flatten() == torch.arange(index.numel())).all()
    )
    return Reshape(in_shape, tuple(index.shape)) if plain else Movement(index, in_shape)


def scaled_by(factor: Tensor, bias: Tensor | None, shape: Shape) -> Operator:
    """factor·x + bias with numbers that broadcast to the shape."""
    return Diagonal(double(factor), None if bias is None else double(bias).expand(shape).contiguous(), shape)


def _each(values: Any, axes: int) -> tuple[int, ...]:
    """A setting for every axis; torch lets one number stand for all."""
    listed = [int(value) for value in values] if isinstance(values, list | tuple) else [int(values)]
    return tuple(listed * axes if len(listed) == 1 else listed)


def _one(stage: object) -> Stage:
    assert isinstance(stage, Stage)
    return stage
