"""Rewards r(s): any function of the states that has gradients, and the paper's e^(−|β|).

A reward maps (batch, coordinates) states to (batch,) numbers, with torch, so that the robust transition can
differentiate it (eqn:qlearningthing).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus._tensor import as_float64
from certus._validation import check_penalty
from certus.errors import LossError, require, require_count
from certus.mdp._compiled import Real, compiled, lambert_w, lambert_w_fast

Reward = Callable[[Tensor], Tensor]
"""``reward(states) -> (batch,)``, differentiable in the states."""


@dataclass(frozen=True)
class AngleReward:
    """r(s) = e^(−|β|), β the coordinate of that index (sec:cartpole).

    It has a kink at β = 0, where its slope is taken to be that of the right side, −1: a state at rest on
    the top is pushed to the right, and never left where it is.

    >>> AngleReward(1)(torch.tensor([[5.0, 0.0], [5.0, -math.log(2)]]))
    tensor([1.0000, 0.5000])
    """

    coordinate: int = 0

    def __post_init__(self) -> None:
        require_count("coordinate", self.coordinate, least=0)

    def __call__(self, states: Tensor) -> Tensor:
        self._check(states)
        angle = states[:, self.coordinate]
        return torch.exp(-torch.where(angle >= 0, angle, -angle))

    def lowest(self, states: Tensor, gamma: float) -> Tensor:
        """argmin_s r(s) + γ‖s − ŝ‖₂² in closed form, for any γ > 0. Shapes (batch, …) → (batch, …)."""
        self._check(states)
        require(bool(torch.isfinite(states).all()), "states", "be finite", "NaN or infinity")
        gamma = check_single_penalty(gamma)
        moved = states.detach().clone()
        angles = moved[:, self.coordinate].cpu().double().numpy()
        moved[:, self.coordinate] = torch.from_numpy(pushed(angles, gamma)).to(moved)
        return moved

    def _check(self, states: Tensor) -> None:
        check_states(states)
        rule = f"be below {states.shape[1]}, the number of coordinates of a state"
        require(self.coordinate < states.shape[1], "coordinate", rule, self.coordinate)


def check_states(states: Tensor) -> None:
    """Raise ``ArgumentError`` unless states can be moved: (batch, coordinates, …) floating-point numbers."""
    require(isinstance(states, Tensor), "states", "be a tensor", type(states))
    require(states.is_floating_point(), "states", "be of a floating-point dtype", states.dtype)
    shape = tuple(states.shape)
    require(len(shape) >= 2, "states", "have shape (batch, coordinates)", f"shape {shape}")


def check_single_penalty(gamma: object) -> float:
    """γ as a number: positive, finite, and not so small that 1/2γ overflows."""
    check_penalty(gamma)
    values = as_float64(gamma)
    require(values.numel() == 1, "gamma", "be one number for all states", f"shape {tuple(values.shape)}")
    number, least = values.item(), float(np.finfo(np.float64).tiny)
    require(number >= least, "gamma", f"be at least {least:.2g}", number)
    return number


def pushed(angle: Real, gamma: float) -> Real:
    """argmin_β e^(−|β|) + γ(β − β̂)² = β̂ ± W(e^(−|β̂|)/2γ), away from 0, and to the right at β̂ = 0.

    On the side of β̂ the function is strictly convex, and e^(−|β|) = 2γ(|β| − |β̂|) has the one root
    |β| = |β̂| + W(e^(−|β̂|)/2γ); the other side mirrors the reward and is farther away. So this is the global
    minimum for every γ > 0, and the only one unless β̂ = 0, where ±W(1/2γ) are equally low.
    """
    distance = lambert_w(np.exp(-np.abs(angle)) / (2 * gamma))
    return np.where(angle >= 0, angle + distance, angle - distance)


def _pushed_number(angle: Real, gamma: float) -> Real:
    distance = lambert_w_fast(np.exp(-abs(angle)) / (2 * gamma))
    return angle + distance if angle >= 0 else angle - distance


pushed_fast = compiled(_pushed_number)


def finest_penalty(width: float) -> float:
    """The γ at which e^(−|β|) pushes a state at 0 by ``width``: W(1/2γ) = width, so γ = e^(−width)/(2·width).

    >>> round(finest_penalty(0.01), 1)
    49.5
    """
    return math.exp(-width) / (2 * width)


def check_reward(reward: Reward, states: Tensor, *, gradient: bool = True) -> None:
    """Raise ``LossError`` unless the reward gives one number per state, with a gradient where one is used."""
    if not callable(reward):
        raise LossError(f"`reward` must be callable, states -> (batch,); got {type(reward)}.")
    with torch.enable_grad():
        values = reward(states.detach().clone().requires_grad_())
    if not isinstance(values, Tensor) or values.shape != (len(states),):
        found = tuple(values.shape) if isinstance(values, Tensor) else type(values)
        raise LossError(f"`reward` must return one number per state, shape ({len(states)},); got {found}.")
    if gradient and not values.requires_grad:
        raise LossError(
            "`reward` has no gradient in the state, and the robust transition follows one. "
            "Write it with torch operations on the states, without .detach(), .item() or NumPy."
        )
