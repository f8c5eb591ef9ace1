"""Export of a module to a graph, and detection of modified modules.

Modules that torch does not run as their class says: hooks, functions put in place of torch's own, tensors
of a class of their own, and a forward that asks whether it is traced.

A rule speaks for the ``forward`` of a class. What runs before, behind or instead of it has no rule, and may
do nothing at the few points where a model is tried.

The graph of a module, as ``torch.export`` takes it: in eval mode, from tensors that have shapes and no
values.

So nothing in the graph can depend on the values of an input: a forward that looks at them is refused, by its
line. The first axis has no size either; what needs one to be known is refused as well. Modules that have a
rule are not looked into: each becomes one call in the graph. What a graph does to tensors in place is turned
into plain functions of them.
"""

from __future__ import annotations

import io
import itertools
import logging
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from certus._eval_mode import names_in, parts_of_function
from certus.bounds.passes import Shape
from certus.errors import UnsupportedError

_CALLED = (
    *("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "__getattribute__", "__getattr__"),
    *("__iter__", "_conv_forward"),
)
"""What runs beside ``forward`` when a module of torch is called, a ``Sequential`` or a convolution too."""

_EVERYBODYS_HOOKS = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)


_ASKING = {"is_compiling", "is_exporting", "is_dynamo_compiling", "is_torchdynamo_compiling", "is_tracing"}
"""Functions whose answer differs between a model that runs and one whose graph is taken."""


PLAIN: tuple[type[Tensor], ...] = (Tensor, nn.Parameter)
"""Classes of tensors that compute what torch says."""


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks may change what the module computes, those on all modules included."""
    return any((module._forward_hooks, module._forward_pre_hooks, *_EVERYBODYS_HOOKS))


def is_modified(module: nn.Module) -> bool:
    """Whether hooks, or functions put in place of torch's own, may change what the module computes."""
    own = type(module)
    replaced = "forward" in vars(module)
    for name in _CALLED:
        function = getattr(own, name, None)
        known = function in (None, object.__getattribute__)
        torchs = known or str(getattr(function, "__module__", None)).startswith("torch.")
        replaced |= name in vars(module) or not torchs
    return replaced or has_hooks(module) or bool(foreign_tensors(module))


def foreign_tensors(module: nn.Module) -> dict[str, str]:
    """Names and classes of a module's own parameters, buffers and other tensors that are not plain ones.

    A subclass of ``Tensor`` may compute anything, and a lazy parameter has no values yet.
    """
    own = {**vars(module), **module._parameters, **module._buffers}
    return {
        name: type(value).__name__
        for name, value in own.items()
        if isinstance(value, Tensor) and type(value) not in PLAIN
    }


def export_query_in_forward(module: nn.Module) -> str:
    """The function by which a forward learns whether its graph is taken; empty if none is named there.

    Methods and functions that it calls are followed, torch's own aside.
    """
    waiting: list[object] = [getattr(module.forward, "__func__", module.forward)]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        name = getattr(function, "__name__", "")
        if isinstance(name, str) and name in _ASKING:
            return name
        own = isinstance(function, types.FunctionType) and not _torchs(function)
        if not own or id(function) in seen:
            continue
        assert isinstance(function, types.FunctionType)
        seen.add(id(function))
        names = set(names_in(function.__code__))
        if asked := names & _ASKING:
            return min(asked)
        methods = [getattr(type(module), each, None) for each in names]
        waiting += [*methods, *parts_of_function(function)]
    return ""


def _torchs(function: types.FunctionType) -> bool:
    return str(function.__module__).split(".")[0] in ("torch", "certus")


_OURS = Path(__file__).parent.parent
_TORCH = Path(torch.__file__).parent

_LIBRARY = torch.library.Library("certus", "DEF")
_LIBRARY.define("leaf(Tensor inputs, int number, SymInt[] shape) -> Tensor")
torch.library.register_fake(
    "certus::leaf", lambda inputs, number, shape: inputs.new_empty(shape), lib=_LIBRARY
)
LEAF = torch.ops.certus.leaf.default
"""The call of a module that has a rule of its own: inputs, the module's number, the shape of its outputs."""


@dataclass(frozen=True, eq=False)
class ExportedGraph:
    """What a module computes.

    Attributes:
        nodes: in an order in which each comes behind what it uses; the last is the output.
        inputs: the node that stands for the inputs.
        constants: values of the nodes that stand for parameters, buffers and other fixed tensors.
        leaves: path and module of every module that was not looked into, by its number.
    """

    nodes: list[fx.Node]
    inputs: fx.Node
    constants: dict[fx.Node, Tensor]
    leaves: list[tuple[str, nn.Module]]


_KEPT: ContextVar[dict[tuple[nn.Module, Shape], ExportedGraph] | None] = ContextVar(
    "kept graphs", default=None
)


@contextmanager
def cached_graphs(kept: dict[tuple[nn.Module, Shape], ExportedGraph]) -> Iterator[None]:
    """Take the graph of a module once, while only its weights change, as in training."""
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def trace(model: nn.Module, shape: Shape, is_leaf: Callable[[nn.Module], bool]) -> ExportedGraph:
    """Take the graph of a module, at rest, for a batch of inputs of one shape."""
    refuse_modified(model, is_leaf)
    kept = _KEPT.get()
    if kept is None:
        return _traced(model, shape, is_leaf)
    if (model, shape) not in kept:
        kept[model, shape] = _traced(model, shape, is_leaf)
    return kept[model, shape]


def _traced(model: nn.Module, shape: Shape, is_leaf: Callable[[nn.Module], bool]) -> ExportedGraph:
    leaves = [
        (name, module)
        for name, module in model.named_modules()
        if module is not model and is_leaf(module) and not _inside_leaf(model, name, is_leaf)
    ]
    _compute_weights(model)
    kind = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.get_default_dtype())
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    example = torch.zeros(3, *shape, dtype=kind, device=device)
    try:
        with _quiet(), _called_by_number(leaves):
            program = _exported(model, example)
            if any(_overwrites(node) for node in program.graph.nodes):
                _leave_out_dropout(program)
                program = program.run_decompositions({})  # into functions that overwrite nothing
    except UnsupportedError:
        raise
    except Exception as reason:
        raise _refusal(model, reason) from None
    return _read_program(model, program, leaves)


def _exported(model: nn.Module, example: Tensor) -> torch.export.ExportedProgram:
    """Run by Python, or, where that makes a plain number of the batch's size (``len(x)``), by torch."""
    sizes = ({0: torch.export.Dim("batch", min=2)},)
    try:
        return torch.export.export(model, (example,), dynamic_shapes=sizes, strict=False)
    except Exception as reason:  # whatever the forward of a user's may raise
        if not _fixes_batch(str(reason)):
            raise
    return torch.export.export(model, (example,), dynamic_shapes=sizes, strict=True)


def _fixes_batch(told: str) -> bool:
    return any(word in told for word in ("ConstraintViolation", "specialized", "Constraints violated"))


def refuse_modified(model: nn.Module, is_leaf: Callable[[nn.Module], bool]) -> None:
    """Raise if something else than its forward may change what a module computes, with its path.

    A forward of the user's own is followed into whatever it calls; of a module with a rule it is not.
    """
    for name, module in model.named_modules():
        if has_hooks(module) or (is_leaf(module) and is_modified(module)):
            raise UnsupportedError(
                f"The layer {name or 'the model itself'} ({type(module).__name__}) has forward hooks, or "
                "functions of its own, which no rule knows."
            )
        if not is_leaf(module) and (asked := export_query_in_forward(module)):
            raise UnsupportedError(
                f"The forward of {name or 'the model itself'} ({type(module).__name__}) asks `{asked}`, so "
                "that its graph may not be what runs. Take that question out of it."
            )


def line_of(node: fx.Node) -> str:
    """The user's own line that a node comes from, as FILE:LINE: `code`; empty if it is unknown."""
    found = ""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for place, code in itertools.pairwise(lines):
        if place.strip().startswith('File "'):
            file, number = place.strip().removeprefix('File "').split('", line ')
            if not _foreign(Path(file)):
                found = f"{Path(file).name}:{number.split(',')[0]}: `{code.strip()}`"
    return found


def _foreign(path: Path) -> bool:
    """Whether a file is torch's or ours."""
    return path.is_relative_to(_TORCH) or path.is_relative_to(_OURS) or str(path).startswith("<")


def _inside_leaf(model: nn.Module, name: str, is_leaf: Callable[[nn.Module], bool]) -> bool:
    parts = name.split(".")
    return any(is_leaf(model.get_submodule(".".join(parts[:end]))) for end in range(1, len(parts)))


def _compute_weights(model: nn.Module) -> None:
    """Have every parametrized weight computed, and remembered, before tensors lose their values."""
    with torch.no_grad():
        for module in model.modules():
            if parametrize.is_parametrized(module):
                for name in module.parametrizations:  # type: ignore[union-attr]
                    getattr(module, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch says to its own developers."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        # Of a forward that looks at values it prints the graph so far.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


@contextmanager
def _called_by_number(leaves: list[tuple[str, nn.Module]]) -> Iterator[None]:
    """Every leaf, called with one tensor, leaves its number in the graph; afterwards it is as it was."""
    for number, (_, module) in enumerate(leaves):
        vars(module)["forward"] = _numbered(module.forward, number)
    try:
        yield
    finally:
        for _, module in leaves:
            del vars(module)["forward"]


def _numbered(forward: Callable[..., object], number: int) -> Callable[..., object]:
    def call(*args: object, **options: object) -> object:
        if len(args) != 1 or options or not isinstance(args[0], Tensor):
            return forward(*args, **options)
        inputs = args[0]
        outputs = forward(inputs.clone())  # for its shape; nothing uses its values
        if not isinstance(outputs, Tensor):
            return outputs
        return LEAF(inputs, number, list(outputs.shape))

    return call


def _leave_out_dropout(program: torch.export.ExportedProgram) -> None:
    """What dropout hands on in eval mode is its input itself, of which torch makes a copy here: then writing
    over the one would no longer write over the other."""
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten.dropout.default and not node.args[2]:
            node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
    program.graph_module.recompile()


def _overwrites(node: fx.Node) -> bool:
    """Whether a call changes one of its arguments, or is none of torch's plain functions."""
    if node.op != "call_function" or isinstance(node.target, types.BuiltinFunctionType):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    writes = (
        each.alias_info is not None and each.alias_info.is_write for each in node.target._schema.arguments
    )
    return any(writes)


def _read_program(
    model: nn.Module, program: torch.export.ExportedProgram, leaves: list[tuple[str, nn.Module]]
) -> ExportedGraph:
    signature = program.graph_signature
    for name in signature.buffers_to_mutate.values():
        raise UnsupportedError(
            f"The model changes its buffer {name} while it runs, so that its outputs may depend on what was "
            "seen before. Do so in training only: `if self.training`."
        )
    nodes = list(program.graph.nodes)
    outputs = [node for node in nodes if node.name in signature.user_outputs]
    if len(signature.user_outputs) != 1 or len(outputs) != 1 or not program.call_spec.out_spec.is_leaf():
        raise UnsupportedError(
            f"The model returns {_returned(program)}; it must return one tensor, (batch, outputs)."
        )
    names = dict(signature.inputs_to_parameters) | dict(signature.inputs_to_buffers)
    lifted = signature.inputs_to_lifted_tensor_constants
    constants: dict[fx.Node, Tensor] = {}
    inputs = None
    for node in nodes:
        if node.op == "get_attr":
            constants[node] = getattr(program.graph_module, str(node.target))
        elif node.op == "placeholder" and node.name in names:
            name = names[node.name]
            kept = program.constants.get(name)
            constants[node] = program.state_dict[name] if kept is None else kept
        elif node.op == "placeholder" and node.name in lifted:
            constants[node] = program.constants[lifted[node.name]]
        elif node.op == "placeholder":
            inputs = node
    assert inputs is not None
    return ExportedGraph([*_needed(nodes, outputs[0]), outputs[0]], inputs, constants, leaves)


def _returned(program: torch.export.ExportedProgram) -> str:
    outside, count = program.call_spec.out_spec.type, len(program.graph_signature.user_outputs)
    tensors = "1 tensor" if count == 1 else f"{count} tensors"
    return tensors if outside is None else f"a {outside.__name__} of {tensors}"


def _needed(nodes: list[fx.Node], output: fx.Node) -> list[fx.Node]:
    """The nodes that the output is computed from, in order."""
    wanted, waiting = set[fx.Node](), [output]
    while waiting:
        node = waiting.pop()
        if node not in wanted:
            wanted.add(node)
            waiting += node.all_input_nodes
    return [node for node in nodes if node in wanted and node is not output]


def _refusal(model: nn.Module, reason: Exception) -> UnsupportedError:
    """What stands in the way of a graph, with the user's line."""
    told = f"{type(reason).__name__}: {reason}"
    kind = type(model).__name__
    if any(word in told for word in ("DataDependent", "data-dependent", "data dependent")):
        why = (
            "looks at the values of its tensors, such as in an `if`, so that it has no one graph. Write it "
            "without: torch.where, or a smooth function, does not need them"
        )
    elif _fixes_batch(told):
        why = "depends on how many samples there are in a batch; each must be treated alike"
    else:
        first = next((line.strip() for line in told.splitlines() if line.strip()), "")
        why = f"cannot be exported by torch ({first[:200]})"
    where = _users_line(reason.__traceback__)
    return UnsupportedError(f"The forward of {kind}{f' ({where})' if where else ''} {why}.")


def _users_line(steps: TracebackType | None) -> str:
    found = ""
    for frame in traceback.extract_tb(steps):
        if not _foreign(Path(frame.filename)):
            found = f"{Path(frame.filename).name}:{frame.lineno}: `{frame.line}`"
    return found
