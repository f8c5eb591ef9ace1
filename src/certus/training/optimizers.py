"""Outer step of Algorithm 1: optimizers, schedulers, weight decay by layer (tab:mnist-extra2), projections.

A projection Proj_Θ returns the weights to a set Θ after each step (alg:thealg). On Θ = R^d the constants of
thm:convergence are not finite for a deep network; on a bounded Θ they are. With F(θ) = E[φ_γ(θ; Z)], an
ε-approximate inner maximiser and L_φ = L_θθ + L_θz L_zθ/μ, the constant step √(Δ/(L_φ T σ²)) gives

    (1/T) Σ_t E‖∇F(θ^t)‖² ≤ 4σ√(L_φ Δ/T) + 4 L_θz² ε/μ        for T ≥ L_φ Δ/σ²       [thm:convergence]

μ is the modulus of the inner problem, sγ − L⁺ (the paper's γ − L_zz for its costs of modulus 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau

from certus._defaults import PLAIN
from certus.errors import ArgumentError, UnsupportedError, require, require_number


def decay_groups(model: nn.Module, decay: float | Mapping[str, float] = 0.0) -> list[dict[str, Any]]:
    """Return parameter groups for a torch optimizer, one for each amount of decay. Biases do not decay.

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
    """Return a decay by layer: ``early`` for the first half of the weight layers, ``late`` for the rest.

    >>> early_and_late(nn.Sequential(nn.Linear(2, 3), nn.ELU(), nn.Linear(3, 2)), 0.5, 0.01)
    {'0': 0.5, '2': 0.01}
    """
    layers = [
        name
        for name, module in model.named_modules()
        if any(weight.dim() > 1 for weight in module.parameters(recurse=False))
    ]
    return {name: early if index < len(layers) / 2 else late for index, name in enumerate(layers)}


OptimizerLike = Optimizer | Callable[[list[dict[str, Any]]], Optimizer] | None
"""An optimizer, or a function that makes one from parameter groups; None for the default."""

SchedulerLike = LRScheduler | Callable[[Optimizer], LRScheduler] | None
"""A learning-rate scheduler, or a function that makes one from the optimizer; None for the default."""

_OPTIMIZER = (
    "such as lambda groups: torch.optim.SGD(groups, lr=0.1), or an optimizer of the model's parameters"
)
_SCHEDULER = "such as lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)"


def make_optimizer(
    given: OptimizerLike,
    model: nn.Module,
    weight_decay: float | Mapping[str, float] = 0.0,
    learning_rate: float = PLAIN.learning_rate,
) -> Optimizer:
    """Return the given optimizer, which has its own weight decay, or the one that a function makes of
    ``decay_groups``; Adam for None."""
    if isinstance(given, Optimizer):
        require(weight_decay == 0, "weight_decay", "be left out: the optimizer has its own", weight_decay)
        own = {id(weight) for weight in model.parameters() if weight.requires_grad}
        held = {id(weight) for group in given.param_groups for weight in group["params"]}
        content = f"{len(held & own)} of its {len(own)}, and {len(held - own)} others"
        rule = "hold the parameters of the model, all of them and no others"
        require(held == own, "optimizer", rule, content)
        return given
    groups = decay_groups(model, weight_decay)
    if given is None:
        return Adam(groups, lr=learning_rate)
    rule = f"be a torch optimizer, or a function from parameter groups to one, {_OPTIMIZER}"
    require(callable(given), "optimizer", rule, repr(given))
    optimizer = given(groups)
    valid = isinstance(optimizer, Optimizer)
    require(valid, "optimizer", f"make an optimizer, {_OPTIMIZER}", type(optimizer))
    return optimizer


def make_scheduler(
    given: SchedulerLike, optimizer: Optimizer, cosine: int | None = None
) -> LRScheduler | None:
    """Return the given scheduler, or the one that a function makes; for None a cosine down to 0 over
    ``cosine`` epochs, or a constant rate."""
    if given is None:
        return None if cosine is None else CosineAnnealingLR(optimizer, T_max=cosine)
    scheduler = given
    if not isinstance(given, LRScheduler):
        require(callable(given), "scheduler", f"be a scheduler, or make one, {_SCHEDULER}", repr(given))
        scheduler = given(optimizer)
    if isinstance(scheduler, ReduceLROnPlateau):
        raise UnsupportedError("`scheduler` must step by the epoch alone; ReduceLROnPlateau needs a metric.")
    valid = isinstance(scheduler, LRScheduler)
    require(valid, "scheduler", f"make a scheduler from the optimizer, {_SCHEDULER}", type(scheduler))
    assert isinstance(scheduler, LRScheduler)
    own = scheduler.optimizer is optimizer
    require(own, "scheduler", "be a scheduler of `optimizer`, which is given too", "one of another optimizer")
    return scheduler


Projection = Callable[[nn.Module], None]
"""Moves the parameters of a model to the nearest ones in Θ, in place."""


class _PositiveFields:
    """Check of a dataclass: every field is positive and finite."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(0 < value < math.inf, name, "be positive and finite", value)


@dataclass(frozen=True)
class WeightBall(_PositiveFields):
    """Θ = {θ : ‖θ‖₂ ≤ radius}, all parameters taken as one vector."""

    radius: float

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        weights = list(model.parameters())
        length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(w) for w in weights]))
        if length > self.radius:
            for weight in weights:
                weight.mul_(self.radius / length)


@dataclass(frozen=True)
class WeightBox(_PositiveFields):
    """Θ = {θ : −limit ≤ θᵢ ≤ limit}, every parameter by itself."""

    limit: float

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        for weight in model.parameters():
            weight.clamp_(-self.limit, self.limit)


@dataclass(frozen=True)
class SpectralBall(_PositiveFields):
    """Θ = {θ : the largest singular value of each weight matrix is ≤ limit}; biases are free.

    The nearest matrix in the Frobenius norm has the same singular vectors and clipped singular values.
    """

    limit: float

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            if weight.dim() > 2:
                raise UnsupportedError(
                    f"SpectralBall projects weight matrices only; `{name}` has shape {tuple(weight.shape)}."
                )
            if weight.dim() == 2:
                left, singular, right = torch.linalg.svd(weight, full_matrices=False)
                if singular[0] > self.limit:
                    weight.copy_((left * singular.clamp_max(self.limit)) @ right)


@dataclass(frozen=True)
class ConvergenceConstants:
    """Constants of thm:convergence; every entry is the caller's claim.

    Attributes:
        parameter_smoothness: L_θθ, the Lipschitz constant of ∇_θ ℓ in θ.
        cross_smoothness: L_θz = L_zθ, that of ∇_θ ℓ in z (and of ∇_z ℓ in θ).
        modulus: μ > 0, strong concavity of the inner problem.
        initial_gap: Δ ≥ F(θ⁰) − inf F.
        noise: σ, with E‖∇F(θ) − ∇_θ φ_γ(θ; Z)‖² ≤ σ².
    """

    parameter_smoothness: float
    cross_smoothness: float
    modulus: float
    initial_gap: float
    noise: float

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in ("parameter_smoothness", "cross_smoothness"):
                require(0 <= value < math.inf, name, "be finite and not negative", value)
            else:
                require(0 < value < math.inf, name, "be positive and finite", value)
        if self.smoothness == 0:
            raise ArgumentError("The surrogate must not be linear in θ; got L_φ = 0.")

    @property
    def smoothness(self) -> float:
        """L_φ, the Lipschitz constant of ∇_θ φ_γ (lemma:smoothness)."""
        return self.parameter_smoothness + self.cross_smoothness**2 / self.modulus

    def least_steps(self) -> int:
        """Return the smallest T for which the theorem holds."""
        return max(1, math.ceil(self.smoothness * self.initial_gap / self.noise**2))

    def step_size(self, steps: int) -> float:
        """Return the constant step √(Δ/(L_φ T σ²)).

        >>> ConvergenceConstants(1.0, 1.0, 1.0, 2.0, 1.0).step_size(100)
        0.1
        """
        self._check(steps)
        return math.sqrt(self.initial_gap / (self.smoothness * steps * self.noise**2))

    def bound(self, steps: int, accuracy: float = 0.0) -> float:
        """Return the bound on the mean of E‖∇F(θ^t)‖² after ``steps`` steps with inner accuracy ε."""
        self._check(steps)
        require(accuracy >= 0, "accuracy", "not be negative", accuracy)
        rate = 4 * self.noise * math.sqrt(self.smoothness * self.initial_gap / steps)
        return rate + 4 * self.cross_smoothness**2 / self.modulus * accuracy

    def _check(self, steps: int) -> None:
        least = self.least_steps()
        require(steps >= least, "steps", f"be at least L_φΔ/σ² = {least}", steps)
