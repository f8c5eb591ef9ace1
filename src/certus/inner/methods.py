"""Methods: the part of Algorithm 1 that moves a batch (alg:thealg), in which ERM, FGSM, BIM, PGD and WRM
differ. To add one, subclass ``Method`` with a ``__call__``, or pass a function of its signature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from certus._names import GRADIENT_ATTACKS, PAPER_NAMES
from certus._tensor import inner
from certus.errors import ArgumentError, require
from certus.losses import AnyLoss

if TYPE_CHECKING:
    from certus.inner.wrm import WRM


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Batch that a method has moved."""

    inputs: Tensor  # (batch, …) moved, and detached
    targets: Tensor | None  # those that belong to them; they move only under a label cost
    measured: dict[str, Tensor]  # (batch,) quantities by name


class Method(ABC):
    """Method of training or attack: ``method(loss, inputs, targets) -> moved inputs``."""

    @abstractmethod
    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        """Return the moved inputs, detached. Shapes (batch, …) → (batch, …)."""

    def perturb(
        self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> Perturbation:
        """Move a batch, with its targets and measured quantities: by default squared L2 distances; (batch,)
        weights of the samples are for a method that takes means."""
        moved = self(loss, inputs, targets)
        move = moved - inputs
        return Perturbation(moved, targets, {"rho_running": inner(move, move)})

    @property
    def penalty(self) -> WRM | None:
        """The WRM whose γ pays for the moves; None for a method without a penalty."""
        return None

    def train(self, mode: bool = True) -> Method:
        """Switch training mode, in which a method with state updates it."""
        return self

    def state_dict(self) -> dict[str, float | None]:
        """Return the state for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Restore the result of ``state_dict``."""
        require(not state, "state", "be empty for a method without state", sorted(state))


@dataclass(frozen=True)
class ERM(Method):
    """Empirical risk minimisation: the inputs stay where they are."""

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        return inputs

    def perturb(
        self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> Perturbation:
        return Perturbation(inputs, targets, {})


@dataclass(frozen=True)
class FunctionMethod(Method):
    """Method that calls a function."""

    function: Callable[[AnyLoss, Tensor, Tensor | None], Tensor]

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        moved = self.function(loss, inputs, targets)
        shape = f"shape {tuple(moved.shape)}" if isinstance(moved, Tensor) else type(moved)
        name = getattr(self.function, "__name__", str(self.function))
        rule = f"return moved inputs of shape {tuple(inputs.shape)}"
        require(isinstance(moved, Tensor) and moved.shape == inputs.shape, name, rule, shape)
        return moved


MethodLike = Method | Callable[[AnyLoss, Tensor, Tensor | None], Tensor]
"""A method, or a function of (loss, inputs, targets) that returns moved inputs."""


_MEANT = {
    "erm": "certus.inner.methods.ERM(), or left out",
    "wrm": "certus.WRM(gamma=...) or certus.WRM(rho=...)",
    **{name: f"certus.attacks.{name.upper()}(epsilon)" for name in (*GRADIENT_ATTACKS, *PAPER_NAMES)},
}


def as_method(method: MethodLike | None, name: str = "method") -> Method:
    """Return a method, one made of a function, or ERM for None; errors are about the argument ``name``.

    >>> as_method(None)
    ERM()
    """
    if method is None:
        return ERM()
    if isinstance(method, str) and method.lower() in _MEANT:
        raise ArgumentError(f"`{name}` must be an object, {_MEANT[method.lower()]}; got {method!r}.")
    rule = "be a method, such as certus.WRM(gamma=2.0), or a function of (loss, inputs, targets)"
    require(callable(method) and not isinstance(method, type), name, rule, method)
    return method if isinstance(method, Method) else FunctionMethod(method)
