"""Numbers c_0 ≤ … ≤ c_m whose mean over the errors of m draws is at least F, whatever h is.

Of m noisy copies of a sample, K ~ Bin(m, h) err. If

    p(h) = Σ_k c_k P(Bin(m, h) = k) ≥ F(h)       for all h in [0, 1],

then E[c_K | x] ≥ F(h(x)): the mean of c_K over independent samples has an expectation of at least E F(h),
though no h was ever known. For a loss f in [0, 1] at each copy, Σ_k c_k P(PB(f₁ … f_m) = k) has the same
expectation as c_K, PB being the number of successes in m independent trials with these chances, and less
variance.

Who proposes c does not matter: ``lifted`` makes a proof of any. Bin(m, h) grows stochastically with h, so
that p is nondecreasing if c is, and on a cell between a and b of the scores

    p(Φ(t)) − F(t) ≥ p(Φ(a)) − F(b).

Cells are halved until the largest shortfall is known well, and it is added to all c, which adds it to p.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from certus.certificates.smoothing.binomial import Floats, binomial_mean, normal_below
from certus.certificates.smoothing.envelope import Envelope
from certus.errors import require
from certus.outward import MANY, SOME, down

_TOLERANCE = 1e-4  # how well the shortfall is known
_ROUNDS = 12


def lifted(proposed: Floats, envelope: Envelope) -> Floats:
    """Coefficients for which p ≥ F holds on all of [0, 1], at most a little above those proposed.

    Args:
        proposed: (m + 1,) any numbers; made nondecreasing, and not negative.
    """
    require(bool(np.isfinite(proposed).all()), "proposed", "be finite", proposed)
    rising = np.maximum.accumulate(np.maximum(proposed, 0.0))
    return rising + shortfall(rising, envelope)


def shortfall(rising: Floats, envelope: Envelope) -> float:
    """At least sup_h F(h) − p(h) for nondecreasing c, and at least 0."""
    require(bool((np.diff(rising) >= 0).all()), "rising", "be nondecreasing", rising)
    scores = envelope.scores
    below, above = _from_below(rising, scores), envelope.at(scores)
    # h under Φ(−6), where p ≥ c_0, and over Φ(6), where F ≤ 1.
    worst = max(0.0, float(above[0] - rising[0]), float(1 - below[-1]))
    left, right, low, high_left, high = scores[:-1], scores[1:], below[:-1], above[:-1], above[1:]
    for _ in range(_ROUNDS):
        # Where even the left ends differ, no halving helps.
        worst = max(worst, float((high_left - low).max()))
        open_ = high - low > worst + _TOLERANCE
        if not open_.any():
            break
        left, right, low, high_left, high = (values[open_] for values in (left, right, low, high_left, high))
        middle = (left + right) / 2
        low_middle, high_middle = _from_below(rising, middle), (high_left + high) / 2
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        low = np.concatenate([low, low_middle])
        high_left, high = np.concatenate([high_left, high_middle]), np.concatenate([high_middle, high])
    return max(worst + _TOLERANCE, float((high - low).max())) + MANY


def _from_below(rising: Floats, scores: Floats) -> Floats:
    """p(Φ(t)), rounded down: at a chance below Φ(t), where p is smaller."""
    found = binomial_mean(rising, down(1.0, SOME) * normal_below(scores))
    return down(1.0, MANY) * found - MANY


def count_values(coefficients: Floats, errors: Tensor) -> Tensor:
    """c_K of (n,) counts of errors. Returns (n,) float64."""
    return torch.from_numpy(coefficients)[errors]


def poisson_binomial(losses: Tensor) -> Tensor:
    """P(PB(f₁ … f_m) = k) for (n, m) losses in [0, 1]. Returns (n, m + 1), one trial after the other.

    >>> poisson_binomial(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    tensor([[0.2500, 0.5000, 0.2500],
            [0.0000, 1.0000, 0.0000]], dtype=torch.float64)
    """
    count, draws = losses.shape
    table = torch.zeros(count, draws + 1, dtype=torch.float64)
    table[:, 0] = 1
    for draw in range(draws):
        chance = losses[:, draw, None].double()
        moved = table[:, : draw + 1] * chance
        table[:, : draw + 1] -= moved
        table[:, 1 : draw + 2] += moved
    return table
