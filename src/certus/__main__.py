"""``certus`` and ``python -m certus``: the command line, which can be interrupted from the start."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import NoReturn


def start() -> NoReturn:
    """Run the command line. Its modules are imported inside, so that Ctrl-C prints no traceback."""
    before = signal.getsignal(signal.SIGINT)
    if (
        before is signal.default_int_handler
    ):  # else the handler was replaced, as by shells for background jobs
        signal.signal(signal.SIGINT, _leave)
    from certus.cli.app import main

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, before)
    main()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    line = "certus: interrupted: nothing was stored; run the same command to start again.\n"
    os.write(2, line.encode())
    os._exit(130)


if __name__ == "__main__":
    start()
