"""The robust transition: where an adversary, who pays γc, moves the next state of an MDP.

    s ← argmin_s  r(s) + λ max_a Q(s, a) + γ c(s, ŝ)                              [eqn:qlearningthing]

Minimising is maximising the negative: with the "loss" −r − λV, V(s) = max_a Q(s, a), this is the map T_γ of
eqn:transport-map, so the maximisers, costs and domains of the surrogate serve here unchanged. A reward maps
(batch, coordinates) states to (batch,) numbers, with torch, so that it can be differentiated; the paper's is
e^(−|β|).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus._compiled import Real, compiled
from certus._tensor import as_float64
from certus._validation import check_penalty
from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import LossError, require, require_count
from certus.inner import WRM, BarzilaiBorwein, InnerSolution, Maximizer

Reward = Callable[[Tensor], Tensor]
"""``reward(states) -> (batch,)``, differentiable in the states."""
Value = Reward
"""V(s) = max_a Q(s, a), differentiable in the states."""


@dataclass(frozen=True)
class AngleReward:
    """r(s) = e^(−|β|), β the coordinate of that index (sec:cartpole).

    It has a kink at β = 0, where its slope is taken to be −1, that of the right side: a state at the top
    moves to the right.

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


def lambert_w(x: Real) -> Real:
    """W(x) for a number or an array x ≥ 0, by Halley's method from log(1 + x).

    >>> round(float(lambert_w(np.e)), 12)
    1.0
    """
    w = np.log1p(x)
    for _ in range(6):  # enough for the last digit of every double x ≥ 0
        excess = w - x * np.exp(-w)
        w = w - excess / (1 + w - (w + 2) * excess / (2 * w + 2))
    return w


lambert_w_fast = compiled(lambert_w)


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
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values)
        raise LossError(f"`reward` must return one number per state, shape ({len(states)},); got {shape}.")
    if gradient and not values.requires_grad:
        raise LossError(
            "`reward` has no gradient in the state, and the robust transition follows one. "
            "Write it with torch operations on the states, without .detach(), .item() or NumPy."
        )


_PRECISE = BarzilaiBorwein(tolerance=1e-8, max_gradients=100)


class WeakPenaltyWarning(UserWarning):
    """Warning that γ is below the threshold of a guarantee."""


class RobustTransition:
    """Robust transition: moves next states to (nearly) the worst ones, ``transition(states) -> states``.

    Args:
        reward: r, differentiable.
        gamma: the penalty γ > 0.
        discount: λ, the weight of V where one is given.
        cost, domain: c, and the set of states that may be reached.
        maximizer: algorithm for problems without a closed form.
        curvature_bound: if you have one, an upper bound L⁺ on the curvature of −r − λV in the cost's norm.
            Below the threshold γ = L⁺/s, s the cost's modulus, descent may end in a local minimum, and a
            ``WeakPenaltyWarning`` is raised; above it, ``gap`` bounds the distance to the minimum value. −V
            needs no more than each −Q(·, a): a minimum of smooth functions has no larger curvature upwards.

    >>> import torch
    >>> RobustTransition(AngleReward(), gamma=50.0)(torch.tensor([[0.0, 1.0], [-0.1, 0.0]]))
    tensor([[ 0.0099,  1.0000], [-0.1090,  0.0000]])
    """

    def __init__(
        self,
        reward: Reward,
        gamma: float,
        *,
        discount: float = 0.99,
        cost: Cost = SquaredL2(),  # noqa: B008  (frozen)
        domain: Domain = Unbounded(),  # noqa: B008  (frozen)
        maximizer: Maximizer = _PRECISE,
        curvature_bound: float | None = None,
    ) -> None:
        require(0 <= discount < 1, "discount", "lie in [0, 1)", discount)
        self.reward, self.discount, self.curvature_bound = reward, discount, curvature_bound
        self.gamma = check_single_penalty(gamma)
        self._wrm = WRM(self.gamma, cost=cost, domain=domain, maximizer=maximizer)
        self._checked = False
        if curvature_bound is not None and cost.strong_convexity * self.gamma <= curvature_bound:
            threshold = (
                f"the threshold {curvature_bound / cost.strong_convexity:g}"
                if cost.strong_convexity > 0
                else "every threshold, since the cost has no curvature"
            )
            warnings.warn(
                f"gamma = {self.gamma:g} is not above {threshold}: the robust transition may be a local "
                "minimum only.",
                WeakPenaltyWarning,
                stacklevel=2,
            )

    def __call__(self, states: Tensor, value: Value | None = None) -> Tensor:
        """Return the moved states, detached, in closed form where there is one; shapes stay the same. Without
        a ``value`` V the Q-term is left out."""
        simple = type(self._wrm.cost) is SquaredL2 and type(self._wrm.domain) is Unbounded
        if value is None and simple and isinstance(self.reward, AngleReward):
            return self.reward.lowest(states, self.gamma)
        return self.solve(states, value).inputs

    def solve(self, states: Tensor, value: Value | None = None) -> InnerSolution:
        """Solve the problem by the maximiser. The solution's ``value`` is −(r + λV + γc) where it ended."""
        check_states(states)
        if not self._checked:
            check_reward(self.reward, states)
            self._checked = True

        def loss(moved: Tensor) -> Tensor:
            rewards = self.reward(moved)
            return -rewards if value is None else -rewards - self.discount * value(moved)

        return self._wrm.solve(loss, states, curvature_bound=self.curvature_bound)
