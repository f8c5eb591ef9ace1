"""Runs commands of certus in processes of their own, and kills them at counted moments, not by a clock."""

from __future__ import annotations

import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

from certus.cli.app import main
from tests.forks import exit_code, start


@dataclass(frozen=True)
class AfterStep:
    """Killed right after the optimizer's step of this number."""

    number: int


@dataclass(frozen=True)
class BeforeReplacing:
    """Killed when the new content of the file is written beside it, and not yet in its place."""

    file: str
    time: int = 1


@dataclass(frozen=True)
class InsideWriting:
    """Killed by the system in the middle of the first write that makes a file larger than this."""

    bytes: int


Moment = AfterStep | BeforeReplacing | InsideWriting


def run(arguments: list[str], log: Path, moment: Moment | None = None) -> int:
    """The exit code of ``certus`` with these arguments, minus a signal's number if one ended it."""
    return exit_code(start(_command, arguments, str(log), moment))


def is_killed(arguments: list[str], log: Path, moment: Moment) -> bool:
    """Whether the command was still running when the moment came."""
    expected = signal.SIGXFSZ if isinstance(moment, InsideWriting) else signal.SIGKILL
    return run(arguments, log, moment) == -expected


def _command(arguments: list[str], log: str, moment: Moment | None) -> None:
    shown = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(shown, 1)
    os.dup2(shown, 2)
    match moment:
        case AfterStep(number):
            _kill_after_step(number)
        case BeforeReplacing(file, time):
            _kill_before_replacing(file, time)
        case InsideWriting(size):
            # Python ignores this signal; the system's own answer to it is to end the process.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.argv = ["certus", *arguments]
    main()


def _kill_after_step(number: int) -> None:
    left = number

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_post_hook(count)


def _kill_before_replacing(file: str, time: int) -> None:
    left = time

    def count(event: str, details: tuple[object, ...]) -> None:
        nonlocal left
        if event == "os.rename" and Path(str(details[1])).name == file:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
