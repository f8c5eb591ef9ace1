"""Failures of a noisy model: one draw that errs, or a vote of several draws that fails.

Let h be the probability that the model errs at x + noise. A vote of M draws fails when at least t of them
err, which has the probability v(h) = P(Bin(M, h) ≥ t), nondecreasing in h:

| | M | t |
|---|---|---|
| the mean error: one draw | 1 | 1 |
| the vote of M draws, ties lost | M | ⌈M/2⌉ |
| the same, which abstains at level α, and abstentions are failures | M | as below |
| the ideal vote, which knows h | ∞ | lost for h ≥ ½ |

The vote that abstains (Cohen, Rosenfeld and Kolter) gives the most frequent label if the two-sided binomial
test against the runner-up rejects even odds at level α. With K errors the true label has M − K votes and no
other has more than K, so that it wins surely if 2·P(Bin(M, ½) ≥ M − K) ≤ α. All smaller K win as well: t is
the least K that does not. A label that is neither counts for less, which helps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from certus.errors import require, require_count
from certus.rounding import MANY, up
from certus.smoothing.binomial import (
    MOST_DRAWS,
    Floats,
    binomial_tail,
    largest_binomial_probability,
    normal_cdf,
)

_STEEPEST = 0.24197072451914337  # φ(1) = max |t φ(t)|


@dataclass(frozen=True)
class VotingRule:
    """A vote of ``votes`` draws that fails when ``failure_threshold`` of them err; None is the ideal vote."""

    votes: int | None
    failure_threshold: int = 0
    abstain: float | None = None

    @staticmethod
    def of(votes: int, abstain: float | None = None) -> VotingRule:
        """The rule of a deployed vote.

        Args:
            abstain: α, below which the test must come out for a label to be given; None: the most frequent
                label is given in any case, and ties are lost.

        >>> [VotingRule.of(*vote).failure_threshold for vote in ((100,), (100, 0.001), (1,))]
        [50, 34, 1]
        """
        require_count("votes", votes)
        require(votes <= MOST_DRAWS, "votes", f"be at most {MOST_DRAWS:,}", votes)
        if abstain is None:
            return VotingRule(votes, math.ceil(votes / 2))
        require(0 < abstain <= 1, "abstain", "lie in (0, 1], or be None", abstain)
        tail, level, errors = 0, Fraction(abstain) * 2**votes, 0
        while 2 * errors < votes:
            tail += math.comb(votes, errors)
            if 2 * tail > level:
                break
            errors += 1
        return VotingRule(votes, errors, abstain)

    def gives(self, most: int, second: int) -> bool:
        """Whether the most frequent label is given, from the counts of the two most frequent ones."""
        if self.abstain is None:
            return most > second
        return most > second and _even_odds(most, second) <= Fraction(self.abstain)

    def chance(self, scores: Floats) -> Floats:
        """v(Φ(t)), rounded up, at most 1. Shapes (cells,) → (cells,)."""
        if self.votes is None:
            return (scores >= 0).astype(np.float64)
        tail = binomial_tail(self.failure_threshold, self.votes, normal_cdf(scores))
        return np.minimum(1.0, up(1.0, MANY) * tail + MANY)

    @property
    def bend(self) -> float:
        """B ≥ sup −(v∘Φ)''. With b the binomial probabilities, v' = M b_{M−1,t−1} and
        −v'' ≤ M(M − 1) b_{M−2,t−1}, each at most its mode; and φ² ≤ 1/2π, |tφ(t)| ≤ φ(1)."""
        assert self.votes is not None  # the ideal vote needs none
        many, lost = self.votes, self.failure_threshold
        if lost == 0:
            return 0.0
        second = many * (many - 1) * largest_binomial_probability(lost - 1, many - 2) / (2 * math.pi)
        return up(second + _STEEPEST * many * largest_binomial_probability(lost - 1, many - 1), MANY)


@cache
def _even_odds(most: int, second: int) -> Fraction:
    """The two-sided binomial test of even odds, exactly."""
    both = most + second
    return Fraction(2 * sum(math.comb(both, errors) for errors in range(second + 1)), 2**both)


ONE_DRAW, IDEAL_VOTE = VotingRule(1, 1), VotingRule(None)
