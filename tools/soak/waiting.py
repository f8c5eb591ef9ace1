"""Detection of hangs, by the only other clock: a process without work or output has stopped.

It is asked every few seconds. As long as it is running, wants to run, or has used any processor time since
the last look, it is left alone, so that a busy machine is never taken for a hang.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

LOOK = 10.0  # seconds between two looks
LOOKS = 4  # so often in a row it must be found idle


class Told:
    """What a child says, line by line; nothing is kept in a buffer that ``select`` does not see.

    Attributes:
        waited: whether the child had to be ended because it waits for ever.
    """

    def __init__(self, child: int, reader: int) -> None:
        self.waited = False
        self._child, self._reader, self._read = child, reader, b""

    def __iter__(self) -> Iterator[str]:
        while self._more():
            *lines, self._read = self._read.split(b"\n")
            for line in lines:
                yield line.decode()

    def _more(self) -> bool:
        idle, before = 0, -1
        while not select.select([self._reader], [], [], LOOK)[0]:
            sleeping, used = look(self._child)
            idle = idle + 1 if sleeping and used == before else 0
            before = used
            if idle >= LOOKS:
                os.killpg(self._child, signal.SIGKILL)
                self.waited = True
                return False
        chunk = os.read(self._reader, 1 << 16)
        self._read += chunk
        return chunk != b""


def look(child: int) -> tuple[bool, int]:
    """Whether all processes of a session sleep, and how many ticks they have used so far."""
    sleeping, used = True, 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(after[3]) == child:
            sleeping = sleeping and after[0] == "S"
            used += sum(int(ticks) for ticks in after[11:15])
    return sleeping, used
