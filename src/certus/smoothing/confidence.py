"""Confidence bounds on means of counts, by betting, with alpha spending over the grid of γ.

The values c_K of n samples are independent, lie between 0 and max c, and have an expectation of at least
E F_κ(h). Betting bounds their mean for each γ with its share of δ. Equal shares δ/|Γ| are wasteful, since the
values c^γ_K of neighbouring γ are nearly the same numbers. So one γ leads, with most of δ, and every other γ
takes a slope β ≥ 0 and a bet on the difference:

    E c^γ_K = β E c⁰_K + E (c^γ_K − β c⁰_K) ≤ β U(c⁰_K; δ₀) + U(c^γ_K − β c⁰_K; δ_γ),     δ₀ + Σ δ_γ = δ.

β = 0 is the bet on c^γ_K itself. The leading γ, its share and the slopes are those with the least predicted
bounds on the calibration samples, by an asymptotic width. They are fixed before the samples are seen, and
any choice of them is valid. From below, the mean measured at m noisy copies lies between 0 and 1 and has the
expectation h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from certus.certificates.population import Move
from certus.certificates.proven.concentration import betting
from certus.errors import require
from certus.rounding import MANY, SOME, up
from certus.smoothing.binomial import Floats
from certus.smoothing.coefficients import count_values, poisson_binomial
from certus.smoothing.sampling import NoisyPredictions

_SHARES = (0.5, 0.7, 0.8, 0.9)  # of δ, for the leader
_SLOPES = np.linspace(0.0, 2.0, 41)


@dataclass(frozen=True, eq=False)
class GammaDesign:
    """One γ with its coefficients: E F_κ(h) is at most the expectation of c_K.

    Attributes:
        gamma: the price, per squared distance, of a gain between 0 and 1.
        coefficients: (m + 1,) c, nondecreasing, proven.
        share: of δ, that its own bet has; those of a plan add up to 1.
        slope: β ≥ 0, how much of the first design of the plan is taken off before betting.
    """

    gamma: float
    coefficients: Floats
    share: float = 1.0
    slope: float = 0.0


def spend_alpha(
    designs: Sequence[GammaDesign], errors: Floats, rhos: Sequence[float], samples: int, failure: float
) -> list[GammaDesign]:
    """The designs with shares and slopes, the leader first.

    Args:
        errors: (calibration,) errors, or sums of losses, of other samples.
        rhos: those of interest.
        samples: n; failure: δ.
    """
    count = len(designs)
    guess = _Guess.of(designs, errors, samples, failure)
    equal = [replace(design, share=1 / count) for design in designs]
    if count == 1:
        return equal
    widths = np.array([guess.width(index, 1 / count) for index in range(count)])
    best, least = equal, _promised(designs, guess.means + widths, rhos)
    for leader in range(count):
        for share in _SHARES:
            rest = (1 - share) / (count - 1)
            slopes, widths = guess.following(leader, share, rest)
            promised = _promised(designs, guess.means + widths, rhos)
            if promised < least:
                least = promised
                followers = [index for index in range(count) if index != leader]
                best = [
                    replace(designs[leader], share=share),
                    *(replace(designs[one], share=rest, slope=float(slopes[one])) for one in followers),
                ]
    return best


def _promised(designs: Sequence[GammaDesign], bounds: Floats, rhos: Sequence[float]) -> float:
    """The mean logarithm of the bounds at all ρ."""
    gammas = np.array([design.gamma for design in designs])
    ceilings = (gammas[:, None] * np.asarray(rhos) + bounds[:, None]).min(0)
    return float(np.log(np.clip(ceilings, 1e-9, 1.0)).mean())


@dataclass(frozen=True, eq=False)
class _Guess:
    """What the bets will come to, from the calibration samples.

    Attributes:
        rows: (designs, m + 1) coefficients; means: (designs,); spread: (designs, designs) covariances.
    """

    rows: Floats
    means: Floats
    spread: Floats
    samples: int
    failure: float

    @staticmethod
    def of(designs: Sequence[GammaDesign], errors: Floats, samples: int, failure: float) -> _Guess:
        rows = np.stack([design.coefficients for design in designs])
        counts = np.arange(rows.shape[1])
        values = np.stack([np.interp(errors, counts, row) for row in rows])
        centred = values - values.mean(1, keepdims=True)
        return _Guess(rows, values.mean(1), centred @ centred.T / values.shape[1], samples, failure)

    def width(self, index: int, share: float) -> float:
        """Of the bet on a design itself."""
        row = self.rows[index]
        return float(self._width(self.spread[index, index], np.asarray(row.max() - row.min()), share))

    def following(self, leader: int, share: float, rest: float) -> tuple[Floats, Floats]:
        """(designs,) best slopes, and the widths that they promise; 0 and its own for the leader."""
        own, row = self.spread[leader, leader], self.rows[leader]
        carried = self.width(leader, share)
        slopes, widths = np.zeros(len(self.rows)), np.full(len(self.rows), carried)
        for index, each in enumerate(self.rows):
            if index == leader:
                continue
            variance = self.spread[index, index] - 2 * _SLOPES * self.spread[index, leader] + _SLOPES**2 * own
            left = each - _SLOPES[:, None] * row
            promised = _SLOPES * carried + self._width(variance, left.max(1) - left.min(1), rest)
            best = int(promised.argmin())
            slopes[index], widths[index] = _SLOPES[best], promised[best]
        return slopes, widths

    def _width(self, variance: Floats, span: Floats, share: float) -> Floats:
        """Bernstein's: √(2V ln(1/δ)/n) + span·ln(1/δ)/3n."""
        goal = math.log(1 / (share * self.failure)) / self.samples
        return np.asarray(np.sqrt(2 * np.maximum(variance, 0.0) * goal) + span * goal / 3)


_TOGETHER = 2**22  # entries of one table of chances


def upper_means(
    designs: Sequence[GammaDesign],
    observed: NoisyPredictions,
    order: Tensor,
    failure: float,
    *,
    of_loss: bool = False,
) -> dict[float, float]:
    """γ → at least E F_κ(h), all of them with probability 1 − δ; the first design leads."""
    lost = sum(design.share for design in designs)
    require(lost <= 1 + SOME, "designs", "have shares that add up to at most 1", lost)
    require(
        all(design.slope >= 0 for design in designs), "designs", "have slopes of at least 0", "a negative one"
    )
    require(designs[0].slope == 0, "designs", "have a leader that follows none", designs[0].slope)
    means: dict[float, float] = {}
    values = _values(designs, observed, of_loss)
    for design, each in zip(designs, values, strict=True):
        left = design.coefficients - design.slope * designs[0].coefficients
        low = float(left.min()) - MANY
        top = float(left.max()) - low + MANY
        bets = (each - design.slope * values[0] - low).clamp(0, top)
        mean = low + up(betting(bets[order], top, design.share * failure), SOME)
        if design.slope > 0:
            mean += design.slope * means[designs[0].gamma]
        means[design.gamma] = max(0.0, mean) + 2 * MANY
    return means


def _values(designs: Sequence[GammaDesign], observed: NoisyPredictions, of_loss: bool) -> list[Tensor]:
    """(n,) values of each γ: c_K, or for losses its mean over the trials that have them as chances."""
    if not of_loss:
        assert observed.errors is not None
        return [count_values(design.coefficients, observed.errors) for design in designs]
    assert observed.losses is not None
    columns = torch.stack([torch.from_numpy(design.coefficients) for design in designs], 1)
    step = max(1, _TOGETHER // (observed.losses.shape[1] + 1))
    parts = [poisson_binomial(some) @ columns for some in observed.losses.split(step)]
    return list(torch.cat(parts).T)


def mean_low(values: Tensor, order: Tensor, failure: float) -> float:
    """At most the expectation of independent values between 0 and 1, with probability 1 − δ."""
    return max(0.0, 1 - up(betting((1 - values.double()).clamp(0, 1)[order], 1.0, failure), SOME) - SOME)


def move_of(costs: Tensor, values: Tensor, most: float, order: Tensor, failure: float) -> Move:
    """A move whose cost and value are each bounded with δ/2.

    Args:
        costs: (n,) what each sample's move costs, rounded up, at most ``most``.
        values: (n,) how bad it was there, at fresh noise, between 0 and 1.
    """
    cost = up(betting(costs.clamp(0, most)[order], most, failure / 2), SOME)
    return Move(cost, mean_low(values, order, failure / 2))
