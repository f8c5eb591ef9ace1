"""Attacks of other libraries as perturbers: foolbox and torchattacks.

Neither is needed for certus. The extra ``attacks`` installs foolbox; torchattacks asks for torchvision, which
is not used here: ``pip install --no-deps torchattacks``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from certus.errors import ArgumentError, UnsupportedError, require
from certus.losses import AnyLoss, ModelLoss, evaluation_mode

_INSTALL = {
    "foolbox": "pip install 'certus[attacks]'",
    "torchattacks": "pip install --no-deps torchattacks",
}


@dataclass(frozen=True, eq=False)
class Foolbox:
    """A foolbox attack as a perturber.

    Args:
        attack: such as ``foolbox.attacks.LinfPGD(steps=15)``.
        epsilon: its radius; None for attacks that minimise the distance themselves.
        bounds: the least and the largest input value; foolbox always clips to them.
    """

    attack: Any
    epsilon: float | None
    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        _check_bounds(self.bounds)
        require(callable(self.attack), "attack", "be a foolbox attack", type(self.attack))

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        foolbox = _library("foolbox")
        model = _model_of(loss)
        with evaluation_mode(), _Mode(model):
            wrapped = foolbox.PyTorchModel(model, bounds=self.bounds, device=inputs.device)
            moved = self.attack(wrapped, inputs, _labels(targets), epsilons=self.epsilon)[1]
        return _checked(moved, inputs)


@dataclass(frozen=True, eq=False)
class Torchattacks:
    """A torchattacks attack as a perturber.

    Args:
        make: from the model to the attack, such as ``lambda model: torchattacks.PGD(model, eps=0.1)``.
            torchattacks takes inputs between 0 and 1, and always clips to them.
    """

    make: Callable[[Any], Any]

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        _library("torchattacks")
        inside = bool(((inputs >= 0) & (inputs <= 1)).all())
        require(inside, "inputs", "lie between 0 and 1 for torchattacks", f"{float(inputs.min())}, …")
        model = _model_of(loss)
        with evaluation_mode(), _Mode(model):
            moved = self.make(model)(inputs, _labels(targets))
        return _checked(moved, inputs)


class _Mode:
    """Hold the model in eval mode and put every module's own mode back, whatever a library does to it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modes = {module: module.training for module in model.modules()}

    def __enter__(self) -> None:
        for module in self._modes:
            module.training = False

    def __exit__(self, *ignored: object) -> None:
        for module, mode in self._modes.items():
            module.training = mode


def _library(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise UnsupportedError(f"{name} is not installed: {_INSTALL[name]}.") from None


def _model_of(loss: AnyLoss) -> torch.nn.Module:
    if not isinstance(loss, ModelLoss):
        raise ArgumentError(f"`loss` must be a ModelLoss, whose model is attacked; got {type(loss)}.")
    return loss.model


def _labels(targets: Tensor | None) -> Tensor:
    if targets is None or targets.dtype != torch.long:
        kind = None if targets is None else targets.dtype
        raise ArgumentError(f"`targets` must be int64 labels for other libraries' attacks; got {kind}.")
    return targets


def _check_bounds(bounds: tuple[float, float]) -> None:
    valid = len(bounds) == 2 and -math.inf < bounds[0] < bounds[1] < math.inf
    require(valid, "bounds", "be two finite numbers in order", bounds)


def _checked(moved: object, inputs: Tensor) -> Tensor:
    if not isinstance(moved, Tensor) or moved.shape != inputs.shape:
        kind = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved)
        raise ArgumentError(f"`attack` must return inputs of shape {tuple(inputs.shape)}; got {kind}.")
    return moved.detach()
