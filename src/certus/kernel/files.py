"""Graphs and tensors read from files: plain data, of which nothing is executed.

A safetensors file is 8 bytes with the length of a JSON header, the header with the type, the shape and the
place of every tensor, and the numbers, little-endian. A graph is described by JSON: one entry for each node,
and one for its primitive, which names its tensors.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.kernel.graph import Graph, Node
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import (
    Affine,
    AxisProduct,
    Convolution,
    Dense,
    Diagonal,
    Gather,
    LastAxis,
    Product,
    Reshape,
    Transposed,
)
from certus.kernel.passes import Refused
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.primitive import Primitive, Shape

_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "BOOL": "?"}
_LONGEST_HEADER = 100_000_000

Tensors = dict[str, Tensor]


def read_tensors(path: Path) -> Tensors:
    """Read a safetensors file; float32 becomes float64, exactly."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > min(len(content) - 8, _LONGEST_HEADER):
        raise Refused(f"{path} is not a safetensors file")
    numbers, tensors = memoryview(content)[8 + size :], {}
    for name, entry in _object(content[8 : 8 + size], path).items():
        if name != "__metadata__":
            kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
            if kind not in _TYPES or not 0 <= start <= end <= len(numbers):
                raise Refused(f"{path}: {name} is not a tensor that is read here")
            values = np.frombuffer(numbers[start:end], dtype=_TYPES[kind])
            if values.size != math.prod(shape) or any(length < 0 for length in shape):
                raise Refused(f"{path}: {name} does not have {shape} entries")
            tensor = torch.from_numpy(values.copy()).reshape(shape)
            tensors[name] = tensor.double() if kind == "F32" else tensor
    return tensors


def _object(text: bytes, path: Path) -> dict[str, Any]:
    content = json.loads(text)
    if not isinstance(content, dict):
        raise Refused(f"{path} does not hold a JSON object")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    return _object(path.read_bytes(), path)


def build_graph(description: dict[str, Any], tensors: Tensors) -> Graph:
    """Return the graph of a description; raise ``Refused`` if it describes none."""
    try:
        return Graph(tuple(_node(entry, tensors) for entry in description["nodes"]))
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as reason:
        raise Refused(f"the description of the graph is not complete: {reason!r}") from None


def _node(entry: dict[str, Any], tensors: Tensors) -> Node:
    primitive = entry["primitive"]
    return Node(
        tuple(int(index) for index in entry["inputs"]),
        _shape(entry["shape"]),
        None if primitive is None else _primitive(primitive, tensors),
        None if entry["axis"] is None else int(entry["axis"]),
        name=str(entry["name"]),
        kind=str(entry["kind"]),
        assumptions=tuple(str(name) for name in entry["assumptions"]),
    )


def _shape(entry: Any) -> Shape:
    return tuple(int(size) for size in entry)


def _primitive(entry: dict[str, Any], tensors: Tensors) -> Primitive:
    """Build a primitive, and check the claim that comes with its norm."""

    def tensor(name: str) -> Tensor | None:
        key = entry["tensors"].get(name)
        return None if key is None else tensors[key]

    kind = entry["type"]
    if kind not in _KINDS:
        raise Refused(f"{kind} is not a primitive of the kernel")
    primitive = _KINDS[kind](entry, tensor, tensors)
    if isinstance(primitive, Affine):
        primitive.folds = int(entry["folds"])
        size = tensor("bias_size")
        if (size is None) != (primitive.bias is None) or primitive.folds < 0:
            raise Refused(f"{kind} lacks the rounding of its weights or of its bias")
        if size is not None and primitive.bias is not None:
            primitive.bias_size = torch.maximum(size, primitive.bias.abs())
        if entry["claim"]:
            primitive.accept(tuple(map(float, entry["claim"])), written=bool(entry["written"]))
    return primitive


_Tensor = Callable[[str], Tensor | None]


def _weight(tensor: _Tensor, name: str = "weight") -> Tensor:
    weight = tensor(name)
    if weight is None or not bool(torch.isfinite(weight).all()):
        raise Refused(f"a primitive lacks its tensor {name}, or it is not finite")
    return weight


def _several(entry: dict[str, Any], tensor: _Tensor) -> tuple[Tensor, ...]:
    return tuple(_weight(tensor, str(index)) for index in range(len(entry["tensors"])))


def _convolution(entry: dict[str, Any], tensor: _Tensor) -> Convolution:
    return Convolution(
        *(_weight(tensor), tensor("bias"), _shape(entry["in_shape"])),
        stride=_shape(entry["stride"]),
        padding=tuple((int(first), int(last)) for first, last in entry["padding"]),
        dilation=_shape(entry["dilation"]),
        groups=int(entry["groups"]),
    )


def _pointwise(entry: dict[str, Any], tensor: _Tensor) -> Pointwise:
    sharpness = tensor("sharpness")
    base = scalar(entry["function"], *map(float, entry["settings"]))
    return Pointwise(
        base, _shape(entry["in_shape"]), float(entry["sharpness"]) if sharpness is None else sharpness
    )


def _part(entry: dict[str, Any], tensors: Tensors) -> Affine:
    part = _primitive(entry, tensors)
    if not isinstance(part, Affine):
        raise Refused("a part of an affine primitive must be affine")
    return part


_KINDS: dict[str, Callable[[dict[str, Any], _Tensor, Tensors], Primitive]] = {
    "Dense": lambda entry, tensor, _: Dense(
        _weight(tensor), tensor("bias"), _shape(entry["in_shape"]), _shape(entry["out_shape"])
    ),
    "Diagonal": lambda entry, tensor, _: Diagonal(_weight(tensor), tensor("bias"), _shape(entry["in_shape"])),
    "Gather": lambda entry, tensor, _: Gather(_weight(tensor), _shape(entry["in_shape"])),
    "Reshape": lambda entry, tensor, _: Reshape(_shape(entry["in_shape"]), _shape(entry["out_shape"])),
    "LastAxis": lambda entry, tensor, _: LastAxis(_weight(tensor), tensor("bias"), _shape(entry["in_shape"])),
    "AxisProduct": lambda entry, tensor, _: AxisProduct(_several(entry, tensor), _shape(entry["in_shape"])),
    "Convolution": lambda entry, tensor, _: _convolution(entry, tensor),
    "Transposed": lambda entry, tensor, tensors: Transposed(
        _part(entry["original"], tensors), tensor("bias")
    ),
    "Product": lambda entry, tensor, tensors: Product(tuple(_part(part, tensors) for part in entry["parts"])),
    "Pointwise": lambda entry, tensor, _: _pointwise(entry, tensor),
    "MaxPool": lambda entry, tensor, _: MaxPool(_several(entry, tensor), _shape(entry["in_shape"])),
}
