"""Kill every command at a counted write and run it again: the result must be that of an undisturbed run.

A write is an event of Python's audit: a file opened to be written, renamed, removed, a folder made, inside
the box. The process is killed before the event of some number, or interrupted as by Ctrl-C; or it is ended by
the system in the middle of the write that makes a file larger than some size.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import resource
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load

from certus.storage.tensors import digest, load_tensors
from tools.soak.command import settle, stream
from tools.soak.entries import KILLED, Entry
from tools.soak.ground import Ground
from tools.soak.tally import Case

CHANGING = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Reference:
    """The command that nobody disturbed: how many writes it makes, and what they leave."""

    events: int
    largest: int
    digests: dict[str, str]


@dataclass(frozen=True)
class Lived:
    """How a process ended: its exit code, or minus a signal's number, and what it said."""

    code: int
    stderr: str


def live(arguments: Sequence[str], entry: Entry, folder: Path, disturb: Callable[[], None]) -> Lived:
    """A command in a fork of its own, where ``disturb`` has been called first."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.close(reader)
            entry.before()
            settle(folder)
            os.dup2(writer, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.stdout, sys.stderr = stream(1), stream(2)
            disturb()
            os.environ.pop("CERTUS_DEBUG", None)
            code = _main(arguments)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, errors="replace") as told:
        stderr = told.read()
    status = os.waitpid(child, 0)[1]
    return Lived(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), stderr)


def _main(arguments: Sequence[str]) -> int:
    import certus.cli.app

    sys.argv = ["certus", *arguments]
    try:
        certus.cli.app.main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        return ended.code if isinstance(ended.code, int) else 0


def each_write(folder: Path, action: Callable[[], object]) -> None:
    """Have something done before every write inside a folder, from now on."""
    inside = str(folder) + os.sep

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event != "open" and event not in CHANGING:
            return
        if event == "open" and not (isinstance(details[2], int) and details[2] & _WRITING):
            return
        if isinstance(details[0], str | bytes | os.PathLike):
            path = os.path.abspath(os.fsdecode(details[0]))
            if path.startswith(inside):
                action()

    sys.addaudithook(watch)


def at_write(number: int, folder: Path, action: Callable[[], object]) -> None:
    """Have something done before the write of this number."""
    left = number

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            action()

    each_write(folder, count)


def inside_writing(size: int) -> None:
    """Be ended by the system in the middle of the first write that makes a file larger than this."""
    # Python ignores this signal; the system's own answer to it is to end the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def reference(entry: Entry, ground: Ground) -> Reference:
    """The command undisturbed."""
    folder, counter = ground.fresh(), os.memfd_create("events")
    ended = live(entry.lines[0], entry, folder, lambda: each_write(folder, lambda: os.write(counter, b".")))
    assert ended.code == 0, (entry.line, ended)
    sizes = [path.stat().st_size for name in entry.makes for path in _files(folder / name)]
    events = os.fstat(counter).st_size
    os.close(counter)
    return Reference(events, max(sizes, default=0), digests(folder))


def digests(folder: Path) -> dict[str, str]:
    """What lies in a folder, by path, but for locks and for how long things took."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(_timeless(path)).hexdigest()
        for path in _files(folder)
        if path.suffix != ".lock" and path.name != ".lock"
    }


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [path for path in place.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def _timeless(path: Path) -> bytes:
    if path.name == "checkpoint.safetensors":
        return digest(load_tensors(path)[0]).encode()
    if path.name == "mnist.safetensors":  # safetensors writes its notes in any order
        return digest(load(path.read_bytes())).encode()
    if path.name != "metrics.jsonl":
        return path.read_bytes()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return json.dumps([row | {"seconds": 0} for row in rows], sort_keys=True).encode()


def killed_command(number: int) -> str:
    """Those that write anything take turns."""
    names = list(KILLED)
    return names[number % len(names)]


def try_kill(ground: Ground, references: dict[str, Reference], seed: int, number: int) -> Case:
    """One command disturbed at one moment, and asked for again."""
    rng = random.Random(f"kills:{seed}:{number}")
    name = killed_command(number)
    entry, whole = KILLED[name], references[name]
    folder = ground.fresh()
    arguments, write = entry.lines[0], rng.randint(1, whole.events)
    size = rng.randint(1, max(whole.largest - 1, 1))
    way = rng.choices(("killed", "interrupted", "cut"), (6, 2, 2))[0]
    case = Case(
        number, f"{name} {way} at {f'size {size}' if way == 'cut' else f'write {write} of {whole.events}'}"
    )
    disturb: dict[str, Callable[[], None]] = {
        "killed": lambda: at_write(write, folder, lambda: os.kill(os.getpid(), signal.SIGKILL)),
        "interrupted": lambda: _interruptible(write, folder),
        "cut": lambda: inside_writing(size),
    }
    first = live(arguments, entry, folder, disturb[way])
    wanted = {"killed": (-signal.SIGKILL,), "interrupted": (130, 0), "cut": (-signal.SIGXFSZ, 0)}[way]
    case.count(way, int(first.code != 0))
    case.count("kills", int(first.code != 0))
    if first.code not in wanted:
        case.violate(f"{way}, it ended with {first.code}: {first.stderr[-2000:]}")
    if way == "interrupted" and "Traceback" in first.stderr:
        case.violate(f"interrupted, it showed a traceback: {first.stderr[-2000:]}")
    _check_losses(case, entry, ground)
    if first.code != 0:
        _go_on(case, entry, folder)
    for path in sorted(set(after := digests(folder)) ^ set(whole.digests)):
        case.violate(f"{'left behind' if path in after else 'missing'}: {path}")
    for path in sorted(path for path, now in after.items() if whole.digests.get(path, now) != now):
        case.violate(f"differs: {path}")
    return case


def _interruptible(write: int, folder: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    at_write(write, folder, lambda: signal.raise_signal(signal.SIGINT))


def _go_on(case: Case, entry: Entry, folder: Path) -> None:
    """The same command again; or, where it says so, the one that goes on with what there is."""
    again = live(entry.lines[0], entry, folder, lambda: None)
    advice = re.search(r"`certus (resume [^`]*)`", again.stderr)
    if again.code == 2 and advice:
        again = live(shlex.split(advice[1]), entry, folder, lambda: None)
    if again.code != 0:
        case.violate(f"asked for again, it ended with {again.code}: {again.stderr[-2000:]}")


def _check_losses(case: Case, entry: Entry, ground: Ground) -> None:
    altered, _ = ground.changes()
    for path in sorted(altered):
        own = any(path == made or path.startswith(f"{made}/") for made in entry.makes)
        if not own and not path.endswith(".lock"):
            case.violate(f"lost: {path}")
