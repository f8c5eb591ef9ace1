"""Translation of an exported graph into layers, call by call.

Every call of a torch function is translated by its rule; a call without a rule is refused with the user's
line and a remedy.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from certus.bounds.constant_folding import GATHER_FUNCTIONS, SHAPE_FUNCTIONS, fold_constant, gather_indices
from certus.bounds.export import LEAF, ExportedGraph, export_graph, line_of
from certus.bounds.function_rules import (
    BATCHES,
    FUNCTIONS,
    BatchSize,
    Call,
    Constant,
    Variable,
    bind,
    flatten_nested,
    in_order,
    map_nested,
    scaled_by,
)
from certus.bounds.graph import Node, graph_steps
from certus.bounds.layer_rules import find_rule
from certus.bounds.passes import Shape, Stage, Step
from certus.errors import CertusError, UnsupportedError

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
class UnknownCall:
    """A call without a rule.

    Attributes:
        path, kind: of the module that contains the call or consists of it, and the function.
        line: of the user, as FILE:LINE: `code`; empty if unknown.
        reason: why there is no rule for it.
    """

    path: str
    kind: str
    line: str
    reason: str

    @property
    def advice(self) -> str:
        """A replacement for the call."""
        if "randomness" in self.reason:
            return "nothing in eval mode (`if self.training`)"
        name = f"@certus.bounds.rule({self.kind})" if self.kind[:1].isupper() else "@certus.bounds.rule"
        own = f"a module of its own whose rule you register with {name}; bounds then count as assumed"
        instead = _INSTEAD.get(self.kind.lower().replace("_", ""))
        return f"{instead}, or {own}" if instead else own

    @property
    def where(self) -> str:
        return f" in {self.line}" if self.line else ""


class UnknownCallError(UnsupportedError):
    """A call in a graph has no rule."""

    def __init__(self, unknown: UnknownCall) -> None:
        place = unknown.path or "the model itself"
        super().__init__(
            f"There is no proof through {unknown.kind} ({place}){unknown.where}: {unknown.reason}. "
            f"Replace it by {unknown.advice}. certus.bounds.validate(model) lists all such calls; "
            "certify_smoothed certifies any model by randomised smoothing."
        )
        self.unknown = unknown


ReadModule = Callable[[nn.Module, Shape, str], list[Step]]

_SAME = frozenset(
    (
        *("clone", "detach", "contiguous", "alias", "lift_fresh_copy", "_to_copy", "to", "dropout"),
        *("native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"),
    )
)
_SCALED = frozenset(("mul", "div", "neg"))
_ADDED = frozenset(("add", "sub", "rsub"))
_JOINED = frozenset(("cat", "concat", "concatenate", "stack"))


class GraphReader:
    """Translates the nodes of an exported graph in order.

    Attributes:
        nodes: of the translated graph so far; the first is the input.
        unknown: calls without a rule, if they are collected.
    """

    def __init__(
        self, traced: ExportedGraph, model: nn.Module, shape: Shape, path: str, read: ReadModule
    ) -> None:
        self._traced, self._prefix, self._read = traced, path, read
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._values: dict[fx.Node, Any] = {node: Constant(value) for node, value in traced.constants.items()}
        self._values[traced.inputs] = Variable(0, shape)
        self._paths: dict[str, int] = {}
        self.nodes = [Node((), shape)]
        self.unknown: list[UnknownCall] = []

    def run(self, *, collect: bool = False) -> int:
        """Translate all nodes; return the number of the output.

        Args:
            collect: continue behind calls without a rule, as far as possible.
        """
        for node in self._traced.nodes:
            if node in self._values:
                continue
            try:
                self._values[node] = self._read_node(node)
            except UnknownCallError as reason:
                shape = _sample_shape(node)
                if not collect:
                    raise
                self.unknown.append(reason.unknown)
                if shape is None:
                    return 0
                self._values[node] = self._add(Node((0,), shape))
        output = self._values[self._traced.nodes[-1]]
        if not isinstance(output, Variable):
            raise UnsupportedError("The outputs of the model must depend on its inputs; they are constant.")
        return output.number

    def _read_node(self, node: fx.Node) -> Any:
        """The value of a node: a ``Variable``, a ``Constant``, a ``BatchSize``, or a list of these."""

        def value(each: Any) -> Any:
            return self._values[each] if isinstance(each, fx.Node) else each

        args = map_nested(list(node.args), value)
        options = {name: map_nested(each, value) for name, each in node.kwargs.items()}
        target: Any = node.target
        kind = (
            target._schema.name.split("::")[1] if isinstance(target, torch._ops.OpOverload) else str(target)
        )
        try:
            if target is LEAF:
                return self._leaf(node, args[0], *self._traced.leaves[args[1]])
            if target is operator.getitem:
                if not isinstance(args[0], list) or args[1] >= len(args[0]):
                    raise UnsupportedError("an output without a rule")
                return args[0][args[1]]
            moving = any(
                isinstance(each, Variable) for each in flatten_nested([args, list(options.values())])
            )
            if not moving or kind in SHAPE_FUNCTIONS:
                return fold_constant(node, args, options)
            if not isinstance(target, torch._ops.OpOverload):
                raise UnsupportedError("no rule")
            call = Call(kind, node, bind(target, tuple(args), options), _sample_shape(node))
            value_behind = self._called(call, args, options)
            if isinstance(value_behind, Variable):
                self._check_precision(node)
            return value_behind
        except UnknownCallError:
            raise
        except UnsupportedError as reason:
            path, name = self._name(node, kind)
            why = str(reason).removeprefix(f"The layer {path} ({name}) has ").removesuffix(".")
            _, layer = self._layer(node)
            if layer is not None and find_rule(layer) is None and "randomness" not in why:
                why = "no rule"  # for the torch layer as a whole, not for its first call
            raise UnknownCallError(UnknownCall(path, name, line_of(node), f"it has {why}")) from None

    def _check_precision(self, node: fx.Node) -> None:
        """Raise if the outputs of a call are integers, or of lower precision than its inputs."""
        dtype = node.meta["val"].dtype
        given = [
            each.meta["val"].dtype
            for each in node.all_input_nodes
            if isinstance(self._values[each], Variable)
        ]
        if dtype not in (torch.float32, torch.float64, *given):
            raise UnsupportedError(f"outputs in {dtype}, which rounds")

    def _called(self, call: Call, args: list[Any], options: dict[str, Any]) -> Any:
        if call.name == "sym_size":
            return BatchSize(BATCHES) if call["dim"] == 0 else call["self"].shape[call["dim"] - 1]
        if call.name == "copy" and isinstance(call["src"], Variable) and call["src"].shape == call.shape:
            return call["src"]
        if call.name in _SAME:
            return _unchanged(call)
        if call.name in GATHER_FUNCTIONS:
            inputs, indices = gather_indices(call, args, options)
            outputs = [self._append(call, inputs, [in_order(index, inputs.shape)]) for index in indices]
            return outputs if call.shape is None else outputs[0]
        if torch.Tag.nondeterministic_seeded in call.node.target.tags:  # type: ignore[union-attr]
            raise UnsupportedError("randomness in eval mode; use it in training only")
        if call.name in FUNCTIONS:
            inputs, stages = FUNCTIONS[call.name](call)
            behind = self._append(call, inputs, stages)
            return [behind] if call.shape is None else behind  # the first of several outputs
        if call.shape is None or call.name not in _ADDED | _SCALED | _JOINED:
            raise UnsupportedError("no rule")
        if call.name in _ADDED:
            return self._added(call, call.shape)
        return self._scaled(call, call.shape) if call.name in _SCALED else self._joined(call, call.shape)

    def _append(self, call: Call, inputs: Variable, stages: Sequence[Stage]) -> Variable:
        path, kind = self._name(call.node, call.name)
        for stage in stages:
            behind = stage.output_shape(inputs.shape)
            if min(behind, default=1) < 1:
                raise UnsupportedError(f"inputs of shape {inputs.shape}, too small for it")
            step = Step(self._once(path), kind, stage, inputs.shape, behind, line=line_of(call.node))
            inputs = self._add(Node((inputs.number,), behind, step.path, step))
        return inputs

    def _add(self, node: Node) -> Variable:
        self.nodes.append(node)
        return Variable(len(self.nodes) - 1, node.shape)

    def _join(self, call: Call, parts: Sequence[Variable], shape: Shape, axis: int | None = None) -> Variable:
        path, _ = self._name(call.node, call.name)
        return self._add(Node(tuple(part.number for part in parts), shape, self._once(path), axis=axis))

    def _leaf(self, node: fx.Node, inputs: Any, name: str, module: nn.Module) -> Variable:
        """Translate a module that has a rule."""
        path = f"{self._prefix}.{name}" if self._prefix else name
        if not isinstance(inputs, Variable):
            raise UnsupportedError("constant inputs")
        behind: Variable = inputs
        for step in self._read(module, inputs.shape, path):
            numbered = replace(step, path=self._once(step.path), line=line_of(node))
            behind = self._add(Node((behind.number,), step.out_shape, numbered.path, numbered))
        if behind.shape != _sample_shape(node):
            raise CertusError(
                f"The rule of {path} gives outputs of shape {behind.shape}; its forward gives another."
            )
        return behind

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
        stage = scaled_by(_number(own), factor * _per_sample(other, shape), shape)
        return self._append(call, self._spread(call, shape, inputs), [stage])

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
        stage = scaled_by(1 / factor if call.name == "div" else factor, None, shape)
        return self._append(call, self._spread(call, shape, inputs), [stage])

    def _spread(self, call: Call, shape: Shape, inputs: Variable, factor: float = 1.0) -> Variable:
        """Broadcast to a shape, and multiply."""
        stages: list[Stage] = []
        if inputs.shape != shape:
            if len(inputs.shape) != len(shape):
                raise UnsupportedError("broadcasting between the batch and another axis")
            index = torch.arange(math.prod(inputs.shape)).reshape(inputs.shape).expand(shape)
            stages.append(in_order(index, inputs.shape))
        if factor != 1:
            stages.append(scaled_by(_number(factor), None, shape))
        return self._append(call, inputs, stages)

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
                numbers = torch.arange(math.prod(part.shape)).reshape(wider)
                part = self._append(call, part, [in_order(numbers, part.shape)])
            parts.append(part)
        return parts[0] if len(parts) == 1 else self._join(call, parts, shape, axis - 1)

    def _name(self, node: fx.Node, kind: str) -> tuple[str, str]:
        """Path and kind: of the torch layer that contains the call, or of the call within its module."""
        inner, layer = self._layer(node)
        path = ".".join(part for part in (self._prefix, inner) if part)
        if layer is not None:
            return path, type(layer).__name__
        return (f"{path}.{kind}" if path else kind), kind

    def _layer(self, node: fx.Node) -> tuple[str, nn.Module | None]:
        """The path of the module that contains a call, and the module if it is one of torch.nn."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = stack[-1][0].split("@")[0] if stack else ""
        module = self._modules.get(path)
        return path, module if type(module).__module__.startswith("torch.nn.modules") else None

    def _once(self, path: str) -> str:
        """The path, numbered if it occurred before."""
        self._paths[path] = self._paths.get(path, 0) + 1
        count = self._paths[path]
        return path if count == 1 else f"{path}@{count}"


def _unchanged(call: Call) -> Any:
    """Copies and conversions, and dropout in eval mode."""
    inputs = call.moving("input" if "dropout" in call.name else "self")
    if call.get("train"):
        raise UnsupportedError("randomness in eval mode; pass training=self.training")
    dtype = call.get("dtype")
    if isinstance(dtype, torch.dtype) and dtype not in (torch.float32, torch.float64):
        raise UnsupportedError(f"a conversion to {dtype}, which rounds")
    return [inputs] if call.shape is None else inputs


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


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


def _sample_shape(node: fx.Node) -> Shape | None:
    """The shape of one sample of a node's output; None unless it is a tensor whose first axis is the
    batch."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.dim() < 1 or not isinstance(value.shape[0], torch.SymInt):
        return None
    rest = tuple(value.shape[1:])
    return None if any(isinstance(size, torch.SymInt) for size in rest) else rest


def read_graph(
    model: nn.Module, shape: Shape, path: str, is_leaf: Callable[[nn.Module], bool], read: ReadModule
) -> list[Step]:
    """The steps of a module with its own forward."""
    reader = GraphReader(export_graph(model, shape, is_leaf), model, shape, path, read)
    output = reader.run()
    return graph_steps(reader.nodes, output)


def inspect_graph(
    model: nn.Module, shape: Shape, is_leaf: Callable[[nn.Module], bool], read: ReadModule
) -> tuple[list[UnknownCall], list[Step]]:
    """All calls of a model without a rule, and all steps with one."""
    reader = GraphReader(export_graph(model, shape, is_leaf), model, shape, "", read)
    reader.run(collect=True)
    return reader.unknown, [node.step for node in reader.nodes if node.step is not None]
