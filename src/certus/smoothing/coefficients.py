"""Coefficients c_0 ≤ … ≤ c_m whose mean bounds the worst case, and the linear program that proposes them.

Of m noisy copies of a sample, K ~ Bin(m, h) err. If

    p(h) = Σ_k c_k P(Bin(m, h) = k) ≥ F(h)       for all h in [0, 1],

then E[c_K | x] ≥ F(h(x)): the mean of c_K over independent samples has an expectation of at least E F(h),
without h being known. For a loss f in [0, 1] at each copy, Σ_k c_k P(PB(f₁ … f_m) = k) has the same
expectation as c_K and less variance, PB being the number of successes in m independent trials with these
probabilities.

*Proposal.* Among nondecreasing c, c_k = Σ_{j ≤ k} d_j with d ≥ 0, a linear program takes those of least mean
under a guess of the distribution of errors, subject to p ≥ F on a grid, to which points of the largest
shortfall are added:

    minimise Σ_j d_j P(K ≥ j)   subject to   Σ_j d_j P(Bin(m, h_i) ≥ j) ≥ F(h_i),   d ≥ 0.

*Proof.* ``lifted`` turns any proposal into valid coefficients. Bin(m, h) grows stochastically with h, so that
p is nondecreasing if c is, and on a cell between the scores a and b

    p(Φ(t)) − F(t) ≥ p(Φ(a)) − F(b).

Cells are halved until the largest shortfall is known well, and it is added to all c, which adds it to p.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linprog
from scipy.special import betaln
from torch import Tensor

from certus.errors import require
from certus.rounding import MANY, SOME, down
from certus.smoothing.binomial import Floats, binomial_mean, binomial_probabilities, normal_cdf
from certus.smoothing.neyman_pearson import NeymanPearsonBound

_STEPS = 60  # at how many k coefficients may rise
_GRID = np.concatenate([np.linspace(-6, -3, 8)[:-1], np.linspace(-3, 3, 61), np.linspace(3, 6, 8)[1:]])
_EVERYTHING = 0.05  # the share of the guess that is spread over all counts: calibration samples are few
_PROGRAM_ROUNDS = 2


def guessed_spread(errors: Floats, draws: int) -> Floats:
    """How the errors of a further sample may be spread, from those of (n,) others, as (m + 1,) chances.

    Each sample's h is taken to be Beta(K + ½, m − K + ½). Errors may be sums of losses between 0 and 1.
    """
    counts = np.arange(draws + 1)
    inverse = np.log(draws + 1.0) + betaln(counts + 1, draws - counts + 1)
    known, times = np.unique(np.asarray(errors, dtype=np.float64), return_counts=True)
    first, second = known[:, None] + 0.5, draws - known[:, None] + 0.5
    logs = betaln(counts + first, draws - counts + second) - betaln(first, second) - inverse
    mean = times @ np.exp(logs) / times.sum() if len(known) else np.zeros(draws + 1)
    mean = mean / mean.sum() if mean.sum() > 0 else np.full(draws + 1, 1 / (draws + 1))
    return np.asarray((1 - _EVERYTHING) * mean + _EVERYTHING / (draws + 1))


def propose(envelope: NeymanPearsonBound, spread: Floats) -> Floats:
    """(m + 1,) coefficients of least mean under the (m + 1,) spread; all ones if the program fails."""
    draws = len(spread) - 1
    rises = _rises(draws)
    price = np.cumsum(spread[::-1])[::-1][rises]
    grid, table = _GRID, _tails(_GRID, draws)[:, rises]
    for turn in range(_PROGRAM_ROUNDS):
        bounds = envelope.at(grid)
        solution = linprog(price, A_ub=-table, b_ub=-bounds, bounds=(0, None), method="highs")
        if solution.status != 0:
            return np.ones(draws + 1)
        rise = np.zeros(draws + 1)
        rise[rises] = solution.x
        if turn == _PROGRAM_ROUNDS - 1:
            break
        added = _short(rise, envelope, grid, draws)
        if len(added) == 0:
            break
        grid = np.concatenate([grid, added])
        table = np.concatenate([table, _tails(added, draws)[:, rises]])
    return np.asarray(rise.cumsum())


def _rises(draws: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where c may rise: everywhere, or more densely towards 0 and m, where counts say more."""
    if draws <= _STEPS:
        return np.arange(draws + 1)
    angles = np.linspace(0, np.pi / 2, _STEPS + 1)
    return np.unique(np.rint(draws * np.sin(angles) ** 2).astype(np.int64))


def _tails(scores: Floats, draws: int) -> Floats:
    """P(Bin(m, Φ(t)) ≥ j). Shapes (cells,) → (cells, m + 1)."""
    table = binomial_probabilities(normal_cdf(scores), draws)
    return np.asarray(table[:, ::-1].cumsum(1)[:, ::-1])


_NOTICEABLE = 2e-5  # a shortfall for which the linear program gets another point


def _short(rise: Floats, envelope: NeymanPearsonBound, grid: Floats, draws: int) -> Floats:
    """Points where p falls short of F the most, between those of the grid."""
    scores = envelope.scores[:: max(1, len(envelope.scores) // 1200)]
    short = envelope.at(scores) - _tails(scores, draws) @ rise
    inner = short[1:-1]
    worst = (inner > _NOTICEABLE) & (inner >= short[:-2]) & (inner >= short[2:])
    return np.setdiff1d(scores[1:-1][worst], grid)


_TOLERANCE = 1e-4  # how well the shortfall is known
_ROUNDS = 12


def lifted(proposed: Floats, envelope: NeymanPearsonBound) -> Floats:
    """Coefficients for which p ≥ F holds on all of [0, 1], at most a little above those proposed.

    Args:
        proposed: (m + 1,) any numbers; made nondecreasing, and not negative.
    """
    require(bool(np.isfinite(proposed).all()), "proposed", "be finite", proposed)
    rising = np.maximum.accumulate(np.maximum(proposed, 0.0))
    return rising + shortfall(rising, envelope)


def shortfall(rising: Floats, envelope: NeymanPearsonBound) -> float:
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
    mean = binomial_mean(rising, down(1.0, SOME) * normal_cdf(scores))
    return down(1.0, MANY) * mean - MANY


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
