"""Attacks of other libraries as methods: foolbox and torchattacks.

Neither is needed for certus. The extra ``attacks`` installs foolbox; torchattacks asks for torchvision, which
is not used here: ``pip install --no-deps torchattacks``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from certus._eval_mode import loss_eval_mode
from certus._tensor import differentiable
from certus._validation import check_batch
from certus.errors import ArgumentError, optional_import, require
from certus.inner.methods import Method
from certus.losses import AnyLoss, ModelLoss


class _LibraryAttack(Method):
    """Attack of another library on a ``ModelLoss``, with the model in eval mode and its weights frozen."""

    library: ClassVar[str]
    install: ClassVar[str]
    bounds: tuple[float, float]

    @abstractmethod
    def _attack(self, library: ModuleType, model: nn.Module, inputs: Tensor, labels: Tensor) -> object:
        """Return the moved inputs."""

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        module = optional_import(self.library, f"{self.library} is not installed: {self.install}.")
        if not isinstance(loss, ModelLoss):
            raise ArgumentError(f"`loss` must be a ModelLoss, whose model is attacked; got {type(loss)}.")
        check_batch(inputs, targets)
        low, high = self.bounds
        inside = bool(((inputs >= low) & (inputs <= high)).all())  # NaN compares false
        values = f"values from {float(inputs.min()):g} to {float(inputs.max()):g}"
        require(inside, "inputs", f"lie between {low:g} and {high:g} for this attack", values)
        if targets is None or targets.dtype != torch.long:
            dtype = None if targets is None else targets.dtype
            raise ArgumentError(f"`targets` must be int64 labels for other libraries' attacks; got {dtype}.")
        # Some libraries call ``backward()``, which would add to the gradients of a training step.
        frozen = [weight for weight in loss.model.parameters() if weight.requires_grad]
        try:
            for weight in frozen:
                weight.requires_grad_(False)
            with torch.inference_mode(False), torch.enable_grad(), loss_eval_mode(loss.model):
                start, labels = differentiable(inputs).detach(), differentiable(targets)
                moved = self._attack(module, loss.model, start, labels)
        finally:
            for weight in frozen:
                weight.requires_grad_()
        if not isinstance(moved, Tensor) or moved.shape != inputs.shape:
            kind = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved)
            raise ArgumentError(f"`attack` must return inputs of shape {tuple(inputs.shape)}; got {kind}.")
        return moved.detach()


@dataclass(frozen=True, eq=False)
class Foolbox(_LibraryAttack):
    """A foolbox attack as a method.

    Args:
        attack: such as ``foolbox.attacks.LinfPGD(steps=15)``.
        epsilon: its radius; None for attacks that minimise the distance themselves.
        bounds: the least and the largest input value; foolbox always clips to them.
    """

    library, install = "foolbox", "pip install 'certus[attacks]'"
    attack: Any
    epsilon: float | None
    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        ordered = len(self.bounds) == 2 and -math.inf < self.bounds[0] < self.bounds[1] < math.inf
        require(ordered, "bounds", "be two finite numbers in order", self.bounds)
        require(callable(self.attack), "attack", "be a foolbox attack", type(self.attack))
        if self.epsilon is not None:
            valid = isinstance(self.epsilon, (int, float)) and 0 <= self.epsilon < math.inf
            require(valid, "epsilon", "be finite and not negative, or None", self.epsilon)

    def _attack(self, library: ModuleType, model: nn.Module, inputs: Tensor, labels: Tensor) -> object:
        wrapped = library.PyTorchModel(model, bounds=self.bounds, device=inputs.device)
        return self.attack(wrapped, inputs, labels, epsilons=self.epsilon)[1]


@dataclass(frozen=True, eq=False)
class Torchattacks(_LibraryAttack):
    """A torchattacks attack as a method.

    Args:
        make: function from the model to the attack, such as
            ``lambda model: torchattacks.PGD(model, eps=0.1)``. torchattacks takes inputs between 0
            and 1, and always clips to them.
    """

    library, install = "torchattacks", "pip install --no-deps torchattacks"
    bounds = (0.0, 1.0)
    make: Callable[[Any], Any]

    def __post_init__(self) -> None:
        has_model = hasattr(self.make, "model_name")  # an attack that has its model already
        rule = "be a function from a model to an attack, such as `lambda model: torchattacks.PGD(model)`"
        require(callable(self.make) and not has_model, "make", rule, type(self.make))

    def _attack(self, library: ModuleType, model: nn.Module, inputs: Tensor, labels: Tensor) -> object:
        attack = self.make(model)
        require(callable(attack), "make", "return an attack", type(attack))
        return attack(inputs, labels)
