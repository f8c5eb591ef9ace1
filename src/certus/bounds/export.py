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
import logging
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrize

from certus._eval_mode import names_in, parts_of_function
from certus.bounds.layer_rules import is_graph_leaf
from certus.errors import UnsupportedError
from certus.kernel.passes import Shape

_CALLED = (
    *("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "__getattribute__", "__getattr__"),
    *("__iter__", "_conv_forward"),
)
"""Functions that torch runs beside ``forward``, for a ``Sequential`` or a convolution too."""

_EXPORT_QUERIES = {
    *("is_compiling", "is_exporting", "is_dynamo_compiling", "is_torchdynamo_compiling", "is_tracing")
}
"""Functions whose result differs while a model is exported."""

PLAIN_TENSORS: tuple[type[Tensor], ...] = (Tensor, nn.Parameter)
"""Tensor classes without overridden behaviour."""


def has_hooks(module: nn.Module) -> bool:
    """Whether hooks, global ones included, may change the outputs of the module."""
    globally = torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks
    return any((module._forward_hooks, module._forward_pre_hooks, *globally))


def is_modified(module: nn.Module) -> bool:
    """Whether hooks, replaced functions or foreign tensors may change the outputs of the module."""
    replaced = "forward" in vars(module)
    for name in _CALLED:
        function = getattr(type(module), name, None)
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


def export_graph(model: nn.Module, shape: Shape) -> ExportedGraph:
    """Export a module in eval mode, for a batch of inputs of the given shape."""
    _refuse_modified(model)
    cache = _CACHE.get()
    if cache is not None and (model, shape) in cache:
        return cache[model, shape]
    leaves: list[tuple[str, nn.Module]] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{path}.") for path, _ in leaves)
        if module is not model and is_graph_leaf(module) and not inside:
            leaves.append((name, module))
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
    graph = _read_program(program, leaves)
    if cache is not None:
        cache[model, shape] = graph
    return graph


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


def _refuse_modified(model: nn.Module) -> None:
    """Raise ``UnsupportedError`` if anything but its forward may change the outputs of a module.

    A user's forward is followed into the functions that it calls; the forward of a module with a rule is not.
    """
    for name, module in model.named_modules():
        where, leaf = f"{name or 'the model itself'} ({type(module).__name__})", is_graph_leaf(module)
        if has_hooks(module) or (leaf and is_modified(module)):
            raise UnsupportedError(
                f"The layer {where} has forward hooks or replaced methods, which have no rule. Remove them."
            )
        if not leaf and (query := export_query_in_forward(module)):
            raise UnsupportedError(
                f"The forward of {where} calls `{query}`, so that the exported graph may differ from the "
                "model. Remove that call."
            )


def line_of(node: fx.Node) -> str:
    """The user's line that a node comes from, as FILE:LINE: `code`; empty if unknown."""
    return _users_line(re.findall(r'File "(.*)", line (\d+).*\n(.*)', node.meta.get("stack_trace") or ""))


def _users_line(frames: Iterable[tuple[str, object, str | None]]) -> str:
    """The last line of (file, number, code) that belongs to neither torch nor certus."""
    line = ""
    for file, number, code in frames:
        path = Path(file)
        foreign = path.is_relative_to(_TORCH) or path.is_relative_to(_OURS) or file.startswith("<")
        line = line if foreign else f"{path.name}:{number}: `{(code or '').strip()}`"
    return line


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

    def call(forward: Callable[..., object], number: int, *args: object, **options: object) -> object:
        if len(args) != 1 or options or not isinstance(args[0], Tensor):
            return forward(*args, **options)
        outputs = forward(args[0].clone())  # for its shape; nothing uses its values
        return LEAF(args[0], number, list(outputs.shape)) if isinstance(outputs, Tensor) else outputs

    for number, (_, module) in enumerate(leaves):
        vars(module)["forward"] = partial(call, module.forward, number)
    try:
        yield
    finally:
        for _, module in leaves:
            del vars(module)["forward"]


def _leave_out_dropout(program: torch.export.ExportedProgram) -> None:
    """Remove dropout in eval mode, which returns its input itself but is exported as a copy: an in-place
    operation on one would no longer affect the other."""
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
    arguments = node.target._schema.arguments
    return any(each.alias_info is not None and each.alias_info.is_write for each in arguments)


def _read_program(
    program: torch.export.ExportedProgram, leaves: list[tuple[str, nn.Module]]
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
        outside, count = program.call_spec.out_spec.type, len(signature.user_outputs)
        returned = "1 tensor" if count == 1 else f"{count} tensors"
        returned = returned if outside is None else f"a {outside.__name__} of {returned}"
        raise UnsupportedError(f"The model must return one tensor, (batch, outputs); it returns {returned}.")
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**program.state_dict, **program.constants}
    constants: dict[fx.Node, Tensor] = {}
    inputs = None
    for node in nodes:
        if node.op == "get_attr":
            constants[node] = getattr(program.graph_module, str(node.target))
        elif node.op == "placeholder" and node.name in names:
            constants[node] = tensors[names[node.name]]
        elif node.op == "placeholder":
            inputs = node
    assert inputs is not None
    wanted = set(outputs)
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(node.all_input_nodes)
    needed = [node for node in nodes if node in wanted and node is not outputs[0]]
    return ExportedGraph([*needed, outputs[0]], inputs, constants, leaves)


def _refusal(model: nn.Module, reason: Exception) -> UnsupportedError:
    """The error for a failed export, with its cause and the user's line."""
    message = f"{type(reason).__name__}: {reason}".strip()
    if any(word in message for word in ("DataDependent", "data-dependent", "data dependent")):
        why = (
            "depends on tensor values, such as in an `if`, so that it has no single graph; use torch.where "
            "or a smooth function instead"
        )
    elif _fixes_batch(message):
        why = "depends on the batch size; treat each sample alike"
    else:
        why = f"cannot be exported by torch ({message.splitlines()[0].strip()[:200]})"
    frames = traceback.extract_tb(reason.__traceback__)
    where = _users_line((frame.filename, frame.lineno, frame.line) for frame in frames)
    return UnsupportedError(f"The forward of {type(model).__name__}{f' ({where})' if where else ''} {why}.")
