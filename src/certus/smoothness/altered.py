"""Modules that torch does not run as their class says: hooks, and functions put in place of torch's own.

A rule speaks for the ``forward`` of a class. What runs before, behind or instead of it has no rule, and may
do nothing at the few points where a model is tried.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules import module as torch_module

_CALLED = (
    *("__call__", "_wrapped_call_impl", "_call_impl", "_slow_forward", "__getattribute__", "__getattr__"),
    *("__iter__", "_conv_forward"),
)
"""What runs beside ``forward`` when a module of torch is called, a ``Sequential`` or a convolution too."""

_EVERYBODYS_HOOKS = (torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks)


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
    return replaced or has_hooks(module)
