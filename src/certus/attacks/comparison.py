"""Two models under the same attack on the same samples: the difference, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass

from certus.attacks.evaluation import Outcome, normal_interval
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

    The interval is the normal one of the mean of per-sample differences: what both models find hard cancels.
    """
    same = one.loss.shape == other.loss.shape
    require(same, "other", "be of the same samples", f"{len(other.loss)} samples, not {len(one.loss)}")
    if one.wrong is None or other.wrong is None:
        interval, of = normal_interval(one.loss.double() - other.loss.double(), confidence), "loss"
    else:
        interval, of = normal_interval(one.wrong.double() - other.wrong.double(), confidence), "error"
    return Difference(of, interval.value, interval.low, interval.high)
