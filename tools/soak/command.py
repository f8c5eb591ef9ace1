"""Run a command line of certus in this process: its output, its exit code, and whether both are legal."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lightning_fabric.utilities import registry

import certus.cli.app
from tests import loading  # noqa: F401  # before the forks
from tools.soak.tally import Case

# Lightning reads the notes of every installed package, each time.
registry.entry_points = functools.cache(registry.entry_points)  # type: ignore[attr-defined,assignment]

REFUSED = "certus: error: "


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: its exit code; None if an exception came through.
        trace: that exception's traceback.
    """

    code: int | None
    stdout: str
    stderr: str
    trace: str = ""


def settle(folder: Path) -> None:
    """Make a folder the current one, the home, and the place of caches and temporaries."""
    os.chdir(folder)
    os.environ |= {name: str(folder) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "CERTUS_CACHE")}
    os.environ |= {"PIP_RETRIES": "0", "PIP_NO_INPUT": "1", "COLUMNS": "100"}


def run(arguments: Sequence[str], folder: Path) -> Ended:
    """``certus`` with these arguments in a folder, which is also its home."""
    settle(folder)
    os.environ["CERTUS_DEBUG"] = "1"  # prints tracebacks
    sys.argv = ["certus", *arguments]
    code: int | None = None
    trace = ""
    with _taken(1) as out, _taken(2) as err:
        try:
            certus.cli.app.main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
        except BaseException:
            trace = traceback.format_exc()
    return Ended(code, out.getvalue(), err.getvalue(), trace)


def stream(number: int) -> TextIO:
    """A new text stream for a file descriptor: an old one may remember what the descriptor was before."""
    return open(number, "w", encoding="utf-8", closefd=False)


@contextlib.contextmanager
def _taken(number: int) -> Iterator[io.StringIO]:
    """What is written to a file descriptor meanwhile, by whatever means."""
    name = "stdout" if number == 1 else "stderr"
    before = getattr(sys, name)
    before.flush()
    kept, file = os.dup(number), os.memfd_create("taken")
    os.dup2(file, number)
    setattr(sys, name, stream(number))
    text = io.StringIO()
    try:
        yield text
    finally:
        getattr(sys, name).flush()
        setattr(sys, name, before)
        os.dup2(kept, number)
        os.close(kept)
        with os.fdopen(file, "rb") as whole:
            whole.seek(0)
            text.write(whole.read().decode(errors="surrogateescape"))


def judge(case: Case, arguments: Sequence[str], ended: Ended) -> None:
    """One clear line for every mistake: no traceback, a code that says what happened, nothing unprintable."""
    case.count(f"exit {ended.code}" if ended.code is not None else "tracebacks")
    if ended.code is None:
        case.violate(f"traceback: {ended.trace}")
        return
    refusals = [line for line in ended.stderr.splitlines() if line.startswith(REFUSED)]
    if ended.code not in (0, 2) and not (ended.code == 1 and "verify" in arguments):
        case.violate(f"exit {ended.code}: {ended.stderr[-2000:]}")
    elif ended.code != 0 and len(refusals) != 1 and not ended.stderr.startswith("Usage:"):
        case.violate(f"exit {ended.code} with {len(refusals)} lines that say why: {ended.stderr[-2000:]}")
    elif ended.code == 0 and refusals:
        case.violate(f"exit 0, and yet {refusals[0]}")
    for name, text in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        unprintable = {char for char in text if char != "\n" and (ord(char) < 32 or 127 <= ord(char) < 160)}
        if unprintable:
            case.violate(f"{name} has the characters {sorted(unprintable)!r}")
