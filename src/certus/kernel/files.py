"""Networks, tree ensembles, costs, losses and domains from files: plain data, of which nothing is executed.

A safetensors file is 8 bytes with the length of a JSON header, the header with the type, the shape and the
place of every tensor, and the numbers, little-endian. Everything else is JSON: an object with a ``type`` and
the arguments of its constructor, where a tensor is given by its name, and ±∞ as "inf" and "-inf".

*What is proven.* The description is the statement. Bounds hold for the network with exactly the stored
numbers, in real arithmetic and as float64 computes it; and for every network whose weights are within
``folds`` roundings of the stored ones, whose biases are within as many roundings of ``bias_size``, which must
be at least |bias|, and whose softplus jumps at the stored threshold. An entry that a forger changes thus
changes which network, cost, loss or domain the bounds are about, and makes no bound wrong: fewer ``folds`` or
a larger threshold exclude other networks, never the stored one. That the stored network computes a given
model is not checked here.

Claimed norms are checked when they are read; ``written`` only selects the check. ``name``, ``kind`` and
``assumptions`` are text without effect. Unknown, missing and repeated entries are refused.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.kernel import operators
from certus.kernel.costs import Cost, Domain, Lp, Quadratic
from certus.kernel.graph import Graph, Node
from certus.kernel.groups import GroupLength, GroupSort
from certus.kernel.losses import Hinge, Softmax, SquaredError
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, AxisProduct, Convolution, Dense, Product, Transposed
from certus.kernel.passes import Primitive, Refused, Shape
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem
from certus.kernel.rows import with_columns
from certus.kernel.tree_profiles import TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices

Tensors = dict[str, Tensor]

_TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "BOOL": "|u1", "I16": "<i2"}
_MOST_BYTES = 1 << 36  # of a file
_MOST_ENTRIES = 1 << 26  # of a point at any node, and of a matrix that is written out
_MOST = 1e100  # of a number in JSON, so that its square is finite
FAULTS = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)

_NODE = "inputs:count* shape:shape primitive:primitive? axis:count? name:text kind:text assumptions:text*"
_ROUNDING = "folds:count bias_size:floats? norms:number* written:flag"
_CLAIM = "norms:number* written:flag parts:json*"
_COST = "shape:shape free:mask? label_price:extended"
KINDS: dict[str, dict[str, tuple[Callable[..., Any], str]]] = {
    "primitive": {
        "Dense": (Dense, "matrix:floats bias:floats? in_shape:shape out_shape:shape"),
        "Diagonal": (operators.Diagonal, "factors:floats bias:floats? shape:shape"),
        "Gather": (operators.Gather, "index:integers in_shape:shape"),
        "Reshape": (operators.Reshape, "in_shape:shape out_shape:shape"),
        "AxisProduct": (AxisProduct, "matrices:floats* bias:floats? in_shape:shape"),
        "Convolution": (
            Convolution,
            "weight:floats bias:floats? in_shape:shape "
            "stride:count* padding:count** dilation:count* groups:count",
        ),
        "Transposed": (Transposed, "original:primitive bias:floats?"),
        "Product": (Product, "parts:primitive*"),
        "Pointwise": (Pointwise, "scalar:scalar in_shape:shape sharpness:sharpness"),
        "MaxPool": (MaxPool, "windows:integers* in_shape:shape"),
        "GroupSort": (GroupSort, "groups:integers in_shape:shape"),
        "GroupLength": (GroupLength, "groups:integers in_shape:shape out_shape:shape"),
    },
    "cost": {
        "Lp": (Lp, f"{_COST} p:extended scales:floats?"),
        "Quadratic": (Quadratic, f"{_COST} matrix:floats root:floats"),
    },
    "loss": {
        "Softmax": (
            Softmax,
            "slope:number spread:number scale:number offset:number smoothing:number logistic:flag",
        ),
        "Hinge": (Hinge, "power:count"),
        "SquaredError": (SquaredError, ""),
    },
    "domain": {"Domain": (Domain, "lower:limits upper:limits center:floats? radius:extended")},
    "ensemble": {
        "Ensemble": (
            Ensemble,
            "roots:integers feature:integers threshold:limits left:integers right:integers missing_left:mask "
            "category_set:integers sets:mask value:floats bias:floats rounding:floats columns:count",
        )
    },
    "prices": {"Prices": (Prices, "move:limits gap:limits discrete:mask largest:flag label_price:extended")},
}
"""Type → constructor and the kinds of its arguments; affine primitives have those of ``_ROUNDING``, too."""

_STORED: dict[str, tuple[torch.dtype, Callable[[Tensor], Tensor]]] = {
    "floats": (torch.float64, torch.isfinite),
    "limits": (torch.float64, lambda tensor: ~torch.isnan(tensor)),
    "integers": (torch.int64, torch.isfinite),
    "mask": (torch.bool, torch.isfinite),
}
_PLAIN: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any]]] = {
    "count": (lambda entry: type(entry) is int and 0 <= entry < _MOST_BYTES, int),
    "number": (lambda entry: type(entry) in (int, float) and abs(entry) <= _MOST, float),
    "infinity": (lambda entry: entry in ("inf", "-inf"), float),
    "flag": (lambda entry: type(entry) is bool, bool),
    "text": (lambda entry: type(entry) is str, str),
    "json": (lambda entry: True, lambda entry: entry),
}
"""Kind → tensors that it accepts; kind → entries that it accepts, and what they become."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


def read_bytes(path: Path) -> bytes:
    """Read a regular file of limited size."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            about = os.fstat(file.fileno())
            regular = stat.S_ISREG(about.st_mode) and about.st_size <= _MOST_BYTES
            _require(regular, f"{path} is not a regular file of at most {_MOST_BYTES} bytes")
            return file.read(about.st_size)
    except (OSError, ValueError) as reason:
        raise Refused(f"{path} cannot be read: {reason}") from None


def parse_object(content: bytes) -> dict[str, Any]:
    """A JSON object without repeated keys."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _require(len(entries := dict(pairs)) == len(pairs), "a key of a description occurs twice")
        return entries

    try:
        entries = json.loads(content.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError) as reason:
        raise Refused(f"a description is not JSON: {reason}") from None
    _require(type(entries) is dict, "a description must be a JSON object")
    return dict(entries)


def parse_tensors(content: bytes) -> Tensors:
    """Tensors of a safetensors file, which fill all of it; float32 and int16 become float64, exactly."""
    size = int.from_bytes(content[:8], "little")
    _require(8 + size <= len(content), "a file of tensors ends before its header does")
    header, numbers = parse_object(content[8 : 8 + size]), memoryview(content)[8 + size :]
    kinds = "dtype:text shape:count* data_offsets:count*"
    entries = {name: _fields(header[name], kinds, {}) for name in header if name != "__metadata__"}
    places = sorted(entry["data_offsets"] for entry in entries.values())
    ends = [0, *(place[-1] for place in places if len(place) == 2)]
    filled = [place[0] for place in places if place] == ends[:-1] and ends[-1] == len(numbers)
    _require(filled, "the tensors of a file must lie one behind the other and fill it")
    return {name: _tensor(numbers, **entry) for name, entry in entries.items()}


def _tensor(numbers: memoryview, dtype: str, shape: Shape, data_offsets: Shape) -> Tensor:
    part, kind = numbers[slice(*data_offsets)], np.dtype(_TYPES.get(dtype, "V1"))
    fits = dtype in _TYPES and math.prod(shape) * kind.itemsize == len(part)
    _require(fits, f"a tensor must be of {', '.join(_TYPES)}, with as many bytes as its shape needs")
    tensor = torch.from_numpy(np.frombuffer(part, kind).copy()).reshape(shape)
    _require(dtype != "BOOL" or not bool((tensor > 1).any()), "a tensor of flags must hold 0 and 1")
    return tensor.to({"BOOL": torch.bool, "I64": torch.int64}.get(dtype, torch.float64))


def build_graph(description: Any, tensors: Tensors) -> Graph:
    """The network of a description; raise ``Refused`` if it describes none."""
    graph: Graph = _told("graph", _graph, description, tensors)
    return graph


def build_problem(description: Any, tensors: Tensors, data: tuple[Tensor, Tensor]) -> Problem:
    """The problem of a description, at (n, *shape) inputs with (n, …) targets."""
    problem: Problem = _told("problem", _problem, description, tensors, data)
    return problem


def build_tree_problem(description: Any, tensors: Tensors, data: tuple[Tensor, Tensor]) -> TreeProblem:
    """The problem of a description with an ensemble of trees, at (n, columns) rows with (n,) targets."""
    problem: TreeProblem = _told("problem", _tree_problem, description, tensors, data)
    return problem


def _tree_problem(description: Any, tensors: Tensors, data: tuple[Tensor, Tensor]) -> TreeProblem:
    parts = _fields(description, "ensemble:ensemble cost:prices loss:text", tensors)
    return TreeProblem(parts["ensemble"], parts["cost"], TreeLoss(parts["loss"]), *data)


def _graph(description: Any, tensors: Tensors) -> Graph:
    return Graph(_fields(description, "nodes:node* moves:json", tensors)["nodes"])


def _problem(description: Any, tensors: Tensors, data: tuple[Tensor, Tensor]) -> Problem:
    groups = description.get("columns", []) if type(description) is dict else []
    columns = _value("count**", groups, tensors)
    precision = description.get("deployment") if type(description) is dict else None
    options = ("columns", "deployment")
    description = {name: entry for name, entry in dict(description).items() if name not in options}
    parts = _fields(description, "graph:json cost:cost loss:loss domain:domain", tensors)
    graph, cost, domain = build_graph(parts["graph"], tensors), parts["cost"], parts["domain"]
    limits = [each for each in (domain.lower, domain.upper, domain.center) if each is not None]
    fits = all(torch.broadcast_shapes(each.shape, graph.shape) == graph.shape for each in limits)
    _require(fits, "the limits of the domain must fit the inputs of the graph")
    problem = Problem.of(graph, parts["loss"], cost, domain, data)
    claims = parts["graph"]["moves"]
    _accept_parts(
        [problem.graph.nodes[1].moves] * (cost.whitening is not None), [claims] * (claims is not None)
    )
    whole = with_columns(problem, columns)
    groups = () if whole.columns is None else whole.columns.groups
    _require(groups == columns, "columns must be groups of free inputs")
    return whole.deployed(None if precision is None else _value("text", precision, tensors))


def _told(place: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value read; any error of a constructor becomes a refusal that names the place."""
    try:
        return read(*arguments)
    except (Refused, *FAULTS) as reason:
        raise Refused(f"{place:.40}: {reason}") from None


def _fields(entry: Any, fields: str, tensors: Tensors) -> dict[str, Any]:
    """The entries of an object, each of its kind; neither more nor fewer."""
    kinds = dict(field.split(":") for field in fields.split())
    complete = type(entry) is dict and entry.keys() == kinds.keys()
    _require(complete, f"there must be an object with the entries {', '.join(kinds) or 'none'}")
    return {name: _told(name, _value, kind, entry[name], tensors) for name, kind in kinds.items()}


def _value(kind: str, entry: Any, tensors: Tensors) -> Any:
    """A value of some kind; ``*`` marks a list, and ``?`` what may be null."""
    if kind.endswith("?"):
        return None if entry is None else _value(kind[:-1], entry, tensors)
    if kind.endswith("*"):
        _require(type(entry) is list, f"there must be a list; got {entry!r:.40}")
        return tuple(_told(str(i), _value, kind[:-1], part, tensors) for i, part in enumerate(entry))
    if kind == "shape":
        return shape if _size(shape := _value("count*", entry, tensors)) else ()
    if kind == "node":
        return Node(**_fields(entry, _NODE, tensors))
    if kind in KINDS:
        return _typed(kind, entry, tensors)
    if kind == "scalar":
        return scalar(*_value("text*", entry[:1], tensors), *_value("extended*", entry[1:], tensors))
    if kind in ("sharpness", "extended") and type(entry) is str:
        return _value("floats" if kind == "sharpness" else "infinity", entry, tensors)
    if kind in _STORED:
        tensor = tensors.get(entry) if type(entry) is str else None
        fits = (
            tensor is not None and tensor.dtype == _STORED[kind][0] and bool(_STORED[kind][1](tensor).all())
        )
        _require(
            fits, f"there must be the name of a tensor of {kind}, finite unless limits; got {entry!r:.40}"
        )
        return tensor
    valid, make = _PLAIN.get(kind, _PLAIN["number"])
    _require(valid(entry), f"there must be a {kind}; got {entry!r:.40}")
    return make(entry)


def _typed(group: str, entry: Any, tensors: Tensors) -> Any:
    kind = entry.get("type") if type(entry) is dict else None
    _require(type(kind) is str and kind in KINDS[group], f"{kind!r:.40} is not a {group} of the kernel")
    make, fields = KINDS[group][str(kind)]
    affine = isinstance(make, type) and issubclass(make, Affine)
    rest = {name: part for name, part in entry.items() if name != "type"}
    values = _fields(rest, f"{fields} {_ROUNDING}" if affine else fields, tensors)
    rounding = {name: values.pop(name) for name in ("folds", "bias_size", "norms", "written") if affine}
    thing = make(**values)
    if isinstance(thing, Affine):
        thing.folds, size = rounding["folds"], rounding["bias_size"]
        bias = values.get("bias")
        _require((bias is None) == (size is None), "a bias has a bias_size, and without one there is none")
        if bias is not None:
            fits = size.shape == bias.shape and bool((size >= bias.abs()).all())
            _require(fits, "bias_size must be at least the size of the bias")
            thing.bias_size = size
    shapes = {name: shape for name, shape in values.items() if name in ("in_shape", "out_shape")}
    alike = all(getattr(thing, name) == shape for name, shape in shapes.items())
    _require(alike and _fits(thing), f"the entries of {kind} do not fit together")
    if isinstance(thing, Affine):
        _accept(thing, rounding["norms"], written=rounding["written"])
    return thing


def _fits(thing: Any) -> bool:
    """Whether the entries of a description fit together, where its constructor does not ask."""
    if isinstance(thing, Domain):
        ball = (thing.center is None) == (thing.radius == math.inf) and thing.radius > 0
        return ball and bool((thing.lower <= thing.upper).all())
    if isinstance(thing, Hinge):
        return thing.power in (1, 2)
    if isinstance(thing, Cost):
        free = thing.free is None or tuple(thing.free.shape) == thing.shape
        size = (_size(thing.shape),) * 2
        square = (
            not isinstance(thing, Quadratic) or tuple(thing.matrix.shape) == tuple(thing.root.shape) == size
        )
        return free and square and thing.label_price > 0
    if not isinstance(thing, Primitive):
        return True
    _size(thing.out_shape)
    if isinstance(thing, Convolution):
        _size((thing.in_shape[0], *thing.padded))
        _require(all(len(pair) == 2 for pair in thing.padding), "each axis has two paddings")
    # Its tensors fit the shapes if zeros of one lead to zeros of the other, and back.
    start, end = (torch.zeros(1, *shape, dtype=torch.float64) for shape in (thing.in_shape, thing.out_shape))
    fits = thing.apply(start).shape == end.shape
    if isinstance(thing, Affine):
        fits = fits and thing.transpose(end).shape == start.shape
    if isinstance(thing, Product):
        fits = fits and all(a.out_shape == b.in_shape for a, b in itertools.pairwise(thing.parts))
    if isinstance(thing, Transposed):  # whose rounding counts neither
        fits = fits and thing.original.bias is None and thing.original.folds == 0
    if isinstance(thing, Pointwise):
        fits = fits and all(abs(slope) <= _MOST for slope in thing.extremes[:2])  # NaN is not
    return fits


def _size(shape: Shape) -> int:
    size = math.prod(shape) if min(shape, default=1) > 0 else 0
    _require(0 < size <= _MOST_ENTRIES, f"the shape {shape} must have 1 to {_MOST_ENTRIES} entries")
    return size


def _accept(operator: Affine, norms: tuple[float, ...], *, written: bool) -> None:
    """Check a claimed norm, unless the same is known, or needs too large a matrix."""
    if written or (norms and not isinstance(operator, Dense | AxisProduct | Convolution)):
        _size((math.prod(operator.in_shape), math.prod(operator.out_shape)))
    if norms and (norms, written) != (operator.claim, operator.written):
        operator.accept(norms, written=written)
    operator.written = written


def _accept_parts(parts: Any, claims: list[Any]) -> None:
    """Check the claims for operators on moves, which follow from the first layer and the cost."""
    for operator, entry in zip(parts, claims, strict=True):
        claim = _fields(entry, _CLAIM, {})
        inner = [operator.original] if isinstance(operator, Transposed) else getattr(operator, "parts", ())
        _accept_parts(inner, claim["parts"])
        _accept(operator, claim["norms"], written=claim["written"])
