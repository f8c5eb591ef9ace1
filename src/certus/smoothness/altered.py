"""Modules that torch does not run as their class says: hooks, functions put in place of torch's own, tensors
of a class of their own, and a forward that asks whether it is traced.

A rule speaks for the ``forward`` of a class. What runs before, behind or instead of it has no rule, and may
do nothing at the few points where a model is tried.
"""

from __future__ import annotations

import types

from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from certus.modes import names_in, parts_of_function

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


def is_altered(module: nn.Module) -> bool:
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


def asked_in_forward(module: nn.Module) -> str:
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
