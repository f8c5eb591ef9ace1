"""The optimizer of a training loop: made from parameter groups, or brought along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer

from certus.errors import ArgumentError, require
from certus.training.decay import decay_groups

OptimizerFactory = Callable[[list[dict[str, Any]]], Optimizer]
AnyOptimizer = OptimizerFactory | Optimizer | None
_FORMS = "such as lambda groups: torch.optim.SGD(groups, lr=0.1), or an optimizer of the model's parameters"


def make_optimizer(
    given: AnyOptimizer, model: nn.Module, weight_decay: float | Mapping[str, float] = 0.0
) -> Optimizer:
    """Adam with lr 1e-3 for None; otherwise what was given, or what it makes of the model's groups.

    Args:
        weight_decay: see ``decay_groups``. An optimizer that was brought along has its own.
    """
    if isinstance(given, Optimizer):
        require(weight_decay == 0, "weight_decay", "be left out: the optimizer has its own", weight_decay)
        own = {id(weight) for weight in model.parameters() if weight.requires_grad}
        held = {id(weight) for group in given.param_groups for weight in group["params"]}
        if held != own:
            raise ArgumentError(
                "`optimizer` must hold the parameters of the model, all of them and no others; "
                f"got {len(held & own)} of its {len(own)}, and {len(held - own)} others."
            )
        return given
    groups = decay_groups(model, weight_decay)
    if given is None:
        return Adam(groups, lr=1e-3)
    require(callable(given), "optimizer", f"make one from parameter groups, {_FORMS}", repr(given))
    made = given(groups)
    require(isinstance(made, Optimizer), "optimizer", f"make an optimizer, {_FORMS}", type(made))
    return made
