"""What prevents a proof, and what to put in its place."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from certus.errors import ArgumentError, UnsupportedError, require
from certus.layers import Residual
from certus.modes import at_rest
from certus.smoothness.altered import is_altered
from certus.smoothness.network import children, find_rule, is_sequential
from certus.smoothness.stage import Stage

_SOME_SHAPE = (1, 64, 64)  # for rules that hardly look at it


@dataclass(frozen=True)
class Obstacle:
    """A layer without a finite bound on its curvature, or without any rule.

    Attributes:
        path, kind: where it is in the model, and what.
        reason: why nothing, or no smoothness, is proven.
        replacement: what to put in its place, in words.
        repairable: whether ``smooth`` does it.
    """

    path: str
    kind: str
    reason: str
    replacement: str
    repairable: bool


def validate(model: nn.Module) -> list[Obstacle]:
    """Every layer that prevents a proof of smoothness; empty if none does.

    >>> [(found.path, found.replacement) for found in validate(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
    [('1', 'ELU(alpha=1.0)')]
    """
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
    with at_rest(model):
        return [found for path, module in _places(model) if (found := _inspect(path, module)) is not None]


def smooth(model: nn.Module) -> nn.Module:
    """A copy of the model with smooth layers in place of those that are not: ELU for ReLU, average for max
    pooling.

    The weights are kept, but the function is another one: train it on. What has no replacement raises, by its
    path.

    >>> smooth(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))[1]
    ELU(alpha=1.0)
    """
    hopeless = [found for found in validate(model) if not found.repairable]
    if hopeless:
        listed = "; ".join(
            f"{found.path or 'the model itself'} ({found.kind}): {found.reason}" for found in hopeless
        )
        raise UnsupportedError(f"No replacement is known for {listed}.")
    copied = copy.deepcopy(model)
    for found in validate(copied):
        if not found.path:
            return _replacement(copied)  # type: ignore[return-value]
        parent, _, name = found.path.rpartition(".")
        holder = copied.get_submodule(parent)
        setattr(holder, name, _replacement(getattr(holder, name)))
    return copied


def _places(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """All layers, those of branches included, with their paths."""
    if (is_sequential(model) or isinstance(model, Residual)) and not is_altered(model):
        for name, child in children(model):
            yield from _places(child, f"{path}.{name}" if path else name)
    else:
        yield path, model


def _inspect(path: str, module: nn.Module) -> Obstacle | None:
    kind, known = type(module).__name__, find_rule(module)
    if known is None:
        how = f"a layer that has a rule, or a rule for it: @certus.smoothness.rule({kind})"
        return Obstacle(path, kind, "nothing is known about it", how, False)
    if is_altered(module):
        return Obstacle(path, kind, "its forward hooks have no rule", "the same layer without hooks", False)
    try:
        stage = known(module, _SOME_SHAPE)
    except UnsupportedError as reason:
        return Obstacle(path, kind, str(reason), "the same layer without it", False)
    except (ArgumentError, RuntimeError):  # another shape is needed: an affine layer
        return None
    if not isinstance(stage, Stage) or stage.smooth:
        return None
    made = _replacement(module)
    words = "a smooth activation, or average pooling" if made is None else str(made)
    return Obstacle(path, kind, "it is not smooth: its derivative jumps", words, made is not None)


def _replacement(module: nn.Module) -> nn.Module | None:
    for kind, make in _REPLACEMENTS.items():
        if isinstance(module, kind):
            return make(module)
    return None


def _celu(module: nn.Module) -> nn.Module:
    assert isinstance(module, nn.ELU)
    usable = math.isfinite(module.alpha) and module.alpha > 0
    return nn.CELU(module.alpha) if usable else nn.ELU()


def _average(module: nn.Module) -> nn.Module | None:
    assert isinstance(module, nn.MaxPool1d | nn.MaxPool2d)
    if module.dilation not in (1, (1, 1), (1,)):
        return None
    kind = nn.AvgPool1d if isinstance(module, nn.MaxPool1d) else nn.AvgPool2d
    return kind(module.kernel_size, module.stride, module.padding, module.ceil_mode)  # type: ignore[arg-type]


_REPLACEMENTS: dict[type[nn.Module], Callable[[nn.Module], nn.Module | None]] = {
    nn.ELU: _celu,
    nn.Hardtanh: lambda module: nn.ELU() if isinstance(module, nn.ReLU6) else nn.Tanh(),
    nn.ReLU: lambda module: nn.ELU(),
    nn.LeakyReLU: lambda module: nn.ELU(),
    nn.SELU: lambda module: nn.ELU(),
    nn.MaxPool1d: _average,
    nn.MaxPool2d: _average,
}
