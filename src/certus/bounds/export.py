"""Export of a module to a graph by ``torch.export``, and detection of modified modules.

A graph is exported in eval mode, from tensors that have shapes but no values. So nothing in it can depend on
the values of an input: a forward that inspects them is refused, with its line. The batch size is symbolic; a
forward that needs a fixed size is refused as well. Modules with a rule are not traced into: each becomes one
call in the graph. In-place operations are turned into pure functions.

A rule describes the ``forward`` of a class. Code that runs before, after or instead of it has no rule, and
may have no effect at the few points where a model is tested: hooks, replaced functions of torch, tensor
subclasses, and a forward that queries whether it is being exported. All of them are refused.
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
"""Functions that torch runs beside ``forward``, for a ``Sequential`` or a convolution too."""

_GLOBAL_HOOKS = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)


_EXPORT_QUERIES = {
    "is_compiling",
    "is_exporting",
    "is_dynamo_compiling",
    "is_torchdynamo_compiling",
    "is_tracing",
}
"""Functions whose result differs while a model is exported."""


PLAIN_TENSORS: tuple[type[Tensor], ...] = (Tensor, nn.Parameter)
"""Tensor classes without overridden behaviour."""


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks, global ones included, may change the outputs of the module."""
    return any((module._forward_hooks, module._forward_pre_hooks, *_GLOBAL_HOOKS))


def is_modified(module: nn.Module) -> bool:
    """Whether hooks, replaced functions or foreign tensors may change the outputs of the module."""
    own = type(module)
    replaced = "forward" in vars(module)
    for name in _CALLED:
        function = getattr(own, name, None)
        default = function in (None, object.__getattribute__)
        unchanged = default or str(getattr(function, "__module__", None)).startswith("torch.")
        replaced |= name in vars(module) or not unchanged
    return replaced or has_hooks(module) or bool(foreign_tensors(module))


def foreign_tensors(module: nn.Module) -> dict[str, str]:
    """Names and classes of a module's own tensors that are subclasses of ``Tensor``.

    A subclass may compute anything, and a lazy parameter has no values yet.
    """
    own = {**vars(module), **module._parameters, **module._buffers}
    return {
        name: type(value).__name__
        for name, value in own.items()
        if isinstance(value, Tensor) and type(value) not in PLAIN_TENSORS
    }


def export_query_in_forward(module: nn.Module) -> str:
    """The name of the function by which a forward queries whether it is exported; empty if there is none.

    Methods and functions that the forward calls are followed, except those of torch.
    """
    waiting: list[object] = [getattr(module.forward, "__func__", module.forward)]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop()
        name = getattr(function, "__name__", "")
        if isinstance(name, str) and name in _EXPORT_QUERIES:
            return name
        if not isinstance(function, types.FunctionType) or id(function) in seen:
            continue
        if str(function.__module__).split(".")[0] in ("torch", "certus"):
            continue
        seen.add(id(function))
        names = set(names_in(function.__code__))
        if queries := names & _EXPORT_QUERIES:
            return min(queries)
        methods = [getattr(type(module), each, None) for each in names]
        waiting += [*methods, *parts_of_function(function)]
    return ""


_OURS = Path(__file__).parent.parent
_TORCH = Path(torch.__file__).parent

_LIBRARY = torch.library.Library("certus", "DEF")
_LIBRARY.define("leaf(Tensor inputs, int number, SymInt[] shape) -> Tensor")
torch.library.register_fake(
    "certus::leaf", lambda inputs, number, shape: inputs.new_empty(shape), lib=_LIBRARY
)
LEAF = torch.ops.certus.leaf.default
"""The call of a module with a rule: inputs, the module's number, the shape of its outputs."""


@dataclass(frozen=True, eq=False)
class ExportedGraph:
    """An exported module.

    Attributes:
        nodes: in topological order; the last one is the output.
        inputs: the node of the inputs.
        constants: values of the nodes of parameters, buffers and other fixed tensors.
        leaves: path and module of every module that was not traced into, by its number.
    """

    nodes: list[fx.Node]
    inputs: fx.Node
    constants: dict[fx.Node, Tensor]
    leaves: list[tuple[str, nn.Module]]


_CACHE: ContextVar[dict[tuple[nn.Module, Shape], ExportedGraph] | None] = ContextVar(
    "exported graphs", default=None
)


@contextmanager
def cached_graphs(cache: dict[tuple[nn.Module, Shape], ExportedGraph]) -> Iterator[None]:
    """Reuse the graph of a module while only its weights change, as in training."""
    token = _CACHE.set(cache)
    try:
        yield
    finally:
        _CACHE.reset(token)


def export_graph(model: nn.Module, shape: Shape, is_leaf: Callable[[nn.Module], bool]) -> ExportedGraph:
    """Export a module in eval mode, for a batch of inputs of the given shape."""
    refuse_modified(model, is_leaf)
    cache = _CACHE.get()
    if cache is None:
        return _traced(model, shape, is_leaf)
    if (model, shape) not in cache:
        cache[model, shape] = _traced(model, shape, is_leaf)
    return cache[model, shape]


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
    """Export by tracing in Python or, if that specialises the batch size (``len(x)``), by TorchDynamo."""
    sizes = ({0: torch.export.Dim("batch", min=2)},)
    try:
        return torch.export.export(model, (example,), dynamic_shapes=sizes, strict=False)
    except Exception as reason:  # a user's forward may raise anything
        if not _fixes_batch(str(reason)):
            raise
    return torch.export.export(model, (example,), dynamic_shapes=sizes, strict=True)


def _fixes_batch(message: str) -> bool:
    return any(word in message for word in ("ConstraintViolation", "specialized", "Constraints violated"))


def refuse_modified(model: nn.Module, is_leaf: Callable[[nn.Module], bool]) -> None:
    """Raise ``UnsupportedError`` if anything but its forward may change the outputs of a module.

    A user's forward is followed into the functions that it calls; the forward of a module with a rule is not.
    """
    for name, module in model.named_modules():
        if has_hooks(module) or (is_leaf(module) and is_modified(module)):
            raise UnsupportedError(
                f"The layer {name or 'the model itself'} ({type(module).__name__}) has forward hooks or "
                "replaced methods, which have no rule. Remove them."
            )
        if not is_leaf(module) and (query := export_query_in_forward(module)):
            raise UnsupportedError(
                f"The forward of {name or 'the model itself'} ({type(module).__name__}) calls `{query}`, so "
                "that the exported graph may differ from the model. Remove that call."
            )


def line_of(node: fx.Node) -> str:
    """The user's line that a node comes from, as FILE:LINE: `code`; empty if unknown."""
    line = ""
    lines = str(node.meta.get("stack_trace") or "").splitlines()
    for place, code in itertools.pairwise(lines):
        if place.strip().startswith('File "'):
            file, number = place.strip().removeprefix('File "').split('", line ')
            if not _foreign(Path(file)):
                line = f"{Path(file).name}:{number.split(',')[0]}: `{code.strip()}`"
    return line


def _foreign(path: Path) -> bool:
    """Whether a file belongs to torch or certus."""
    return path.is_relative_to(_TORCH) or path.is_relative_to(_OURS) or str(path).startswith("<")


def _inside_leaf(model: nn.Module, name: str, is_leaf: Callable[[nn.Module], bool]) -> bool:
    parts = name.split(".")
    return any(is_leaf(model.get_submodule(".".join(parts[:end]))) for end in range(1, len(parts)))


def _compute_weights(model: nn.Module) -> None:
    """Compute and cache every parametrized weight before tensors lose their values."""
    with torch.no_grad():
        for module in model.modules():
            if parametrize.is_parametrized(module):
                for name in module.parametrizations:  # type: ignore[union-attr]
                    getattr(module, name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's messages to its developers."""
    logger = logging.getLogger("torch")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        # torch prints the graph so far if a forward depends on tensor values.
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


@contextmanager
def _called_by_number(leaves: list[tuple[str, nn.Module]]) -> Iterator[None]:
    """Let every leaf that is called with one tensor record its number in the graph; restore it afterwards."""
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
    """Remove dropout in eval mode, which returns its input itself but is exported as a copy: an in-place
    operation on one would no longer affect the other.
    """
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten.dropout.default and not node.args[2]:
            node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
    program.graph_module.recompile()


def _overwrites(node: fx.Node) -> bool:
    """Whether a call mutates an argument, or is not a plain torch function."""
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
            f"The model changes its buffer {name} in eval mode, so that its outputs may depend on earlier "
            "inputs. Change it in training only: `if self.training`."
        )
    nodes = list(program.graph.nodes)
    outputs = [node for node in nodes if node.name in signature.user_outputs]
    if len(signature.user_outputs) != 1 or len(outputs) != 1 or not program.call_spec.out_spec.is_leaf():
        raise UnsupportedError(
            f"The model must return one tensor, (batch, outputs); it returns {_returned(program)}."
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
            constant = program.constants.get(name)
            constants[node] = program.state_dict[name] if constant is None else constant
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
    """The nodes that the output depends on, in order."""
    wanted, waiting = set[fx.Node](), [output]
    while waiting:
        node = waiting.pop()
        if node not in wanted:
            wanted.add(node)
            waiting += node.all_input_nodes
    return [node for node in nodes if node in wanted and node is not output]


def _refusal(model: nn.Module, reason: Exception) -> UnsupportedError:
    """The error for a failed export, with its cause and the user's line."""
    message = f"{type(reason).__name__}: {reason}"
    kind = type(model).__name__
    if any(word in message for word in ("DataDependent", "data-dependent", "data dependent")):
        why = (
            "depends on tensor values, such as in an `if`, so that it has no single graph; use torch.where "
            "or a smooth function instead"
        )
    elif _fixes_batch(message):
        why = "depends on the batch size; treat each sample alike"
    else:
        first = next((line.strip() for line in message.splitlines() if line.strip()), "")
        why = f"cannot be exported by torch ({first[:200]})"
    where = _users_line(reason.__traceback__)
    return UnsupportedError(f"The forward of {kind}{f' ({where})' if where else ''} {why}.")


def _users_line(steps: TracebackType | None) -> str:
    line = ""
    for frame in traceback.extract_tb(steps):
        if not _foreign(Path(frame.filename)):
            line = f"{Path(frame.filename).name}:{frame.lineno}: `{frame.line}`"
    return line
