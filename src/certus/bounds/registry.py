"""The registry of layer rules, and rules that users register.

Which rule a module has, and whether the module is still what its class says.

Rules of the user's: tried, and called *assumed* by name.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from certus.bounds.activations import Activation
from certus.bounds.claims import (
    check_activation,
    check_kind,
    check_layer_values,
    check_operator,
    check_reach,
    check_windows,
)
from certus.bounds.composition import Step
from certus.bounds.layer_rules import RULES, LayerRule
from certus.bounds.max_pool import Windows
from certus.bounds.operators import Operator
from certus.bounds.web import Sum
from certus.layers import Residual

_HANDING_ON = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)
"""Layers whose outputs may be their inputs: writing over the one writes over the other."""

_OWN = dict(RULES)
"""The rules of certus itself: nobody else has had a chance to register one yet."""


def find_rule(module: nn.Module) -> LayerRule | None:
    """The rule of the module's class, or of the parent whose ``forward`` it uses unchanged."""
    kind = _kind_of(module)
    return None if kind is None else RULES[kind]


def has_own_rule(module: nn.Module) -> bool:
    """Whether the rule of a module is one that certus has for its class."""
    kind = _kind_of(module)
    return kind is not None and _OWN.get(kind) is RULES[kind]


def _kind_of(module: nn.Module) -> type[nn.Module] | None:
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


def tried_step(module: nn.Module, step: Step, name: str) -> Step:
    """A step by a rule of the user's: refused where points refute it, and *assumed* by name otherwise."""
    where = name[0].upper() + name[1:]
    _try_stage(where, step)
    check_layer_values(where, module, step.stage.apply, step.in_shape)
    return replace(step, assumptions=(name,))


def _try_stage(where: str, step: Step) -> None:
    check_kind(where, step.stage)
    match step.stage:
        case Activation():
            check_activation(where, step.stage)
        case Operator():
            check_operator(where, step.stage)
        case Windows():
            check_windows(where, step.stage)
        case Sum():
            for part in step.stage.inner_steps:
                _try_stage(where, part)
        case _:
            check_reach(where, step.stage, step.in_shape)
