"""Numbers of examples: few in `make test`, ten times as many in `make fuzz` and `make sweeps`."""

from __future__ import annotations

from hypothesis import settings

_OFTEN = settings().max_examples  # of the profile in force


def examples(quick: int) -> settings:
    """Settings of a property test whose examples take long.

    Args:
        quick: the number in `make test`, whose profile draws 25 by default.
    """
    return settings(max_examples=quick * _OFTEN // 25)
