"""Rules of the user's: tried, and called *assumed* by name."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from certus.smoothness.activation import Activation
from certus.smoothness.activation_claims import check_activation
from certus.smoothness.layer_claims import (
    check_kind,
    check_layer_values,
    check_operator,
    check_reach,
    check_windows,
)
from certus.smoothness.operators import Operator
from certus.smoothness.steps import Step
from certus.smoothness.sums import Sum
from certus.smoothness.windows import Windows


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
