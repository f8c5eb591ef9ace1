"""Duration of a session: the only place that reads the clock to decide whether to continue."""

from __future__ import annotations

import time


class Hour:
    """So many minutes from now; None is without end."""

    def __init__(self, minutes: float | None) -> None:
        self._seconds = float("inf") if minutes is None else 60 * minutes
        self._start = self._told = time.monotonic()

    @property
    def over(self) -> bool:
        return time.monotonic() - self._start >= self._seconds

    def passed(self) -> float:
        """Minutes since the last time that this was asked."""
        now = time.monotonic()
        minutes, self._told = (now - self._told) / 60, now
        return minutes
