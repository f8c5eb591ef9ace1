"""Proposals of a smoothed certificate: the grid of γ, the coefficients of each γ, its share of δ, and claims.

All but the claims is fixed before the certified samples are seen, from a few calibration samples. With their
errors K of m draws, and ĥ = (K + ½)/(m + 1) in place of h, the plug-in bound κρ/σ² + mean F_κ(Φ⁻¹(ĥ)) tells
which κ matter for the requested ρ. A bad guess loosens the bounds, and never invalidates them.

*Coefficients.* With K errors among m noisy copies, any c with p(h) = Σ_k c_k P(Bin(m, h) = k) ≥ F(h) have
E[c_K | x] ≥ F(h(x)). Among nondecreasing c, c_k = Σ_{j ≤ k} d_j with d ≥ 0, a linear program takes those of
least mean under a guess of the distribution of errors, subject to p ≥ F on a grid, to which points of the
largest shortfall are added:

    minimise Σ_j d_j P(K ≥ j)   subject to   Σ_j d_j P(Bin(m, h_i) ≥ j) ≥ F(h_i),   d ≥ 0.

``raised_coefficients`` raises any proposal by its shortfall on cells, on which the kernel then checks it.

*Shares of δ.* Equal shares δ/|Γ| are wasteful, since the values c^γ_K of neighbouring γ are nearly the same
numbers. So one γ leads, with most of δ, and every other γ bets on its difference from β times the leader
(``certus.kernel.smoothing``); β = 0 is the bet on c^γ_K itself. The leading γ, its share and the slopes β are
those with the least predicted bounds on the calibration samples, by an asymptotic width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.optimize import linprog
from scipy.special import betaln, ndtri
from torch import Tensor

from certus.certificates.confidence import betting
from certus.certificates.population import Move
from certus.data import random_order
from certus.errors import require
from certus.kernel import smoothing
from certus.kernel.binomial import Floats, binomial_mean, binomial_probabilities, normal_cdf
from certus.kernel.rounding import MANY, SOME, up
from certus.kernel.smoothing import (
    GammaDesign,
    NeymanPearsonBound,
    SmoothedStatement,
    SmoothedTable,
    VotingRule,
)

_RATIO = 1.4  # of neighbouring κ
_LOWEST, _HIGHEST = 1e-4, 1e4
_BETWEEN = 9  # ρ that the grid serves, from the smallest to the largest asked for


def make_design(
    rule: VotingRule,
    errors: Floats,
    draws: int,
    rhos: Sequence[float],
    sigma: float,
    price: float | None = None,
    *,
    samples: int,
    failure: float,
) -> list[GammaDesign]:
    """Return a design for each γ of Γ: its coefficients and its share of δ; the leader first.

    Args:
        errors: (calibration,) numbers of errors of ``draws`` noisy copies, or sums of losses between 0 and 1.
        rhos: the ρ of interest.
        price: λ, the label cost; None if labels never change.
        samples, failure: n and δ of the certificate.
    """
    spread, designs = error_distribution(errors, draws), []
    # ρ that the design serves: those asked for, but 0, and some between them.
    positive = [rho for rho in rhos if rho > 0] or [sigma**2]
    served = [*positive, *np.geomspace(min(positive), max(positive), _BETWEEN).tolist()]

    def label_floor(kappa: float) -> float:
        """(1 − γλ)₊, the gain of a changed label."""
        return 0.0 if price is None else max(0.0, 1 - kappa / sigma**2 * price)

    for kappa in reversed(_penalties(rule, errors, draws, served, sigma, label_floor)):
        envelope = neyman_pearson_bound(rule, kappa, label_floor(kappa))
        coefficients, edges = raised_coefficients(propose(envelope, spread), envelope)
        grids = envelope.scores, _stations(rule, kappa, _OVERSHOOT), edges
        designs.append(GammaDesign(kappa / sigma**2, coefficients, grids=grids))
    return spend_alpha(designs, errors, served, samples, failure)


def _penalties(
    rule: VotingRule,
    errors: Floats,
    draws: int,
    rhos: Sequence[float],
    sigma: float,
    floor: Callable[[float], float],
) -> list[float]:
    """Return the κ that are best for some ρ on the calibration samples, in increasing order."""
    counts, times = np.unique(errors, return_counts=True)
    scores = ndtri((counts + 0.5) / (draws + 1))
    count = 1 + math.ceil(math.log(_HIGHEST / _LOWEST) / math.log(_RATIO))
    candidates = [_LOWEST * _RATIO**index for index in range(count)]
    means = []
    for kappa in candidates:
        values = worst_failure_probability(rule, kappa, scores, overshoot=1e-3)
        values = np.maximum(values, floor(kappa))
        means.append(float(np.minimum(values, 1.0) @ times / times.sum()))
    best = {
        min(range(count), key=lambda index: candidates[index] * rho / sigma**2 + means[index]) for rho in rhos
    }
    return [candidates[index] for index in sorted(best)]


END = 6.0  # scores beyond ±6, h below 10⁻⁹ or above 1 − 10⁻⁹, are taken for one cell each
_OVERSHOOT = 2e-5  # what the grid of scores, and that of stations, may cost
_TAIL = 1e-7


def neyman_pearson_bound(rule: VotingRule, penalty: float, floor: float = 0.0) -> NeymanPearsonBound:
    """Bound max(F_κ, 1 − γλ) from above on small grids; 1 − γλ is the floor for a label cost λ."""
    step = min(0.02, 2 * math.sqrt(_OVERSHOOT / penalty))
    scores = np.linspace(-END, END, 1 + math.ceil(2 * END / step))
    return NeymanPearsonBound.of(rule, penalty, scores, _stations(rule, penalty, _OVERSHOOT), floor)


def worst_failure_probability(
    rule: VotingRule, penalty: float, scores: Floats, overshoot: float = _OVERSHOOT
) -> Floats:
    """Bound F_κ at each score from above, to within about ``overshoot``. Shapes (cells,) → (cells,)."""
    return smoothing.worst_failure(rule, penalty, scores, _stations(rule, penalty, overshoot))


def _stations(rule: VotingRule, penalty: float, overshoot: float) -> Floats:
    """Return points where v∘Φ is not constant, at distances Δ with (B/8 + κ/4)Δ² = overshoot."""
    if rule.votes is None:
        return np.zeros(0)
    low, high, bend = _rise(rule)
    width = math.sqrt(overshoot / (bend / 8 + penalty / 4))
    return np.linspace(low, high, 1 + math.ceil((high - low) / width))


@cache
def _rise(rule: VotingRule) -> tuple[float, float, float]:
    """Return the scores between which v∘Φ rises from nearly 0 to nearly 1, and its curvature bound."""
    coarse = np.linspace(-END, END, 1201)
    chances = rule.failure_probability(coarse)
    first = max(0, int((chances <= _TAIL).sum()) - 1)
    last = min(len(coarse) - 1, max(first + 1, int((chances < 1 - _TAIL).sum())))
    return float(coarse[min(first, last - 1)]), float(coarse[last]), rule.bend


_STEPS = 60  # at how many k coefficients may rise
_GRID = np.concatenate([np.linspace(-6, -3, 8)[:-1], np.linspace(-3, 3, 61), np.linspace(3, 6, 8)[1:]])
_EVERYTHING = 0.05  # the share of the guess that is spread over all counts: calibration samples are few
_PROGRAM_ROUNDS = 2


def error_distribution(errors: Floats, draws: int) -> Floats:
    """Estimate the distribution of the errors of a new sample, (m + 1,) probabilities, from those of (n,)
    others.

    The h of each sample is assumed to be Beta(K + ½, m − K + ½). Errors may be sums of losses between 0 and
    1.
    """
    counts = np.arange(draws + 1)
    inverse = np.log(draws + 1.0) + betaln(counts + 1, draws - counts + 1)
    observed, times = np.unique(np.asarray(errors, dtype=np.float64), return_counts=True)
    first, second = observed[:, None] + 0.5, draws - observed[:, None] + 0.5
    logs = betaln(counts + first, draws - counts + second) - betaln(first, second) - inverse
    mean = times @ np.exp(logs) / times.sum() if len(observed) else np.zeros(draws + 1)
    mean = mean / mean.sum() if mean.sum() > 0 else np.full(draws + 1, 1 / (draws + 1))
    return np.asarray((1 - _EVERYTHING) * mean + _EVERYTHING / (draws + 1))


def propose(envelope: NeymanPearsonBound, spread: Floats) -> Floats:
    """Return (m + 1,) coefficients of least mean under a distribution, (m + 1,); all ones if the program
    fails."""
    draws = len(spread) - 1
    rises = _rises(draws)
    price = np.cumsum(spread[::-1])[::-1][rises]
    grid = _GRID
    for turn in range(_PROGRAM_ROUNDS):
        tails = binomial_probabilities(normal_cdf(grid), draws)[:, ::-1].cumsum(1)[:, ::-1]
        table = tails[:, rises]
        solution = linprog(price, A_ub=-table, b_ub=-envelope.at(grid), bounds=(0, None), method="highs")
        if solution.status != 0:
            return np.ones(draws + 1)
        rise = np.zeros(draws + 1)
        rise[rises] = solution.x
        added = _shortfall_points(rise, envelope, grid) if turn < _PROGRAM_ROUNDS - 1 else np.zeros(0)
        if len(added) == 0:
            break
        grid = np.concatenate([grid, added])
    return np.asarray(rise.cumsum())


def _rises(draws: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the indices at which c may rise: all, or for large m a subset that is denser towards 0 and m."""
    if draws <= _STEPS:
        return np.arange(draws + 1)
    angles = np.linspace(0, np.pi / 2, _STEPS + 1)
    return np.unique(np.rint(draws * np.sin(angles) ** 2).astype(np.int64))


_NOTICEABLE = 2e-5  # a shortfall for which the linear program gets another point


def _shortfall_points(rise: Floats, envelope: NeymanPearsonBound, grid: Floats) -> Floats:
    """Return the points between grid points with the largest shortfall F − p."""
    scores = envelope.scores[:: max(1, len(envelope.scores) // 1200)]
    short = envelope.at(scores) - binomial_mean(rise.cumsum(), normal_cdf(scores))
    inner = short[1:-1]
    worst = (inner > _NOTICEABLE) & (inner >= short[:-2]) & (inner >= short[2:])
    return np.setdiff1d(scores[1:-1][worst], grid)


_TOLERANCE = 9.9e-5  # how well the shortfall is known
_CELLS, _ROUNDS = 300, 16  # at first, and how often they are halved


def raised_coefficients(proposed: Floats, envelope: NeymanPearsonBound) -> tuple[Floats, Floats]:
    """Raise (m + 1,) proposed coefficients slightly, until p ≥ F on all of [0, 1]; also return the edges
    of cells on which the kernel finds no shortfall."""
    require(bool(np.isfinite(proposed).all()), "proposed", "be finite", proposed)
    rising = np.maximum.accumulate(np.clip(proposed, 0.0, smoothing.LARGEST_COEFFICIENT / 2))
    short, edges = _cells(rising, envelope)
    return rising + short, edges


def _cells(rising: Floats, envelope: NeymanPearsonBound) -> tuple[float, Floats]:
    """Return the largest shortfall F(b) − p(a) of cells, which are halved where that helps, and their
    edges."""
    edges = np.append(envelope.scores[: -1 : max(1, len(envelope.scores) // _CELLS)], envelope.scores[-1])
    above, below = envelope.at(edges), binomial_mean(rising, normal_cdf(edges))
    # h under Φ(−6), where p ≥ c_0, and over Φ(6), where F ≤ 1.
    worst = max(0.0, float(above[0] - rising[0]), float(1 - below[-1]))
    for _ in range(_ROUNDS):
        # Where p is below F at one point, no halving helps.
        worst = max(worst, float((above - below).max()))
        wide = 1 + np.flatnonzero(above[1:] - below[:-1] > worst + _TOLERANCE)
        if len(wide) == 0:
            break
        middle = (edges[wide - 1] + edges[wide]) / 2
        edges, above = np.insert(edges, wide, middle), np.insert(above, wide, envelope.at(middle))
        below = np.insert(below, wide, binomial_mean(rising, normal_cdf(middle)))
    short = max(worst + _TOLERANCE, float((above[1:] - below[:-1]).max()))
    return short + 2 * MANY * (1 + float(rising[-1])), edges


_SHARES = (0.5, 0.7, 0.8, 0.9)  # of δ, for the leader
_SLOPES = np.linspace(0.0, 2.0, 41)


def spend_alpha(
    designs: Sequence[GammaDesign], errors: Floats, rhos: Sequence[float], samples: int, failure: float
) -> list[GammaDesign]:
    """Return the designs with shares and slopes, the leader first, from (calibration,) errors of other
    samples."""
    count, gammas = len(designs), np.array([design.gamma for design in designs])
    rows = np.stack([design.coefficients for design in designs])
    values = np.stack([np.interp(errors, np.arange(rows.shape[1]), row) for row in rows])
    means = values.mean(1)
    centred = values - means[:, None]
    spread = centred @ centred.T / values.shape[1]

    def width(variance: Floats, left: Floats, share: float) -> Floats:
        """Return the width of Bernstein's bound, √(2V ln(1/δ)/n) + span·ln(1/δ)/3n, for (…, m + 1)
        differences of coefficients."""
        goal = math.log(1 / (share * failure)) / samples
        span = left.max(-1) - left.min(-1)
        return np.asarray(np.sqrt(2 * np.maximum(variance, 0.0) * goal) + span * goal / 3)

    def promised(widths: Floats) -> float:
        """Return the mean logarithm of the bounds at all ρ."""
        ceilings = (gammas[:, None] * np.asarray(rhos) + (means + widths)[:, None]).min(0)
        return float(np.log(np.clip(ceilings, 1e-9, 1.0)).mean())

    best = [replace(design, share=1 / count) for design in designs]
    least = promised(width(spread.diagonal(), rows, 1 / count))
    for leader, share in itertools.product(range(count if count > 1 else 0), _SHARES):
        rest, own = (1 - share) / (count - 1), width(spread[leader, leader], rows[leader], share)
        # (designs, slopes): the bet of each design on what a slope leaves.
        variance = spread.diagonal()[:, None] - 2 * _SLOPES * spread[:, [leader]]
        variance = variance + _SLOPES**2 * spread[leader, leader]
        left = rows[:, None] - _SLOPES[:, None] * rows[leader]
        widths = _SLOPES * own + width(variance, left, rest)
        slopes, widths = _SLOPES[widths.argmin(1)], widths.min(1)
        widths[leader] = own
        if (new := promised(widths)) < least:
            least = new
            others = [index for index in range(count) if index != leader]
            followers = [replace(designs[index], share=rest, slope=float(slopes[index])) for index in others]
            best = [replace(designs[leader], share=share), *followers]
    return best


def upper_means(
    designs: Sequence[GammaDesign], errors: Tensor, order: Tensor, failure: float
) -> dict[float, float]:
    """Return γ → upper bound on E F_κ(h), jointly with probability 1 − δ, if the designs dominate; the first
    leads.

    Args:
        errors: (n,) counts, or (n, m) losses between 0 and 1.
    """
    values = smoothing.smoothed_values(designs, errors[order])
    return smoothing.upper_means(designs, values, failure, _claims(designs, values, failure))


def _claims(designs: Sequence[GammaDesign], values: Tensor, failure: float) -> list[float]:
    """Propose means for betting, slightly above the smallest provable ones: the kernel may round the
    coefficients otherwise."""
    stakes = (smoothing.stake(designs, values, failure, index) for index in range(len(designs)))
    return [betting(numbers, ceiling, level) + SOME * ceiling for numbers, ceiling, level, *_ in stakes]


def prove_means(
    statement: SmoothedStatement, errors: Mapping[str, Tensor], designs: Mapping[str, Sequence[GammaDesign]]
) -> tuple[SmoothedStatement, dict[str, SmoothedTable]]:
    """Return the statement with the means that the kernel proves of each quantity, by name, and the tables
    that it proves them from."""
    tables, order = {}, random_order(statement.samples, statement.seed)
    failure = smoothing.UPPER_SHARE * (1 - statement.confidence) / len(designs)
    for name, proposed in designs.items():
        values = smoothing.smoothed_values(proposed, errors[name][order])
        tables[name] = SmoothedTable(errors[name], proposed, _claims(proposed, values, failure))
    return statement.prove(tables), tables


def mean_lower_bound(values: Tensor, order: Tensor, failure: float) -> float:
    """Return a lower bound on the expectation of independent values in [0, 1], with probability 1 − δ."""
    return max(0.0, 1 - up(betting((1 - values.double()).clamp(0, 1)[order], 1.0, failure), SOME) - SOME)


def bounded_move(costs: Tensor, values: Tensor, most: float, order: Tensor, failure: float) -> Move:
    """Return a move with bounds on cost and value, each with δ/2, from (n,) costs of single samples,
    rounded up, and (n,) values between 0 and 1, measured with fresh noise."""
    cost = up(betting(costs.clamp(0, most)[order], most, failure / 2), SOME)
    return Move(cost, mean_lower_bound(values, order, failure / 2))
