"""Methods: how Algorithm 1 moves a batch before it takes its step (alg:thealg).

ERM, FGSM, BIM, PGD and WRM differ in this and in nothing else, so training and evaluation have one path for
all of them. A method of your own is a subclass with a ``__call__``, or any function of the same signature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from certus._names import GRADIENT_ATTACKS, PAPER_NAMES
from certus._tensor import inner
from certus.costs import Cost
from certus.errors import ArgumentError, require
from certus.losses import AnyLoss


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A batch as a method leaves it.

    Attributes:
        inputs: (batch, …) moved, and detached.
        targets: those that belong to them; they move only under a label cost.
        measured: what the method tells of each sample, by name, (batch,) each.
    """

    inputs: Tensor
    targets: Tensor | None
    measured: dict[str, Tensor]


class Penalty(Protocol):
    """What a method that pays for moves tells of its γ; see ``WRM``."""

    cost: Cost
    gamma_min: float

    @property
    def gamma(self) -> float | Tensor | None: ...

    @property
    def rho(self) -> float | None: ...

    @property
    def at_floor(self) -> bool: ...

    def load_state_dict(self, state: dict[str, float | None]) -> None: ...

    def careful(self) -> Method:
        """The same at the present γ, with an ascent that is good enough to measure ρ̂."""
        ...


class Method(ABC):
    """Moves inputs against the loss: ``method(loss, inputs, targets) -> moved inputs``."""

    @abstractmethod
    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        """(batch, …) → (batch, …), detached."""

    def perturb(
        self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, weights: Tensor | None = None
    ) -> Perturbation:
        """The same with targets and what was measured: unless a method knows better, squared L2 lengths.

        Args:
            weights: (batch,) how much each sample counts, for a method that takes means; all alike when None.
        """
        moved = self(loss, inputs, targets)
        move = moved - inputs
        return Perturbation(moved, targets, {"rho_running": inner(move, move)})

    @property
    def penalty(self) -> Penalty | None:
        """The γ of the method; None if it has none."""
        return None

    @property
    def compares(self) -> str | None:
        """What in it compares losses, which must then be the same at every look; None if nothing does."""
        return None

    def train(self, mode: bool = True) -> Method:
        """Training begins, or ends; a method with state moves it only in between."""
        return self

    def state_dict(self) -> dict[str, float | None]:
        """What a checkpoint must keep."""
        return {}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        """Restore what ``state_dict`` returned."""
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
    """A function as a method."""

    function: Callable[[AnyLoss, Tensor, Tensor | None], Tensor]

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        moved = self.function(loss, inputs, targets)
        same = isinstance(moved, Tensor) and moved.shape == inputs.shape
        shape = f"shape {tuple(moved.shape)}" if isinstance(moved, Tensor) else type(moved)
        name = getattr(self.function, "__name__", str(self.function))
        require(same, name, f"return moved inputs of shape {tuple(inputs.shape)}", shape)
        return moved


MethodLike = Method | Callable[[AnyLoss, Tensor, Tensor | None], Tensor]
"""A method, or a function of (loss, inputs, targets) that returns moved inputs."""


_MEANT = {
    "erm": "certus.inner.methods.ERM(), or left out",
    "wrm": "certus.WRM(gamma=...) or certus.WRM(rho=...)",
    **{name: f"certus.attacks.{name.upper()}(epsilon)" for name in (*GRADIENT_ATTACKS, *PAPER_NAMES)},
}


def as_method(method: MethodLike | None, name: str = "method") -> Method:
    """The method itself, a function made into one, and ERM for None.

    Args:
        name: of the caller's argument, for errors.

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
