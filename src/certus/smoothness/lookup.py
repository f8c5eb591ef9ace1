"""Which rule a module has, and whether the module is still what its class says."""

from __future__ import annotations

from torch import nn

from certus.layers import Residual
from certus.smoothness import (
    activation_rules,  # noqa: F401  (registers its rules)
    log_softmax,  # noqa: F401  (registers its rule)
)
from certus.smoothness.rules import RULES, LayerRule

_HANDING_ON = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)
"""Layers whose outputs may be their inputs: writing over the one writes over the other."""

_OWN = dict(RULES)
"""The rules of certus itself: nobody else has had a chance to register one yet."""


def find_rule(module: nn.Module) -> LayerRule | None:
    """The rule of the module's class, or of the parent whose ``forward`` it uses unchanged."""
    kind = _kind(module)
    return None if kind is None else RULES[kind]


def has_own_rule(module: nn.Module) -> bool:
    """Whether the rule of a module is one that certus has for its class."""
    kind = _kind(module)
    return kind is not None and _OWN.get(kind) is RULES[kind]


def _kind(module: nn.Module) -> type[nn.Module] | None:
    for parent in type(module).__mro__:
        if parent in RULES and type(module).forward is parent.forward:
            return parent
    return None


def is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules in it, each as often as it is used: ``named_children`` would name a shared one once."""
    return [(name, child) for name, child in model._modules.items() if child is not None]


def stands_alone(module: nn.Module) -> bool:
    """Whether a graph has a module as one call, by its rule, and does not look into it.

    Branches are followed. So are layers of torch that overwrite their inputs, or hand on the same memory: a
    graph knows what becomes of those.
    """
    if find_rule(module) is None or isinstance(module, Residual):
        return False
    shares = isinstance(module, _HANDING_ON) or getattr(module, "inplace", False)
    return not (has_own_rule(module) and shares)
