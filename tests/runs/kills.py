"""Runs commands of certus in processes of their own, and kills, interrupts or holds them at counted moments,
not by a clock."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

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


@dataclass(frozen=True)
class BeforeCalling:
    """Killed when a function of certus, such as ``certus.training._fit:fit``, is called so many times."""

    function: str
    time: int = 1


Moment = AfterStep | BeforeReplacing | InsideWriting | BeforeCalling


def run(
    arguments: list[str],
    log: Path,
    moment: Moment | None = None,
    by: signal.Signals = signal.SIGKILL,
    main: Callable[[], NoReturn] = main,
) -> int:
    """The exit code of ``certus`` with these arguments, minus a signal's number if one ended it.

    Args:
        by: what is sent at the moment; SIGINT is what Ctrl-C sends.
        main: the entry point of another command.
    """
    return exit_code(start(_command, arguments, str(log), moment, by, main))


class Held:
    """A command that waits at a moment until it is told to go on."""

    def __init__(self, arguments: list[str], log: Path, moment: Moment) -> None:
        self.log = log
        self._ours, theirs = multiprocessing.Pipe()
        self._process = start(_command, arguments, str(log), moment, theirs)
        theirs.close()  # so that its death would be heard
        assert self._ours.recv() == "here", log.read_text()

    def go_on(self) -> int:
        """Its exit code."""
        self._ours.send("go on")
        return exit_code(self._process)


def is_killed(arguments: list[str], log: Path, moment: Moment) -> bool:
    """Whether the command was still running when the moment came."""
    expected = signal.SIGXFSZ if isinstance(moment, InsideWriting) else signal.SIGKILL
    return run(arguments, log, moment) == -expected


def _command(
    arguments: list[str],
    log: str,
    moment: Moment | None,
    by: signal.Signals | Connection,
    main: Callable[[], NoReturn] = main,
) -> None:
    def act() -> None:
        if isinstance(by, signal.Signals):
            os.kill(os.getpid(), by)
        else:
            by.send("here")
            by.recv()

    shown = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(shown, 1)
    os.dup2(shown, 2)
    match moment:
        case AfterStep(number):
            register_optimizer_step_post_hook(_counted(number, act))
        case BeforeReplacing(file, time):
            _before_replacing(file, _counted(time, act))
        case BeforeCalling(function, time):
            _before_calling(function, _counted(time, act))
        case InsideWriting(size):
            # Python ignores this signal; the system's own answer to it is to end the process.
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    sys.argv = ["certus", *arguments]
    main()


def _counted(number: int, act: Callable[[], None]) -> Callable[..., None]:
    """What acts when it is called for the last of so many times."""
    left = number

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            act()

    return count


def _before_replacing(file: str, act: Callable[..., None]) -> None:
    def watch(event: str, details: tuple[object, ...]) -> None:
        if event == "os.rename" and Path(str(details[1])).name == file:
            act()

    sys.addaudithook(watch)


def _before_calling(function: str, act: Callable[..., None]) -> None:
    module, _, path = function.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for one in owners:
        owner = getattr(owner, one)
    real = getattr(owner, name)

    @functools.wraps(real)
    def called(*arguments: Any, **options: Any) -> Any:
        act()
        return real(*arguments, **options)

    setattr(owner, name, called)
