"""The Neyman–Pearson bound on the failure probability near a sample.

Let h(x) be the probability that a model errs at x + σZ, Z standard normal, or the mean of any loss in [0, 1].
Then Φ⁻¹∘h rises by at most ‖x' − x‖/σ (Neyman and Pearson). With a = Φ⁻¹(h(x)), κ = γσ² and a rule v, the
most that moving x can gain after paying γ‖x' − x‖² is

    F_κ(a) = sup_{t ≥ a} v(Φ(t)) − κ(t − a)².

F is nondecreasing, and allowing t < a changes nothing, since v∘Φ is nondecreasing. Two facts make a grid a
proof. For t_j at distances Δ, and B ≥ sup −(v∘Φ)'',

    F_κ(a) ≤ max_j v(Φ(t_j)) − κ(t_j − a)² + (B/8 + κ/4)Δ²,

because between two grid points v∘Φ exceeds its chord by at most BΔ²/8, and a parabola of curvature 2κ its
own by κΔ²/4. And F_κ(a) + κa² is a supremum of straight lines in a, hence convex, so that between two points
at distance δ

    F_κ(a) ≤ chord + κδ²/4.

The ideal vote has the closed form 1 for a ≥ 0 and (1 − κa²)₊ below. A label that changes at the price λ turns
F into max(F, 1 − γλ), for which the second fact holds as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from certus.rounding import MANY, SOME
from certus.smoothing.binomial import Floats
from certus.smoothing.voting import VotingRule

END = 6.0
"""Scores beyond ±6, h below 10⁻⁹ or above 1 − 10⁻⁹, are taken for one cell each."""

_OVERSHOOT = 2e-5  # what a grid may cost, for each of the two facts
_TAIL = 1e-7


@dataclass(frozen=True, eq=False)
class NeymanPearsonBound:
    """An upper bound on F_κ: linear between the points of a grid, F(−6) below it and 1 above.

    Attributes:
        penalty: κ = γσ².
        scores, values: (points,) the grid a_j, increasing, and the bound there, at most 1.
    """

    penalty: float
    scores: Floats
    values: Floats

    @staticmethod
    def of(rule: VotingRule, penalty: float, floor: float = 0.0) -> NeymanPearsonBound:
        """
        Args:
            floor: 1 − γλ for a label price λ; what the adversary has anyway.
        """
        step = min(0.02, 2 * math.sqrt(_OVERSHOOT / penalty))
        scores = np.linspace(-END, END, 1 + math.ceil(2 * END / step))
        step = float(scores[1] - scores[0]) * (1 + SOME)
        values = np.maximum(worst_failure_probability(rule, penalty, scores), floor) + penalty * step**2 / 4
        # Nondecreasing is what it is; making it so only raises it.
        return NeymanPearsonBound(penalty, scores, np.maximum.accumulate(np.minimum(1.0, values + MANY)))

    def at(self, scores: Floats) -> Floats:
        """The bound at scores of the grid's range, and beyond. Shapes (cells,) → (cells,)."""
        inside = np.interp(scores, self.scores, self.values)
        return np.where(scores > END, 1.0, inside)


def worst_failure_probability(
    rule: VotingRule, penalty: float, scores: Floats, overshoot: float = _OVERSHOOT
) -> Floats:
    """F_κ at each score, from above, by at most ``overshoot`` and a little. Shapes (cells,) → (cells,)."""
    if rule.votes is None:
        return np.where(scores >= 0, 1.0, np.maximum(0.0, 1 - penalty * scores**2))
    points, chances, extra = _stations(rule, penalty, overshoot)
    best = np.full(len(scores), -np.inf)
    step = max(1, 2**21 // len(points))
    for start in range(0, len(scores), step):
        some = scores[start : start + step, None]
        best[start : start + step] = (chances - penalty * (points - some) ** 2).max(1)
    # Left of the stations v is at most its value at the first, right of them at most 1.
    beyond = 1 - penalty * np.maximum(points[-1] - scores, 0.0) ** 2
    return np.asarray(np.maximum(np.maximum(best + extra, chances[0]), beyond))


def _stations(rule: VotingRule, penalty: float, overshoot: float) -> tuple[Floats, Floats, float]:
    """t_j, v(Φ(t_j)) where v∘Φ is not yet, or no longer, constant, and (B/8 + κ/4)Δ²."""
    curved, (low, high) = rule.bend / 8 + penalty / 4, _rising(rule)
    width = math.sqrt(overshoot / curved)
    points = np.linspace(low, high, 1 + math.ceil((high - low) / width))
    width = float(points[1] - points[0]) * (1 + SOME)
    return points, rule.chance(points), curved * width**2 + MANY


@cache
def _rising(rule: VotingRule) -> tuple[float, float]:
    """Between which scores v∘Φ rises from nearly 0 to nearly 1."""
    coarse = np.linspace(-END, END, 1201)
    chances = rule.chance(coarse)
    first = max(0, int((chances <= _TAIL).sum()) - 1)
    last = min(len(coarse) - 1, max(first + 1, int((chances < 1 - _TAIL).sum())))
    return float(coarse[min(first, last - 1)]), float(coarse[last])
