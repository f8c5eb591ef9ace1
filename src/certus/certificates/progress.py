"""Progress of a certification.

Work is counted in units of one γ at one sample: the ascent, and the rules that bound φ_γ. The relative cost
of the other parts was measured in processor time, on the digits with a network of two hidden layers
(rounded): bounds on a ball around a sample take most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

GAMMA, BALL, READ, NEAREST, ATTACK = 1.0, 20.0, 5.0, 7.0, 1.0
_FURTHER = 2  # γ that refining adds for each ρ


def total_work(
    samples: int,
    labels: int,
    balls: int,
    gammas: Sequence[float],
    rhos: Sequence[float],
    *,
    gamma_rounds: int,
    attacked: bool,
) -> float:
    """Estimate the work of a certification; the part of the refinement is a guess.

    Args:
        labels: number of labels that each sample may take.

    >>> total_work(10, 1, 2, [1.0, 2.0], [0.1], gamma_rounds=0, attacked=False)
    470.0
    """
    each = labels * (READ + BALL * balls + GAMMA * len(gammas))
    each += labels * GAMMA * gamma_rounds * _FURTHER * len(rhos)
    if attacked:
        each += NEAREST + ATTACK * len(rhos)
    return samples * each


class Work:
    """Counts work and reports the finished share, which never falls and ends at 1."""

    def __init__(self, total: float, report: Callable[[float], None] | None) -> None:
        self.total, self.done, self.report = total, 0.0, report

    def advance(self, units: float) -> None:
        """Add finished units."""
        self.done += units
        if self.report is not None:
            self.report(min(1.0, self.done / self.total))

    def finish(self) -> None:
        """Report the share 1: work that was planned but not needed counts as done."""
        self.advance(max(0.0, self.total - self.done))
