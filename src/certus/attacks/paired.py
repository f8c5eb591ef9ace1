"""Two models under the same attack on the same samples: the difference, sample by sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from certus.attacks.outcomes import Interval, Outcome, normal_interval
from certus.errors import require


@dataclass(frozen=True)
class Difference:
    """The mean of one model's error (or loss, in regression) minus the other's, with a paired interval."""

    of: str
    value: float
    low: float
    high: float


def paired_differences(one: Outcome, other: Outcome, confidence: float = 0.95) -> Difference:
    """``one`` minus ``other``; negative where ``one`` does better.

    What both models find hard cancels. For losses the interval is the normal one of the mean of per-sample
    differences. For errors half a sample is added to each of the four cells of the table first (Agresti and
    Min). Otherwise the interval would claim to be certain where no sample tells the models apart.
    """
    same = one.loss.shape == other.loss.shape
    require(same, "other", "be of the same samples", f"{len(other.loss)} samples, not {len(one.loss)}")
    if one.wrong is None or other.wrong is None:
        interval, of = (
            normal_interval(one.loss.cpu().double() - other.loss.cpu().double(), confidence),
            "loss",
        )
    else:
        interval, of = _paired_shares(one.wrong, other.wrong, confidence), "error"
    return Difference(of, interval.value, interval.low, interval.high)


def _paired_shares(one: Tensor, other: Tensor, confidence: float) -> Interval:
    """The difference of two shares of the same samples, (n,) bool each."""
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    only_one, only_other = int((one & ~other).sum()), int((other & ~one).sum())
    count = len(one) + 2
    centre = (only_one - only_other) / count
    spread = math.sqrt((only_one + only_other + 1) / count - centre**2)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * spread / math.sqrt(count)
    return Interval((only_one - only_other) / len(one), max(-1.0, centre - half), min(1.0, centre + half))
