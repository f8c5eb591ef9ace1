"""Optimizers and layer-wise weight decay.

Weight decay layer by layer: the paper regularises early layers more than late ones (tab:mnist-extra2).

The optimizer of a training loop: made from parameter groups, or brought along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.optim import Adam, Optimizer

from certus.errors import ArgumentError, require, require_number


def decay_groups(model: nn.Module, decay: float | Mapping[str, float] = 0.0) -> list[dict[str, Any]]:
    """Parameter groups for a torch optimizer, one for each amount of decay. Biases do not decay.

    The convention is torch's: a decay λ adds (λ/2)‖w‖² to the loss. Keras' multiplier λ adds λ‖w‖², so that
    its λ is half of torch's.

    Args:
        decay: one number for all weights, or a mapping from a layer's name (``"0"``, ``"features.3"``) to
            its own; layers that it does not name do not decay.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ELU(), nn.Linear(3, 2))
    >>> [(len(group["params"]), group["weight_decay"]) for group in decay_groups(model, {"0": 0.5})]
    [(1, 0.5), (3, 0.0)]
    """
    amounts = decay if isinstance(decay, Mapping) else {"": decay}
    for name, amount in amounts.items():
        require_number("weight_decay", amount, zero=True)
        if name not in dict(model.named_modules()):
            layers = [layer for layer, _ in model.named_modules() if layer]
            raise ArgumentError(f"`weight_decay` must name layers of the model, {layers}; got {name!r}.")
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        # The most specific layer that is named decides.
        owners = [layer for layer in amounts if layer == "" or name.startswith(f"{layer}.")]
        amount = amounts[max(owners, key=len)] if owners and parameter.dim() > 1 else 0.0
        groups.setdefault(amount, []).append(parameter)
    return [{"params": members, "weight_decay": amount} for amount, members in groups.items()]


def early_and_late(model: nn.Module, early: float, late: float) -> dict[str, float]:
    """A decay for ``decay_groups``: ``early`` for the first half of the weight layers, ``late`` for the rest.

    >>> early_and_late(nn.Sequential(nn.Linear(2, 3), nn.ELU(), nn.Linear(3, 2)), 0.5, 0.01)
    {'0': 0.5, '2': 0.01}
    """
    layers = [
        name
        for name, module in model.named_modules()
        if any(weight.dim() > 1 for weight in module.parameters(recurse=False))
    ]
    return {name: early if index < len(layers) / 2 else late for index, name in enumerate(layers)}


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
