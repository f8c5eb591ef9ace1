"""Constant folding, and recovery of index maps, in an exported graph.

A function that only rearranges numbers (a slice, a permutation, padding, repetition) is run on 1, 2, 3, …
in place of the inputs, which reveals its index map. Both are done for two batch sizes, in which all samples
must be treated alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from certus.bounds.function_rules import (
    BATCHES,
    BatchSize,
    Call,
    Constant,
    Variable,
    bind,
    flatten_nested,
    map_nested,
)
from certus.bounds.passes import Shape
from certus.errors import UnsupportedError

GATHER_FUNCTIONS = frozenset(
    (
        *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t"),
        *("slice", "select", "narrow", "unsqueeze", "squeeze", "expand", "repeat", "flip", "roll"),
        *("index_select", "index", "pad", "constant_pad_nd", "reflection_pad1d", "reflection_pad2d"),
        *("replication_pad1d", "replication_pad2d", "split", "split_with_sizes", "chunk", "unbind"),
        *("upsample_nearest1d", "upsample_nearest2d", "_upsample_nearest_exact2d", "pixel_shuffle"),
        *("pixel_unshuffle", "channel_shuffle", "movedim", "expand_as", "view_as", "repeat_interleave"),
        *("unfold", "diagonal"),
    )
)
"""Functions that only rearrange numbers."""

SHAPE_FUNCTIONS = frozenset(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"))
"""Functions of a shape only."""

_SIZED = SHAPE_FUNCTIONS | {"zeros", "ones", "full", "view", "reshape", "_unsafe_view", "expand", "repeat"}
"""Functions that may take a batch size: they use it as a size, and treat all samples alike."""

_ALIKE = GATHER_FUNCTIONS | {
    "clone",
    "detach",
    "contiguous",
    "alias",
    "to",
    "_to_copy",
    "sum",
    "mean",
    "cat",
    "stack",
}
"""Functions that map equal samples to equal outputs, beside elementwise ones."""


def gather_indices(call: Call, args: list[Any], options: dict[str, Any]) -> tuple[Variable, list[Tensor]]:
    """The rearranged variable, and for each output its (*out_shape) indices into a flattened sample; −1
    for 0."""
    moving = [value for value in flatten_nested(list(call.arguments.values())) if isinstance(value, Variable)]
    first = next(iter(call.arguments.values()))
    if first is not moving[0] or (len(moving) > 1 and not call.name.endswith("_as")):
        raise UnsupportedError("several arguments that depend on the inputs")
    _check_counts(call.name, call.arguments)
    if call.name == "roll" and not all(axis % (len(moving[0].shape) + 1) for axis in call["dims"] or [0]):
        raise UnsupportedError("outputs that mix samples of a batch")
    if call.name in ("pad", "constant_pad_nd") and call.get("value") not in (None, 0, 0.0):
        raise UnsupportedError("a padding value other than 0")
    numbered = [_numbered(call, args, options, moving[0].shape, batch) for batch in range(len(BATCHES))]
    indices = []
    for few, many in zip(*numbered, strict=True):
        if few.shape != many.shape or not bool((few == many).all()):
            raise UnsupportedError("outputs that depend on the batch size")
        indices.append(few.long() - 1)
    return moving[0], indices


def _numbered(call: Call, args: list[Any], options: dict[str, Any], shape: Shape, batch: int) -> list[Tensor]:
    """(*out_shape) the entry of a sample, counted from 1, that each output comes from; 0 for none."""
    samples, size = BATCHES[batch], math.prod(shape)
    numbers = torch.arange(1, samples * size + 1, dtype=torch.float64).reshape(samples, *shape)
    first = next(iter(call.arguments.values()))

    def filled(value: Variable) -> Tensor:
        return numbers if value is first else torch.zeros(samples, *value.shape, dtype=torch.float64)

    outputs = _run(call.node, args, options, filled, batch)
    indices = []
    for output in outputs if isinstance(outputs, list | tuple) else [outputs]:
        if output.dim() < 1 or len(output) != samples:
            raise UnsupportedError("an output whose first axis is not the batch")
        before = (torch.arange(samples) * size).reshape(-1, *([1] * (output.dim() - 1)))
        own = torch.where(output > 0, output - before, 0.0)
        mixed = bool((own != own[:1]).any() | (own < 0).any() | (own > size).any())
        if mixed or bool(((own == 0) & (output > 0)).any()):
            raise UnsupportedError("outputs that mix samples of a batch")
        indices.append(own[0])
    return indices


def fold_constant(node: fx.Node, args: list[Any], options: dict[str, Any]) -> Any:
    """Compute a value that does not depend on the inputs, as the module itself does."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnsupportedError("random values")
        if "empty" in target._schema.name:
            raise UnsupportedError("uninitialised values")
    value = node.meta.get("val")
    dtype = value.dtype if isinstance(value, Tensor) else torch.get_default_dtype()
    counted = any(map(_counted, flatten_nested([args, list(options.values())])))
    if counted and isinstance(target, torch._ops.OpOverload) and isinstance(value, Tensor):
        name = target._schema.name.split("::")[1]
        if name not in _SIZED | _ALIKE and torch.Tag.pointwise not in target.tags:
            raise UnsupportedError("values that may depend on the batch size")
        _check_counts(name, bind(target, tuple(args), options))
    values = []
    for batch, size in enumerate(BATCHES[: 2 if counted else 1]):
        blank = partial(_zeros, size, dtype)
        values.append(_run(node, args, options, blank, batch))
    if not counted:
        return map_nested(values[0], lambda each: Constant(each) if isinstance(each, Tensor) else each)
    return _agreed(*values)


def _check_counts(name: str, arguments: dict[str, Any]) -> None:
    """Raise if a batch size is used as anything but a size: only two sizes are tested."""
    values = arguments.values() if name not in _SIZED else [arguments.get("fill_value")]
    if any(isinstance(value, BatchSize) for value in flatten_nested(list(values))):
        raise UnsupportedError("a number that depends on the batch size")


def _counted(value: Any) -> bool:
    """Whether a value may depend on the batch size."""
    return isinstance(value, BatchSize | Variable) or (isinstance(value, Constant) and value.batched)


def _zeros(size: int, dtype: torch.dtype, moving: Variable) -> Tensor:
    return torch.zeros(size, *moving.shape, dtype=dtype)


def _agreed(few: Any, many: Any) -> Any:
    """The value that both batch sizes agree on."""
    if isinstance(few, list | tuple):
        return [_agreed(*pair) for pair in zip(few, many, strict=True)]
    if not isinstance(few, Tensor):
        return BatchSize((few, many))
    if torch.equal(few, many):
        return Constant(few)
    batches = few.dim() > 0 and few.shape[1:] == many.shape[1:] and (len(few), len(many)) == BATCHES
    if batches and bool((few == few[:1]).all()) and bool((many == few[:1]).all()):
        return Constant(few[:1], batched=True)
    raise UnsupportedError("values that depend on the batch size")


def _run(
    node: fx.Node, args: list[Any], options: dict[str, Any], inputs: Callable[[Variable], Tensor], batch: int
) -> Any:
    """Call the function with concrete values."""

    def real(value: Any) -> Any:
        match value:
            case Variable():
                return inputs(value)
            case BatchSize():
                return value.values[batch]
            case Constant(tensor, batched):
                return tensor.expand(BATCHES[batch], *tensor.shape[1:]) if batched else tensor
        return value

    target: Any = node.target
    with torch.no_grad():
        return target(
            *map_nested(args, real), **{name: map_nested(each, real) for name, each in options.items()}
        )
