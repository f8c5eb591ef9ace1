"""Weight decay layer by layer: the paper regularises early layers more than late ones (tab:mnist-extra2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from certus.errors import ArgumentError, require_number


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
