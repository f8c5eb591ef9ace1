"""Two rivals of the certificates by smoothing, on the same predictions, each as strong as it goes.

clopper   per-sample Clopper–Pearson bounds at a level α, F at the bound, plus α, one bet for each γ; α is the
          best on the calibration samples for each γ (after Cohen, Rosenfeld and Kolter)
affine    the least concave majorant of F at a bet on the mean error alone, so that no union over γ is needed
          and every γ is tried (after Kumar, Levine, Goldstein and Feizi)
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, from_numpy

from certus.certificates.proven.concentration import betting
from certus.smoothing.binomial import Floats, normal_below, success_floor
from certus.smoothing.confidence import Stake
from certus.smoothing.neyman_pearson import Envelope
from certus.smoothing.voting import Ballot

RIVAL_LEVELS = (0.0003, 0.001, 0.003, 0.01, 0.03)


def clopper_bounds(
    stakes: list[Stake],
    ballot: Ballot,
    before: Tensor,
    seen: Tensor,
    draws: int,
    sigma: float,
    failure: float,
) -> dict[float, float]:
    """γ → a bound on E F by per-sample bounds on h: F ≤ F(h̄) but with probability α, and F ≤ 1 then.

    Args:
        before, seen: errors of calibration samples, and of (n,) others in the order of the bet.
    """
    tops = {
        level: np.array([1 - success_floor(draws - k, draws, level) for k in range(draws + 1)])
        for level in RIVAL_LEVELS
    }
    found, known = {}, before.numpy()
    for stake in stakes:
        envelope = Envelope.of(ballot, stake.gamma * sigma**2)
        grid = normal_below(envelope.scores)
        # At the next point of the grid, so that it is a bound between points too.
        values = {
            level: np.append(envelope.values, 1.0)[np.searchsorted(grid, top)] for level, top in tops.items()
        }
        level = min(RIVAL_LEVELS, key=lambda one: values[one][known].mean() + one)
        found[stake.gamma] = betting(from_numpy(values[level])[seen], 1.0, failure / len(stakes)) + level
    return found


def majorant_bounds(
    ballot: Ballot, seen: Tensor, draws: int, sigma: float, failure: float
) -> dict[float, float]:
    """γ → the least concave majorant of F at a bound on the mean of h: all of them hold at once."""
    mean = betting(seen / draws, 1.0, failure)
    found = {}
    for kappa in np.geomspace(1e-2, 1e2, 60).tolist():
        envelope = Envelope.of(ballot, kappa)
        found[kappa / sigma**2] = _majorant(normal_below(envelope.scores), envelope.values, mean)
    return found


def _majorant(points: Floats, values: Floats, at: float) -> float:
    """The least concave function above (points, values) and (1, 1), at one place: the upper hull there."""
    hull: list[tuple[float, float]] = []
    for point, value in zip([*points.tolist(), 1.0], [*values.tolist(), 1.0], strict=True):
        while len(hull) >= 2 and _below(hull[-2], hull[-1], (point, value)):
            hull.pop()
        hull.append((point, value))
    corners = np.array(hull)
    return float(np.interp(at, corners[:, 0], corners[:, 1]))


def _below(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether the middle one does not stand out above the chord of the others."""
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])
