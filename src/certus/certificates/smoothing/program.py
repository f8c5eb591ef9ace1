"""The linear program that proposes coefficients.

Among nondecreasing c, c_k = Σ_{j ≤ k} d_j with d ≥ 0, it takes those of least mean under a guess of how
errors are spread, subject to p ≥ F on a grid:

    minimise Σ_j d_j P(K ≥ j)   subject to   Σ_j d_j P(Bin(m, h_i) ≥ j) ≥ F(h_i),   d ≥ 0.

Points between which p falls short join the grid. Nothing here is trusted: ``coefficients.lifted`` proves, and
the mean is bounded from samples that the guess never saw. For many draws c may rise only at some k.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from scipy.special import betaln

from certus.certificates.smoothing.binomial import Floats, binomial_table, normal_below
from certus.certificates.smoothing.envelope import Envelope

_STEPS = 60  # at how many k coefficients may rise
_GRID = np.concatenate([np.linspace(-6, -3, 8)[:-1], np.linspace(-3, 3, 61), np.linspace(3, 6, 8)[1:]])
_EVERYTHING = 0.05  # the share of the guess that is spread over all counts: calibration samples are few
_ROUNDS = 2


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


def propose(envelope: Envelope, spread: Floats) -> Floats:
    """(m + 1,) coefficients of least mean under the (m + 1,) spread; all ones if the program fails."""
    draws = len(spread) - 1
    rises = _rises(draws)
    price = np.cumsum(spread[::-1])[::-1][rises]
    grid, table = _GRID, _tails(_GRID, draws)[:, rises]
    for turn in range(_ROUNDS):
        bounds = envelope.at(grid)
        found = linprog(price, A_ub=-table, b_ub=-bounds, bounds=(0, None), method="highs")
        if found.status != 0:
            return np.ones(draws + 1)
        rise = np.zeros(draws + 1)
        rise[rises] = found.x
        if turn == _ROUNDS - 1:
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
    table = binomial_table(normal_below(scores), draws)
    return np.asarray(table[:, ::-1].cumsum(1)[:, ::-1])


def _short(rise: Floats, envelope: Envelope, grid: Floats, draws: int) -> Floats:
    """Points where p falls short of F the most, between those of the grid."""
    scores = envelope.scores[:: max(1, len(envelope.scores) // 1200)]
    short = envelope.at(scores) - _tails(scores, draws) @ rise
    inner = short[1:-1]
    worst = (inner > 2e-5) & (inner >= short[:-2]) & (inner >= short[2:])
    return np.setdiff1d(scores[1:-1][worst], grid)
