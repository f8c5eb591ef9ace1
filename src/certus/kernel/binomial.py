"""Normal and binomial probabilities with a known error, and bounds at claimed probabilities and radii.

torch's erfc, exp, log, log1p and lgamma are taken to be right to 4 units in the last place; tests compare
them with ball arithmetic. The probability b of k successes in n trials is the exponential of

    ln n! − ln k! − ln (n − k)! + k ln h + (n − k) ln(1 − h),

terms whose sizes are at most 2n ln n + 750 in all, if b ≥ 10⁻³⁰⁰; smaller ones may be lost. Each unit of size
contributes an error of at most 8·2⁻⁵² of b; ``relative_error`` doubles that, and covers sums, too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, SOME, TINY, down, slack, up

Floats = np.ndarray[Any, np.dtype[np.float64]]

_CELLS = 2**18  # entries of one table of probabilities: 2 MB
_NEVER = -1e4  # a logarithm of 0: below those of all numbers of float64, and its multiples are finite


def normal_cdf(points: Floats) -> Floats:
    """Φ at each point, in float64: within ``SOME`` of itself from −37 on. ndtr loses digits in the tail."""
    scaled = torch.from_numpy(np.asarray(points, dtype=np.float64)) / -math.sqrt(2)
    return np.asarray((torch.special.erfc(scaled) / 2).numpy())


def normal_up(points: Floats) -> Floats:
    """Return upper bounds on Φ at each point, at most 1."""
    return np.minimum(1.0, up(1.0, SOME) * normal_cdf(points) + TINY)


def normal_down(points: Floats) -> Floats:
    """Return lower bounds on Φ at each point, at least 0."""
    return np.maximum(0.0, down(1.0, SOME) * normal_cdf(points) - TINY)


def relative_error(count: int) -> float:
    """Return the relative error of binomial probabilities, and of their sums with weights ≥ 0."""
    return slack(math.ceil(32 * count * math.log(count + 1)) + 12_000)


def binomial_probabilities(chances: Floats, count: int) -> Floats:
    """P(Bin(n, h) = k), as float64 has it. Shapes (cells,) → (cells, n + 1)."""
    hits, chance = torch.arange(count + 1, dtype=torch.float64), torch.from_numpy(chances)[:, None]
    factorials = torch.lgamma(hits + 1)
    logs = (factorials[-1] - factorials - factorials.flip(0)).addcmul(hits, chance.log().clamp_min(_NEVER))
    return np.asarray(logs.addcmul_(hits.flip(0), (-chance).log1p().clamp_min(_NEVER)).exp_().numpy())


def binomial_mean(values: Floats, chances: Floats) -> Floats:
    """E v_K for K ~ Bin(n, h), from (n + 1,) values v, as float64 has it. Shapes (cells,) → (cells,)."""
    parts = torch.from_numpy(chances).split(max(1, _CELLS // len(values)))
    return np.concatenate([binomial_probabilities(part.numpy(), len(values) - 1) @ values for part in parts])


def binomial_tail(least: int, count: int, chances: Floats) -> Floats:
    """Return upper bounds on P(Bin(n, h) ≥ k), at most 1. Shapes (cells,) → (cells,)."""
    tail = binomial_mean((np.arange(count + 1) >= least).astype(np.float64), chances)
    return np.minimum(1.0, up(1.0, relative_error(count)) * tail + (count + 1) * TINY)


def largest_probability(hits: int, count: int) -> float:
    """Return an upper bound on sup_h P(Bin(n, h) = k), attained at h = k/n; 0 unless 0 ≤ k ≤ n."""
    if count < 0 or not 0 <= hits <= count:
        return 0.0
    at_mode = binomial_probabilities(np.array([hits / max(count, 1)]), count)[0, hits]
    return min(1.0, up(float(at_mode), 2 * relative_error(count)))


def clopper_pearson(successes: int, count: int, failure: float, claim: float) -> float:
    """The claim p, proven to be at most the success probability, but with probability δ.

    It is if P(Bin(n, p) ≥ k) ≤ δ for the observed k. The tail grows with p: at a p above the true one that
    takes a k whose tail at the true one is at most δ, of probability at most δ. So all claims hold together.
    """
    valid = 0 <= successes <= count and 0 < failure < 1 and 0 <= claim <= 1
    if not valid or (claim > 0 and not binomial_tail(successes, count, np.array([claim]))[0] <= failure):
        raise Refused(f"a probability of at least {claim} from {successes} of {count}, at {failure}")
    return claim


def gaussian_radius(sigma: float, chance: float, claim: float) -> float:
    """The claim r, proven to be at most σΦ⁻¹(p): a label of probability p > ½ at x + σZ has one above ½ at
    x' + σZ, ‖x' − x‖ < σΦ⁻¹(p). It is if Φ(−r/σ) ≥ 1 − p, a difference without rounding."""
    valid = 0 < sigma < math.inf and 0 <= chance <= 1 and 0 <= claim < math.inf
    if not valid or (claim > 0 and not normal_down(np.array([-up(claim / sigma, FEW)]))[0] >= 1 - chance):
        raise Refused(f"a radius of {claim} for noise of {sigma} and the probability {chance}")
    return claim
