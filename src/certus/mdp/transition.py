"""The robust transition: where an adversary, who pays γc, moves the next state of an MDP.

    s ← argmin_s  r(s) + λ max_a Q(s, a) + γ c(s, ŝ)                              [eqn:qlearningthing]

Minimising is maximising the negative: with the "loss" −r − λV, V(s) = max_a Q(s, a), this is the map T_γ of
eqn:transport-map, so the maximisers, costs and domains of the surrogate serve here unchanged.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

from torch import Tensor

from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import require
from certus.inner import WRM, BarzilaiBorwein, InnerSolution, Maximizer
from certus.mdp.rewards import AngleReward, Reward, check_reward, check_single_penalty, check_states

Value = Callable[[Tensor], Tensor]
"""V(s) = max_a Q(s, a): ``value(states) -> (batch,)``, differentiable in the states."""

_PRECISE = BarzilaiBorwein(tolerance=1e-8, max_gradients=100)


class WeakPenaltyWarning(UserWarning):
    """γ is below a threshold that is known: what it is good for is no longer assured."""


class RobustTransition:
    """Moves next states to (nearly) the worst ones: ``transition(states) -> states``.

    Args:
        reward: r, differentiable.
        gamma: the penalty γ > 0.
        discount: λ, the weight of V where one is given.
        cost, domain: c, and the set of states that may be reached.
        maximizer: how the problem is solved where it has no closed form.
        curvature_bound: if you have one, an upper bound L⁺ on the curvature of −r − λV in the cost's norm.
            Below the threshold γ = L⁺/s, s the cost's modulus, descent may end in a local minimum, and
            a ``WeakPenaltyWarning`` says so; above it, ``gap`` bounds what is missing. −V needs no more
            than each −Q(·, a): a minimum of smooth functions has no larger curvature upwards.

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
        """The states moved, detached: in closed form where there is one. Shapes (batch, …) → (batch, …).

        Args:
            states: (batch, …) ŝ, what the environment did.
            value: V; None leaves the Q-term out.
        """
        simple = type(self._wrm.cost) is SquaredL2 and type(self._wrm.domain) is Unbounded
        if value is None and simple and isinstance(self.reward, AngleReward):
            return self.reward.lowest(states, self.gamma)
        return self.solve(states, value).inputs

    def solve(self, states: Tensor, value: Value | None = None) -> InnerSolution:
        """The same by the maximiser, with all it knows. Its ``value`` is −(r + λV + γc) where it ended."""
        check_states(states)
        if not self._checked:
            check_reward(self.reward, states)
            self._checked = True

        def loss(moved: Tensor) -> Tensor:
            rewards = self.reward(moved)
            return -rewards if value is None else -rewards - self.discount * value(moved)

        return self._wrm.solve(loss, states, curvature_bound=self.curvature_bound)
