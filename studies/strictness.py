"""How strict verdicts are: one set of rules for the paper's studies.

It was written down before the rings were measured again; the numbers of the other studies are older.

1. *Counted cases* (seeds, strengths, cells of a table, values of ρ): a claim holds if it holds in at least
   nine tenths of them; it holds *partly* from a half on; below a half it does not hold.
2. *A comparison* of two methods is made on the same seeds or images. On seeds it is a counted case; on
   images it holds if the 95% interval of the difference lies on the claimed side of 0, and fails if it lies
   on the other. An interval that holds 0 decides nothing, and such a case is not counted; unless the paper
   prints the difference, and the interval excludes it too: then the case fails.
3. *A printed error rate or share* is reproduced within five points, and partly within ten.
4. *A limit on a share* ("over 99%", "all points") is met within half a point: what one network in one
   training happens to miss by less is not evidence against the claim.
5. *Any other printed number* is reproduced within a factor of 1.25, and partly within a factor of 2.
6. *A theorem* is refuted by one counterexample; rules 1 and 4 do not soften it.
7. *Not comparable* is for another data set or another quantity, for claims without a measurable content, and
   where rule 2 leaves no case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from studies.study import Outcome

MOST_CASES = 0.9
HALF_OF_CASES = 0.5
SAME_SHARE = 0.05
NEAR_SHARE = 0.1
SHARE_SLACK = 0.005
SAME_FACTOR = 1.25
NEAR_FACTOR = 2.0


def outcome_of_cases(hold: Sequence[bool | None]) -> Outcome:
    """Apply rule 1 to cases; None is an undecided one, which is not counted.

    >>> [str(outcome_of_cases([True] * k + [False] * (10 - k))) for k in (10, 9, 8, 5, 4, 0)]
    ['yes', 'yes', 'partly', 'partly', 'no', 'no']
    >>> str(outcome_of_cases([None, None]))
    'not comparable'
    """
    decided = [case for case in hold if case is not None]
    if not decided:
        return Outcome.NOT_COMPARABLE
    share = sum(decided) / len(decided)
    if share >= MOST_CASES:
        return Outcome.YES
    return Outcome.PARTLY if share >= HALF_OF_CASES else Outcome.NO


def is_below(low: float, high: float) -> bool | None:
    """Apply rule 2: whether a difference with this interval is negative; None if it cannot be told.

    >>> is_below(-2.0, -0.1), is_below(0.1, 2.0), is_below(-0.1, 0.1)
    (True, False, None)
    """
    return True if high < 0 else False if low > 0 else None


def outcome_of_share(ours: float, printed: float) -> Outcome:
    """Apply rule 3 to an error rate or share and its printed value.

    >>> [str(outcome_of_share(ours, 0.2)) for ours in (0.24, 0.29, 0.31)]
    ['yes', 'partly', 'no']
    """
    return _graded(abs(ours - printed), SAME_SHARE, NEAR_SHARE)


def meets_share(ours: float, limit: float) -> bool:
    """Apply rule 4: whether a share reaches a limit that it should reach or exceed.

    >>> meets_share(0.9996, 1.0), meets_share(0.994, 1.0)
    (True, False)
    """
    return ours >= limit - SHARE_SLACK


def outcome_of_number(ours: float, printed: float) -> Outcome:
    """Apply rule 5 to two positive numbers.

    >>> [str(outcome_of_number(ours, 100.0)) for ours in (81.0, 190.0, 201.0)]
    ['yes', 'partly', 'no']
    """
    return _graded(abs(math.log(ours / printed)), math.log(SAME_FACTOR), math.log(NEAR_FACTOR))


def _graded(distance: float, same: float, near: float) -> Outcome:
    return Outcome.YES if distance <= same else Outcome.PARTLY if distance <= near else Outcome.NO
