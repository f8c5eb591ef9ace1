"""Run cases in forks, unprivileged, without a network and within limits, and report how they end.

A hang is a case that uses up its processor time. One that waits for something that never comes uses none: it
is seen by ``tools.soak.waiting``, which needs no limit that a busy machine could reach.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from tools.soak.tally import LISTENERS, Case
from tools.soak.waiting import Told

NOBODY = 65534
MEMORY = 6 * 2**30  # bytes of address space
_USER, _NETWORK = 0x10000000, 0x40000000


@dataclass(frozen=True)
class Limits:
    """What a case may have.

    Attributes:
        seconds: of processor time.
        confined: whether it runs as nobody (if we may choose) and without a network (if the system lets us).
    """

    seconds: int
    confined: bool = True


def in_forks(numbers: Sequence[int], work: Callable[[int], Case], limits: Limits) -> Iterator[Case]:
    """The cases one after another, in a fork that is replaced when one dies. What kills it is a violation."""
    left = list(numbers)
    while left:
        child, reader = _fork(left, work, limits)
        told, started, words = Told(child, reader), left[0], ""
        for line in told:
            content = json.loads(line)
            if "counts" not in content:
                started, words = content["number"], content["words"]
                continue
            left.remove(content["number"])
            yield Case.from_json(content)
        os.close(reader)
        status = os.waitpid(child, 0)[1]
        if left:
            started = started if started in left else left[0]
            case = Case(started, words)
            case.violate(_death(status, told.waited))
            left.remove(started)
            yield case


def _death(status: int, waited: bool) -> str:
    if waited:
        return "hang: it waits for what never comes"
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGXCPU:
        return "hang: its processor time was used up"
    return f"the process ended: {signal.Signals(number).name if number else f'exit {os.WEXITSTATUS(status)}'}"


def _fork(numbers: Sequence[int], work: Callable[[int], Case], limits: Limits) -> tuple[int, int]:
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    code = 1
    try:
        os.close(reader)
        os.setsid()  # so that what it starts can be ended with it
        if limits.confined:
            confine()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with os.fdopen(writer, "w", buffering=1) as told:
            LISTENERS.append(
                lambda number, words: print(json.dumps({"number": number, "words": words}), file=told)
            )
            for number in numbers:
                allow(limits.seconds)
                print(json.dumps(_tried(work, number).as_json()), file=told)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _tried(work: Callable[[int], Case], number: int) -> Case:
    try:
        return work(number)
    except Exception:
        case = Case(number, "")
        case.violate(f"the harness itself: {traceback.format_exc()}")
        return case


def allow(seconds: int) -> None:
    """So much processor time from now on, rounded up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = ceil(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def confine() -> None:
    """Give up the network and all rights, as far as they are ours to give up."""
    libc = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        libc.unshare(_NETWORK if os.getuid() == 0 else _NETWORK | _USER)
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
