"""From what was observed to bounds on the population: one bet for each γ, none for each sample.

The values c_K of n samples are independent, lie between 0 and max c, and have an expectation of at least
E F_κ(h). Betting bounds their mean for each γ of the grid with its share of δ, most often through that of the
leading γ (``leading``); a sum of rounding slacks is added. From below, what was measured at one draw of each
of m copies has a mean between 0 and 1 whose expectation is h.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from certus.certificates.population import Move
from certus.certificates.proven.concentration import betting
from certus.certificates.smoothing.coefficients import count_values, poisson_binomial
from certus.certificates.smoothing.drawing import Observed
from certus.certificates.smoothing.leading import Stake
from certus.errors import require
from certus.outward import MANY, SOME, up

_TOGETHER = 2**22  # entries of one table of chances


def upper_means(
    stakes: Sequence[Stake], observed: Observed, order: Tensor, failure: float, *, of_loss: bool = False
) -> dict[float, float]:
    """γ → at least E F_κ(h), all of them with probability 1 − δ; the first stake leads."""
    lost = sum(stake.share for stake in stakes)
    require(lost <= 1 + SOME, "stakes", "have shares that add up to at most 1", lost)
    require(
        all(stake.slope >= 0 for stake in stakes), "stakes", "have slopes of at least 0", "a negative one"
    )
    require(stakes[0].slope == 0, "stakes", "have a leader that follows none", stakes[0].slope)
    found: dict[float, float] = {}
    values = _values(stakes, observed, of_loss)
    for stake, each in zip(stakes, values, strict=True):
        left = stake.coefficients - stake.slope * stakes[0].coefficients
        low = float(left.min()) - MANY
        top = float(left.max()) - low + MANY
        bets = (each - stake.slope * values[0] - low).clamp(0, top)
        mean = low + up(betting(bets[order], top, stake.share * failure), SOME)
        if stake.slope > 0:
            mean += stake.slope * found[stakes[0].gamma]
        found[stake.gamma] = max(0.0, mean) + 2 * MANY
    return found


def _values(stakes: Sequence[Stake], observed: Observed, of_loss: bool) -> list[Tensor]:
    """(n,) values of each γ: c_K, or for losses its mean over the trials that have them as chances."""
    if not of_loss:
        assert observed.errors is not None
        return [count_values(stake.coefficients, observed.errors) for stake in stakes]
    assert observed.losses is not None
    columns = torch.stack([torch.from_numpy(stake.coefficients) for stake in stakes], 1)
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
