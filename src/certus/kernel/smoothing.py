"""Certificates by smoothing: bounds on E F_κ(h) from the errors of a model at noisy copies of its inputs.

Let h(x) be the probability that a model errs at x + σZ, Z standard normal, or the mean of a loss in [0, 1].
Φ⁻¹∘h rises by at most ‖x' − x‖/σ (Neyman and Pearson). With a = Φ⁻¹(h(x)), κ = γσ² and v(h) the probability
of a failure, the most that moving x gains after paying γ‖x' − x‖² is

    F_κ(a) = sup_{t ≥ a} v(Φ(t)) − κ(t − a)²,          sup {E_P v(h) : W_c(P, P₀) ≤ ρ} ≤ γρ + E F_κ.

1. ``worst_failure`` bounds F_κ from above at given scores, and ``NeymanPearsonBound`` between them.
2. ``dominate`` raises proposed coefficients c_0 … c_m until Σ_k c_k P(Bin(m, h) = k) ≥ F(h) on [0, 1]. With K
   errors among m noisy copies, E[c_K | x] ≥ F(h(x)).
3. ``upper_means`` bounds E c_K from above by betting.
4. ``SmoothedStatement.prove`` does all of it for the quantities of a certificate.

All but the claims is fixed before the samples are seen. ``PREMISES`` are part of the statement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from certus.kernel import binomial
from certus.kernel.binomial import Floats
from certus.kernel.concentration import betting, random_order
from certus.kernel.evidence import Result, mark
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, MANY, SOME, down, slack, up

PREMISES = (
    "the table has the counts or losses of this model in exact Gaussian noise, drawn afresh for each copy",
    "the samples are independent draws, and model, seed and coefficients were chosen without them",
)
UPPER_SHARE = 0.8  # of δ, for the upper sides

LARGEST_COEFFICIENT = 1e3  # up to which ``MANY`` covers the rounding of a raised coefficient
_SIGMAS = 2.0**-100, 2.0**100  # whose squares neither overflow nor lose digits
_STEEPEST = 0.2419707245191434  # φ(1) = max |t φ(t)|, rounded up
_TOGETHER = 2**21  # entries of one table
_TYPES = torch.int16, torch.int64, torch.float32, torch.float64


@dataclass(frozen=True)
class VotingRule:
    """A vote of M draws that surely gives the true label if fewer than t of them err.

    It fails with a probability of at most v(h) = P(Bin(M, h) ≥ t), nondecreasing in h; a smaller t is looser.
    With K errors the true label has M − K votes and no other more than K: it leads if 2K < M. A vote that
    abstains unless the two-sided binomial test against the runner-up rejects even odds at level α gives it if
    2·P(Bin(M, ½) ≤ K) ≤ α as well; fewer errors, and errors of several labels, help.
    """

    votes: int | None  # M; None for the ideal vote, which knows h and fails for h ≥ ½
    failure_threshold: int = 0  # t, checked
    abstain: float | None = None  # α; None for a vote that abstains in ties only

    def __post_init__(self) -> None:
        if self.votes is None or self.failure_threshold == 0:
            return
        errors, level = self.failure_threshold - 1, Fraction(self.abstain or 0) * 2**self.votes
        ways = 2 * sum(math.comb(self.votes, k) for k in range(0 if self.abstain is None else errors + 1))
        if not (0 <= 2 * errors < self.votes and ways <= level):
            raise Refused(f"a vote of {self.votes} draws that {errors} errors never lose")

    def failure_probability(self, scores: Floats) -> Floats:
        """Return upper bounds on v(Φ(t)), at most 1. Shapes (cells,) → (cells,)."""
        if self.votes is None:
            return (scores >= 0).astype(np.float64)
        tail = binomial.binomial_tail(self.failure_threshold, self.votes, binomial.normal_up(scores))
        return np.minimum(1.0, up(1.0, MANY) * tail + MANY)

    @cached_property
    def bend(self) -> float:
        """B ≥ sup −(v∘Φ)'' = sup −v''φ² + v'tφ. With b the binomial probabilities, v' = M b_{M−1,t−1} and
        −v'' ≤ M(M − 1) b_{M−2,t−1}, each at most its mode; and φ² ≤ 1/2π, |tφ(t)| ≤ φ(1)."""
        if self.votes is None:
            raise Refused("the ideal vote jumps")
        many, before = self.votes, self.failure_threshold - 1
        second = many * (many - 1) * binomial.largest_probability(before, many - 2) / (2 * math.pi)
        return up(second + _STEEPEST * many * binomial.largest_probability(before, many - 1), MANY)


def worst_failure(rule: VotingRule, penalty: float, scores: Floats, stations: Floats) -> Floats:
    """Bound F_κ at each score from above, by increasing t_j. Shapes (cells,), (stations,) → (cells,).

    Allowing t < a changes nothing, as v∘Φ is nondecreasing. Between two stations at most Δ apart, v∘Φ exceeds
    its chord by at most BΔ²/8 and −κ(t − a)² its own by κΔ²/4, and a sum of chords is largest at an end:

        F_κ(a) ≤ max_j v(Φ(t_j)) − κ(t_j − a)² + (B/8 + κ/4)Δ²,

    left of all stations v is at most its value at the first, and right of them at most 1. The ideal vote
    needs no stations: F is 1 for a ≥ 0 and (1 − κa²)₊ below.
    """
    if not 0 < penalty < math.inf:
        raise Refused(f"a penalty of {penalty}")
    if rule.votes is None:
        return np.where(scores >= 0, 1.0, np.maximum(0.0, 1 - penalty * scores**2) + MANY)
    spacing, best = up(_widest(stations), SOME), np.empty(len(scores))
    chances = rule.failure_probability(stations)
    step = max(1, _TOGETHER // len(stations))
    for start in range(0, len(scores), step):
        some = scores[start : start + step, None]
        best[start : start + step] = (chances - penalty * (stations - some) ** 2).max(1)
    best += (rule.bend / 8 + penalty / 4) * spacing**2
    beyond = 1 - penalty * np.maximum(stations[-1] - scores, 0.0) ** 2
    return np.asarray(np.maximum(np.maximum(best, chances[0]), beyond) + MANY)


@dataclass(frozen=True, eq=False)
class NeymanPearsonBound:
    """An upper bound on max(F_κ, floor): linear between scores, the first value below them and 1 above."""

    scores: Floats  # (points,) a_j, increasing
    values: Floats  # (points,) nondecreasing, as F is, and at most 1

    @staticmethod
    def of(
        rule: VotingRule, penalty: float, scores: Floats, stations: Floats, floor: float = 0.0
    ) -> NeymanPearsonBound:
        """F_κ(a) + κa² is a supremum of straight lines in a, hence convex, with a floor as well, 1 − γλ for
        labels of the price λ: between two scores at most δ apart F_κ is at most its chord plus κδ²/4."""
        if not 0 <= floor <= 1:
            raise Refused(f"a floor of {floor}")
        values = np.maximum(worst_failure(rule, penalty, scores, stations), floor)
        values = values + (penalty * up(_widest(scores), SOME) ** 2 / 4 + MANY)
        return NeymanPearsonBound(scores, np.maximum.accumulate(np.minimum(1.0, values)))

    def at(self, scores: Floats) -> Floats:
        """The bound at any scores. Shapes (cells,) → (cells,)."""
        return np.where(scores > self.scores[-1], 1.0, np.interp(scores, self.scores, self.values))


def dominate(proposed: Floats, bound: NeymanPearsonBound, edges: Floats) -> Floats:
    """Coefficients c_0 ≤ … ≤ c_m with p(h) = Σ_k c_k P(Bin(m, h) = k) ≥ F(h) on all of [0, 1].

    Bin(m, h) grows stochastically with h, so that p is nondecreasing if c is. On a cell between the scores a
    and b, p(Φ(t)) − F(t) ≥ p(Φ(a)) − F(b); left of all cells p ≥ c_0, right of them F ≤ 1. The largest
    shortfall is added to all c, which adds it to p.

    Any (m + 1,) numbers may be proposed, and are made nondecreasing and not negative. Wide cells are loose.
    """
    if not bool((np.abs(proposed) <= LARGEST_COEFFICIENT).all()) or not _widest(edges) < math.inf:
        raise Refused(f"coefficients must be at most {LARGEST_COEFFICIENT}, and cells finite")
    rising = np.maximum.accumulate(np.maximum(proposed, 0.0))
    error = max(MANY, binomial.relative_error(len(rising) - 1))
    below = down(1.0, error) * binomial.binomial_mean(rising, binomial.normal_down(edges)) - MANY
    above = bound.at(edges)
    short = max(above[0] - rising[0], 1 - below[-1], (above[1:] - below[:-1]).max())
    return rising if short <= 0 else rising + (up(short, SOME) + MANY)


@dataclass(frozen=True, eq=False)
class GammaDesign:
    """One γ with its coefficients: E F_κ(h) is at most the expectation of c_K, if ``dominated``."""

    gamma: float  # the price, per squared distance, of a gain between 0 and 1
    coefficients: Floats  # (m + 1,) c
    share: float = 1.0  # of δ, for its own bet; all shares add up to 1
    slope: float = 0.0  # β ≥ 0, how much of the first design is subtracted before betting
    grids: tuple[Floats, Floats, Floats] = (np.zeros(0),) * 3  # scores and stations of F, edges of cells


def dominated(
    design: GammaDesign, rule: VotingRule, sigma: float, label_price: float | None = None
) -> GammaDesign:
    """The design with coefficients raised above F_κ, κ = γσ², on its own grids; F falls with κ and λ."""
    scores, stations, edges = design.grids
    gain = 0.0 if label_price is None else max(0.0, 1 - down(design.gamma * label_price, FEW))
    bound = NeymanPearsonBound.of(rule, down(design.gamma * sigma**2, FEW), scores, stations, gain)
    return replace(design, coefficients=dominate(design.coefficients, bound, edges))


def smoothed_values(designs: Sequence[GammaDesign], errors: Tensor) -> Tensor:
    """c_K of (n,) counts K, or Σ_k c_k P(PB(f₁ … f_m) = k) of (n, m) losses f ∈ [0, 1], which has the same
    expectation and less variance: PB counts successes of trials with these chances. Returns (designs, n).

    Rounding changes P(PB = k), summed over k, by at most 3u a trial, and the sum of products by (m + 1)u: a
    value is right to half of ``slack(4m)`` times the largest |c_k|."""
    rows = torch.from_numpy(np.stack([design.coefficients for design in designs]))
    if not bool(((errors >= 0) & (errors <= (rows.shape[1] - 1 if errors.dim() == 1 else 1))).all()):
        raise Refused("counts must lie between 0 and m, and losses between 0 and 1")
    if errors.dim() == 1:
        return rows[:, errors.long()]
    parts = errors.split(max(1, _TOGETHER // rows.shape[1]))
    return torch.cat([rows @ poisson_binomial(part).T for part in parts], 1)


def poisson_binomial(losses: Tensor) -> Tensor:
    """P(PB(f₁ … f_m) = k) for (n, m) probabilities. Returns (n, m + 1)."""
    table = torch.zeros(len(losses), losses.shape[1] + 1, dtype=torch.float64)
    table[:, 0] = 1
    for draw in range(losses.shape[1]):
        moved = table[:, : draw + 1] * losses[:, draw, None].double()
        table[:, : draw + 1] -= moved
        table[:, 1 : draw + 2] += moved
    return table


def stake(
    designs: Sequence[GammaDesign], values: Tensor, failure: float, index: int
) -> tuple[Tensor, float, float, float, float]:
    """(n,) numbers c^γ − βc⁰ − low, their ceiling, the design's part of δ, low, from the range over k, and
    their rounding."""
    design, first = designs[index], designs[0].coefficients
    left = design.coefficients - design.slope * first
    sizes = float(np.abs(design.coefficients).max() + design.slope * np.abs(first).max())
    error = slack(4 * len(left)) * sizes
    low, high = float(left.min()) - error, float(left.max()) + error
    numbers = (values[index] - design.slope * values[0] - low).clamp(0, high - low)
    return numbers, high - low, down(design.share * failure, SOME), low, error


def upper_means(
    designs: Sequence[GammaDesign], values: Tensor, failure: float, claims: Sequence[float]
) -> dict[float, float]:
    """Return γ → upper bound on E F_κ(h), jointly with probability 1 − δ; the first design leads:

        E c^γ = β E c⁰ + E (c^γ − βc⁰) ≤ β U(c⁰; δ₀) + U(c^γ − βc⁰; δ_γ),          δ₀ + Σ δ_γ = δ.

    The (designs, n) values are those of ``smoothed_values``, samples in an order that was fixed beforehand;
    claimed are means of each ``stake``."""
    slopes, shares = [design.slope for design in designs], [design.share for design in designs]
    valid = all(0 <= slope < math.inf for slope in slopes) and all(share > 0 for share in shares)
    if not valid or slopes[0] != 0 or not sum(shares) <= up(1.0, SOME):
        raise Refused("shares must be positive and add up to 1, slopes be at least 0, and the first one 0")
    means: list[float] = []
    for index, (design, claim) in enumerate(zip(designs, claims, strict=True)):
        numbers, ceiling, level, low, error = stake(designs, values, failure, index)
        led = design.slope * means[0] if index else 0.0
        means.append(up(max(0.0, low + betting(numbers, ceiling, level, claim) + led), SOME) + 2 * error)
    return {design.gamma: mean for design, mean in zip(designs, means, strict=True)}


@dataclass(frozen=True, eq=False)
class SmoothedTable:
    """Proposals for one quantity."""

    errors: Tensor  # (n,) counts, or (n, m) losses in units of their ceiling
    designs: Sequence[GammaDesign]
    claims: Sequence[float]  # of ``upper_means``

    def fits(self, samples: int, draws: int) -> bool:
        """Whether it has n rows of m draws, and for each design m + 1 coefficients and a claim."""
        sizes = (samples, draws) if self.errors.is_floating_point() else (samples,)
        lengths = {len(design.coefficients) for design in self.designs}
        each = self.errors.dtype in _TYPES and len(self.claims) == len(self.designs)
        return each and self.errors.shape == sizes and lengths == {1 + draws} and min(sizes) > 0


@dataclass(frozen=True)
class SmoothedStatement(Result):
    """Quantities are at most γρ + means[γ] for all ρ at once, with confidence 1 − δ, under ``premises``.

    Attributes:
        samples, draws: n and m; seed: of the order of the samples; label_price: λ, None if labels never move.
        rules, means: of each quantity, by name, its vote and ceiling, and γ → mean.
    """

    sigma: float
    confidence: float
    samples: int
    draws: int
    seed: int
    label_price: float | None
    rules: Mapping[str, tuple[VotingRule, float]]
    means: Mapping[str, Mapping[float, float]]
    premises: tuple[str, ...] = PREMISES
    assumptions: tuple[str, ...] = ()

    def prove(self, tables: Mapping[str, SmoothedTable]) -> SmoothedStatement:
        """Return the statement with the means that tables prove; each quantity has an equal share of δ."""
        price, failure = self.label_price, UPPER_SHARE * (1 - self.confidence) / max(1, len(self.rules))
        valid = _SIGMAS[0] <= self.sigma <= _SIGMAS[1] and 0 < self.confidence < 1 and 0 <= self.seed < 2**64
        if not valid or not (price is None or price >= 0) or self.rules.keys() != tables.keys():
            raise Refused("a sigma, a confidence, a seed, a price of at least 0, and a table for each name")
        for name, table in tables.items():
            if not table.fits(self.samples, self.draws):
                raise Refused(f"a table of {name} for {self.draws} draws of each of {self.samples} samples")
        means, order = {}, random_order(self.samples, self.seed)
        for name, (rule, ceiling) in self.rules.items():
            designs = [dominated(design, rule, self.sigma, price) for design in tables[name].designs]
            values = smoothed_values(designs, tables[name].errors[order])
            uppers = upper_means(designs, values, failure, tables[name].claims)
            means[name] = {ceiling * gamma: up(ceiling * mean, FEW) for gamma, mean in uppers.items()}
            if not 0 < ceiling * max(uppers) < math.inf:
                raise Refused(f"a ceiling of {ceiling}")
        return mark(replace(self, means=means, premises=PREMISES, assumptions=()))


@dataclass(frozen=True)
class ConcavityThreshold(Result):
    """γ above which E f(x + σZ) − γc(x, x₀) is strongly concave in x, 0 ≤ f ≤ 1, for a cost of modulus s."""

    value: float
    assumptions: tuple[str, ...] = ()

    @staticmethod
    def of(sigma: float, modulus: float) -> ConcavityThreshold:
        """E f(x + σZ) has second derivatives of at most E (Z² − 1)₊/σ² = 2φ(1)/σ² in any direction."""
        if not (_SIGMAS[0] <= sigma <= _SIGMAS[1] and 0 < modulus < math.inf):
            raise Refused(f"sigma and s must be positive and finite; got {sigma} and {modulus}")
        return mark(ConcavityThreshold(up(2 * _STEEPEST / sigma**2 / modulus)))


def _widest(points: Floats) -> float:
    """The largest distance of neighbours."""
    if len(points) < 2 or not bool((np.diff(points) > 0).all() and np.isfinite(points).all()):
        raise Refused("points of a grid must increase, be finite, and be two at least")
    return float(np.diff(points).max())
