"""Translation of an exported graph into nodes, call by call.

Every call of a torch function is translated by its rule; a call without a rule is refused with the user's
line and a remedy. A call that does not depend on the inputs is computed (constant folding). A function that
only rearranges numbers (a slice, a permutation, padding, repetition) is run on 1, 2, 3, … in place of the
inputs, which reveals its index map. Both are done for two batch sizes, in which all samples must be treated
alike.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from certus.bounds.export import LEAF, export_graph, line_of
from certus.bounds.function_rules import (
    BATCHES,
    FUNCTIONS,
    BatchSize,
    Call,
    Constant,
    Variable,
    scaled_by,
)
from certus.bounds.layer_rules import find_rule, in_order
from certus.errors import CertusError, UnsupportedError
from certus.kernel.graph import Node
from certus.kernel.groups import GroupSort
from certus.kernel.operators import Gather, Reshape
from certus.kernel.passes import Primitive, Refused, Shape

_NORM = "batch norm, which is affine in eval mode"
_INSTEAD = {
    **dict.fromkeys(("layernorm", "nativelayernorm", "groupnorm", "instancenorm", "rmsnorm"), _NORM),
    "hardswish": "torch.nn.functional.silu",
    "hardsigmoid": "torch.sigmoid",
    "prelu": "torch.nn.functional.elu",
    "softmax": "plain outputs, if it is the last layer",
    "adaptivemaxpool2d": "adaptive average pooling",
}


@dataclass(frozen=True)
class UnsupportedLayer:
    """A layer, or a call of a function, without a finite bound on its curvature, or without any rule.

    Attributes:
        path, kind: location in the model, and type.
        reason: why nothing, or no smoothness, is proven.
        replacement: description of a replacement.
        repairable: whether ``smooth`` replaces it.
        line: the user's line, as FILE:LINE: `code`, that calls the function or uses the layer.
    """

    path: str
    kind: str
    reason: str
    replacement: str
    repairable: bool = False
    line: str = ""


def _advice(kind: str, reason: str) -> str:
    """A replacement for a call without a rule."""
    if "randomness" in reason:
        return "nothing in eval mode (`if self.training`)"
    name = f"@certus.bounds.rule({kind})" if kind[:1].isupper() else "@certus.bounds.rule"
    own = f"a module of its own whose rule you register with {name}; bounds then count as assumed"
    instead = _INSTEAD.get(kind.lower().replace("_", ""))
    return f"{instead}, or {own}" if instead else own


class UnknownCallError(UnsupportedError):
    """A call in a graph has no rule."""

    def __init__(self, call: UnsupportedLayer) -> None:
        where = f"({call.path or 'the model itself'})" + (f" in {call.line}" if call.line else "")
        super().__init__(
            f"No bound can be proven through {call.kind} {where}: {call.reason}. Replace it by "
            f"{call.replacement}. certus.bounds.validate(model) lists all such calls; certify_smoothed "
            "certifies any model by randomised smoothing."
        )
        self.call = call


ReadModule = Callable[[nn.Module, list[Node], int, str], int]
"""Appends the nodes of a module that is applied to a node, and returns the number of its output."""

_SAME = frozenset(
    (
        *("clone", "detach", "contiguous", "alias", "lift_fresh_copy", "_to_copy", "to", "dropout"),
        *("native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
    )
)


_GATHERS = frozenset(
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

_ORDERED = frozenset(("max", "min", "amax", "amin", "maximum", "minimum", "sort"))
"""Functions of the order of entries."""

_OF_SHAPE = frozenset(("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"))
"""Functions of a shape only."""

_SIZED = _OF_SHAPE | {"zeros", "ones", "full", "view", "reshape", "_unsafe_view", "expand", "repeat"}
"""Functions that may take a batch size: they use it as a size, and treat all samples alike."""

_ALIKE = _GATHERS | frozenset(
    ("clone", "detach", "contiguous", "alias", "to", "_to_copy", "sum", "mean", "cat", "stack")
)
"""Functions that map equal samples to equal outputs, beside elementwise ones."""


class GraphReader:
    """Translates the nodes of an exported module in order.

    Attributes:
        nodes: the network so far, to which nodes are appended.
        unknown: calls without a rule, if they are collected.
    """

    def __init__(self, model: nn.Module, nodes: list[Node], start: int, path: str, read: ReadModule) -> None:
        self.nodes, self.unknown = nodes, list[UnsupportedLayer]()
        self._exported = exported = export_graph(model, nodes[start].shape)
        self._prefix, self._read = path, read
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._values: dict[fx.Node, Any] = {
            node: Constant(value) for node, value in exported.constants.items()
        }
        self._values[exported.inputs] = Variable(start, nodes[start].shape)
        self._uses = Counter[str]()
        self._sorted: dict[tuple[Any, ...], Variable] = {}

    def run(self, *, collect: bool = False) -> int:
        """Translate all nodes; return the number of the output.

        Args:
            collect: continue behind calls without a rule, as far as possible.
        """
        for node in self._exported.nodes:
            if node in self._values:
                continue
            try:
                self._values[node] = self._read_node(node)
            except UnknownCallError as reason:
                if not collect:
                    raise
                self.unknown.append(reason.call)
                shape = Call(node, [], {}).shape
                if shape is None:
                    return 0
                self._values[node] = self._add(Node((0,), shape))  # stands for any outputs of this shape
        output = self._values[self._exported.nodes[-1]]
        if not isinstance(output, Variable):
            raise UnsupportedError("The outputs of the model must depend on its inputs; they are constant.")
        return output.number

    def _read_node(self, node: fx.Node) -> Any:
        """The value of a node: a ``Variable``, a ``Constant``, a ``BatchSize``, or a list of these."""

        def value(each: Any) -> Any:
            return self._values[each] if isinstance(each, fx.Node) else each

        call = Call(node, tree_map(value, list(node.args)), tree_map(value, dict(node.kwargs)))
        try:
            return self._called(call)
        except UnknownCallError:
            raise
        except (UnsupportedError, Refused) as reason:
            path, name = self._name(call)
            why = str(reason).removeprefix(f"The layer {path} ({name}) has ").removesuffix(".")
            _, layer = self._layer(node)
            if layer is not None and find_rule(layer) is None and "randomness" not in why:
                why = "no rule"  # for the torch layer as a whole, not for its first call
            why = f"it has {why}"
            unknown = UnsupportedLayer(path, name, why, _advice(name, why), line=line_of(node))
            raise UnknownCallError(unknown) from None

    def _called(self, call: Call) -> Any:
        target, args = call.node.target, call.args
        if target is LEAF:
            return self._leaf(call, *self._exported.leaves[args[1]])
        if target is operator.getitem:
            if not isinstance(args[0], list) or args[1] >= len(args[0]):
                raise UnsupportedError("an output without a rule")
            return args[0][args[1]]
        moving = any(isinstance(each, Variable) for each in tree_leaves([args, call.options]))
        if not moving or call.name in _OF_SHAPE:
            return _fold_constant(call)
        if not isinstance(target, OpOverload):
            raise UnsupportedError("no rule")
        outputs = self._translated(call, target)
        if isinstance(outputs, Variable):  # neither integers, nor of lower precision than the inputs
            sources = [each for each in call.node.all_input_nodes if isinstance(self._values[each], Variable)]
            given = [each.meta["val"].dtype for each in sources]
            if (dtype := call.node.meta["val"].dtype) not in (torch.float32, torch.float64, *given):
                raise UnsupportedError(f"outputs in {dtype}, which rounds")
        return outputs

    def _translated(self, call: Call, target: OpOverload) -> Any:
        if call.name == "sym_size":
            return BatchSize(BATCHES) if call["dim"] == 0 else call["self"].shape[call["dim"] - 1]
        if call.name == "copy" and isinstance(call["src"], Variable) and call["src"].shape == call.shape:
            return call["src"]
        if call.name in _SAME:
            return _unchanged(call)
        if call.name in _GATHERS:
            inputs, indices = _gather_indices(call)
            outputs = [self._append(call, inputs, [in_order(index, inputs.shape)]) for index in indices]
            return outputs if call.shape is None else outputs[0]
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnsupportedError("randomness in eval mode; use it in training only")
        if call.name in FUNCTIONS:
            inputs, primitives = FUNCTIONS[call.name](call)
            behind = self._append(call, inputs, primitives)
            return [behind] if call.shape is None else behind  # the first of several outputs
        if call.name in _ORDERED:
            return self._ordered(call)
        method = self._METHODS.get(call.name)
        if call.shape is None or method is None:
            raise UnsupportedError("no rule")
        return method(self, call, call.shape)

    def _append(self, call: Call, inputs: Variable, primitives: Sequence[Primitive]) -> Variable:
        path, kind = self._name(call)
        line = line_of(call.node)
        for primitive in primitives:
            shape = primitive.out_shape
            if min(shape, default=1) < 1:
                raise UnsupportedError(f"inputs of shape {inputs.shape}, too small for it")
            node = Node((inputs.number,), shape, primitive, name=self._once(path), kind=kind, line=line)
            inputs = self._add(node)
        return inputs

    def _add(self, node: Node) -> Variable:
        self.nodes.append(node)
        return Variable(len(self.nodes) - 1, node.shape)

    def _join(self, call: Call, parts: Sequence[Variable], shape: Shape, axis: int | None = None) -> Variable:
        path, kind = self._name(call)
        inputs = tuple(part.number for part in parts)
        return self._add(Node(inputs, shape, axis=axis, name=self._once(path), kind=kind))

    def _leaf(self, call: Call, name: str, module: nn.Module) -> Variable:
        """Translate a module that has a rule."""
        path = f"{self._prefix}.{name}" if self._prefix else name
        inputs, begin, line = call.args[0], len(self.nodes), line_of(call.node)
        if not isinstance(inputs, Variable):
            raise UnsupportedError("constant inputs")
        number = self._read(module, self.nodes, inputs.number, path)
        added = self.nodes[begin:]
        self.nodes[begin:] = [replace(each, name=self._once(each.name), line=line) for each in added]
        shape = self.nodes[number].shape
        if shape != call.shape:
            raise CertusError(
                f"The rule of {path} gives outputs of shape {shape}; its forward gives another."
            )
        return Variable(number, shape)

    def _added(self, call: Call, shape: Shape) -> Variable:
        alpha = call.number("alpha", 1.0)
        terms = [(call["self"], 1.0), (call["other"], -alpha if call.name == "sub" else alpha)]
        if call.name == "rsub":
            terms = [(call["other"], 1.0), (call["self"], -alpha)]
        moving = [(value, factor) for value, factor in terms if isinstance(value, Variable)]
        if len(moving) == 2:
            return self._join(call, [self._spread(call, shape, *term) for term in moving], shape)
        ((inputs, own),) = moving
        ((other, factor),) = [term for term in terms if term[0] is not inputs]
        moved = scaled_by(own, factor * _per_sample(other, shape), shape)
        return self._append(call, self._spread(call, shape, inputs), [moved])

    def _scaled(self, call: Call, shape: Shape) -> Variable:
        first, second = call["self"], call.get("other", -1.0)
        if isinstance(first, Variable) and isinstance(second, Variable):
            raise UnsupportedError("two factors that depend on the inputs; one must be constant")
        if call.get("rounding_mode") is not None:
            raise UnsupportedError("a `rounding_mode`")
        if call.name == "div" and not isinstance(first, Variable):
            raise UnsupportedError("a divisor that depends on the inputs; it must be constant")
        inputs, other = (first, second) if isinstance(first, Variable) else (second, first)
        factor = _per_sample(other, shape)
        scaling = scaled_by(1 / factor if call.name == "div" else factor, None, shape)
        return self._append(call, self._spread(call, shape, inputs), [scaling])

    def _spread(self, call: Call, shape: Shape, inputs: Variable, factor: float = 1.0) -> Variable:
        """Broadcast to a shape, and multiply."""
        primitives: list[Primitive] = []
        if inputs.shape != shape:
            if len(inputs.shape) != len(shape):
                raise UnsupportedError("broadcasting between the batch and another axis")
            index = torch.arange(math.prod(inputs.shape)).reshape(inputs.shape).expand(shape)
            primitives.append(in_order(index, inputs.shape))
        if factor != 1:
            primitives.append(scaled_by(factor, None, shape))
        return self._append(call, inputs, primitives)

    def _joined(self, call: Call, shape: Shape) -> Variable:
        axis = int(call["dim"]) % (len(shape) + 1)
        if axis == 0:
            raise UnsupportedError("the batch as its axis, so that samples depend on each other")
        parts: list[Variable] = []
        for part in call["tensors"]:
            if not isinstance(part, Variable):
                raise UnsupportedError("a constant part; pad the other parts with zeros and add it")
            if call.name == "stack":
                wider = (*part.shape[: axis - 1], 1, *part.shape[axis - 1 :])
                part = self._append(call, part, [Reshape(part.shape, wider)])
            parts.append(part)
        return self._beside(call, parts, shape, axis - 1)

    def _beside(self, call: Call, parts: Sequence[Variable], shape: Shape, axis: int) -> Variable:
        """Concatenate; where all parts are entries of one node, gather them from it, each entry once."""
        if len(parts) == 1:
            return parts[0]
        origins = [self._origin(part) for part in parts]
        if len({number for number, _ in origins}) > 1:
            return self._join(call, parts, shape, axis)
        source = Variable(origins[0][0], self.nodes[origins[0][0]].shape)
        index = torch.cat([index for _, index in origins], axis)
        return self._append(call, source, [in_order(index, source.shape)])

    def _origin(self, variable: Variable) -> tuple[int, Tensor]:
        """The node before all rearrangements, and the place in it of each entry; −1 for 0."""
        node = self.nodes[variable.number]
        if not isinstance(node.primitive, Gather | Reshape):
            return variable.number, torch.arange(math.prod(variable.shape)).reshape(variable.shape)
        number, index = self._origin(Variable(node.inputs[0], node.primitive.in_shape))
        if isinstance(node.primitive, Reshape):
            return number, index.reshape(variable.shape)
        places = node.primitive.index
        return number, torch.where(places < 0, -1, index.flatten()[places])

    def _ordered(self, call: Call) -> Any:
        """Largest, smallest or sorted entries along an axis, or of two tensors: the same sort for all."""
        name, first, second = call.name, call.moving("self"), call.get("other")
        if second is not None:
            if not isinstance(second, Variable) or first.shape != second.shape:
                raise UnsupportedError("an argument that is constant, or of another shape")
            key, axis, shape = (first.number, second.number), 0, (2, *first.shape)
            beside = [
                self._append(call, part, [Reshape(part.shape, (1, *part.shape))]) for part in (first, second)
            ]
        else:
            given = call.get("dim")
            axes = [given] if isinstance(given, int) else list(given or ())
            if len(axes) != 1 or axes[0] % (len(first.shape) + 1) == 0:
                raise UnsupportedError("no axis of one sample; give `dim`")
            axis, shape, beside = axes[0] % (len(first.shape) + 1) - 1, first.shape, [first]
            key = (first.number, axis)
        if key not in self._sorted:
            whole = self._beside(call, beside, shape, axis)
            places = torch.arange(math.prod(shape)).reshape(shape)
            groups = places.movedim(axis, -1).reshape(-1, shape[axis])
            self._sorted[key] = self._append(call, whole, [GroupSort(groups, shape)])
        places = torch.arange(math.prod(shape)).reshape(shape).movedim(axis, 0)
        if name == "sort":
            chosen = (places if call.get("descending") else places.flip(0)).movedim(0, axis)
        else:
            chosen = places[0] if name in ("max", "amax", "maximum") else places[-1]
            chosen = chosen.unsqueeze(axis) if call.get("keepdim") else chosen
        values = self._append(call, self._sorted[key], [in_order(chosen, shape)])
        return values if call.shape is not None else [values]  # the indices have no rule

    _METHODS: ClassVar[dict[str, Callable[[GraphReader, Call, Shape], Variable]]] = {
        **dict.fromkeys(("add", "sub", "rsub"), _added),
        **dict.fromkeys(("mul", "div", "neg"), _scaled),
        **dict.fromkeys(("cat", "concat", "concatenate", "stack"), _joined),
    }

    def _name(self, call: Call) -> tuple[str, str]:
        """Path and kind: of the torch layer that contains the call, or of the call within its module."""
        inner, layer = self._layer(call.node)
        path = [part for part in (self._prefix, inner) if part]
        if layer is not None:
            return ".".join(path), type(layer).__name__
        return ".".join([*path, call.name]), call.name

    def _layer(self, node: fx.Node) -> tuple[str, nn.Module | None]:
        """The path of the module that contains a call, and the module if it is one of torch.nn."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = stack[-1][0].split("@")[0] if stack else ""
        module = self._modules.get(path)
        return path, module if type(module).__module__.startswith("torch.nn.modules") else None

    def _once(self, path: str) -> str:
        """The path, numbered if it occurred before."""
        self._uses[path] += 1
        return path if self._uses[path] == 1 else f"{path}@{self._uses[path]}"


def _unchanged(call: Call) -> Any:
    """Copies and conversions, and dropout in eval mode."""
    inputs = call.moving("input" if "dropout" in call.name else "self")
    if call.get("train"):
        raise UnsupportedError("randomness in eval mode; pass training=self.training")
    dtype = call.get("dtype")
    if isinstance(dtype, torch.dtype) and dtype not in (torch.float32, torch.float64):
        raise UnsupportedError(f"a conversion to {dtype}, which rounds")
    return [inputs] if call.shape is None else inputs


def _per_sample(value: Any, shape: Shape) -> Tensor:
    """A constant as it is combined with one sample."""
    if isinstance(value, BatchSize):
        raise UnsupportedError("a number that depends on the batch size")
    tensor = value.value if isinstance(value, Constant) else torch.as_tensor(value, dtype=torch.float64)
    if tensor.dim() == len(shape) + 1 and len(tensor) == 1:
        tensor = tensor[0]
    if tensor.dim() > len(shape):
        raise UnsupportedError("a constant tensor with different values along the batch")
    return tensor.detach().cpu().double().expand(shape)


def _gather_indices(call: Call) -> tuple[Variable, list[Tensor]]:
    """The rearranged variable, and (*out_shape) indices of each output into a flattened sample; −1 for 0."""
    moving = [value for value in tree_leaves(call.arguments) if isinstance(value, Variable)]
    first = next(iter(call.arguments.values()))
    if first is not moving[0] or (len(moving) > 1 and not call.name.endswith("_as")):
        raise UnsupportedError("several arguments that depend on the inputs")
    _check_counts(call)
    if call.name == "roll" and not all(axis % (len(moving[0].shape) + 1) for axis in call["dims"] or [0]):
        raise UnsupportedError("outputs that mix samples of a batch")
    if call.name in ("pad", "constant_pad_nd") and call.get("value") not in (None, 0, 0.0):
        raise UnsupportedError("a padding value other than 0")
    numbered = [_numbered(call, moving[0], batch) for batch in range(len(BATCHES))]
    indices = []
    for few, many in zip(*numbered, strict=True):
        if few.shape != many.shape or not bool((few == many).all()):
            raise UnsupportedError("outputs that depend on the batch size")
        indices.append(few.long() - 1)
    return moving[0], indices


def _numbered(call: Call, moving: Variable, batch: int) -> list[Tensor]:
    """(*out_shape) the entry of a sample, counted from 1, that each output comes from; 0 for none."""
    samples, size = BATCHES[batch], math.prod(moving.shape)
    numbers = torch.arange(1, samples * size + 1, dtype=torch.float64).reshape(samples, *moving.shape)

    def filled(value: Variable, samples: int) -> Tensor:
        return numbers if value is moving else torch.zeros(samples, *value.shape, dtype=torch.float64)

    outputs = _run(call, filled, batch)
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


def _fold_constant(call: Call) -> Any:
    """Compute a value that does not depend on the inputs, as the module itself does."""
    target, value = call.node.target, call.node.meta.get("val")
    counted = any(
        isinstance(each, BatchSize | Variable) or (isinstance(each, Constant) and each.batched)
        for each in tree_leaves([call.args, call.options])
    )
    if isinstance(target, OpOverload):
        if torch.Tag.nondeterministic_seeded in target.tags:
            raise UnsupportedError("random values")
        if "empty" in target._schema.name:
            raise UnsupportedError("uninitialised values")
        if counted and isinstance(value, Tensor):
            if call.name not in _SIZED | _ALIKE and torch.Tag.pointwise not in target.tags:
                raise UnsupportedError("values that may depend on the batch size")
            _check_counts(call)
    dtype = value.dtype if isinstance(value, Tensor) else torch.get_default_dtype()

    def blank(moving: Variable, samples: int) -> Tensor:
        return torch.zeros(samples, *moving.shape, dtype=dtype)

    if counted:
        return _agreed(*(_run(call, blank, batch) for batch in range(len(BATCHES))))
    values = _run(call, blank, 0)
    values = list(values) if isinstance(values, tuple) else values
    return tree_map(lambda each: Constant(each) if isinstance(each, Tensor) else each, values)


def _check_counts(call: Call) -> None:
    """Raise if a batch size is used as anything but a size: only two sizes are tested."""
    values = call.arguments if call.name not in _SIZED else call.get("fill_value")
    if any(isinstance(value, BatchSize) for value in tree_leaves(values)):
        raise UnsupportedError("a number that depends on the batch size")


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


def _run(call: Call, inputs: Callable[[Variable, int], Tensor], batch: int) -> Any:
    """Call the function with concrete values."""

    def real(value: Any) -> Any:
        match value:
            case Variable():
                return inputs(value, BATCHES[batch])
            case BatchSize():
                return value.values[batch]
            case Constant(tensor, batched):
                return tensor.expand(BATCHES[batch], *tensor.shape[1:]) if batched else tensor
        return value

    target: Any = call.node.target
    with torch.no_grad():
        return target(*tree_map(real, call.args), **tree_map(real, call.options))
