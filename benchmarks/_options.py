"""Options of the scripts in benchmarks/, read from the command line.

They are the fields of a script's frozen dataclass ``Args``, each with a word of help:

    gamma: Annotated[float, "penalty on moving the data"] = 0.3846
    entries: Annotated[tuple[str, ...], "what to measure", Entries(CASES)] = tuple(CASES)
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/inner.json")

A script that is called measures. Three rules keep its results whole:

1. The committed result belongs to the default options; with others, ``--output`` must be given.
2. A choice of ``Entries`` updates these entries alone.
3. Unfinished work is kept beside the result. Only ``--resume`` goes on with it, with the same options.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from benchmarks._results import Arguments, chosen_options, unfinished_options, unfinished_path
from certus.errors import ArgumentError

OUTPUT = "where the result is written"
RESUME = "go on with an interrupted measurement"

T = TypeVar("T", bound=Arguments)


@dataclass(frozen=True)
class Entries:
    """Marks the option that chooses entries of the result by name."""

    names: Collection[str]


def read_options(kind: type[T], description: str | None, given: list[str] | None = None) -> T:
    """The command line as ``kind``; what is unknown or breaks a rule ends the program with exit code 2."""
    file = Path(inspect.getfile(kind))
    parser = argparse.ArgumentParser(
        prog=f"python -m {file.parent.name}.{file.stem}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    defaults, hints = kind(), get_type_hints(kind, include_extras=True)
    deciding = []
    for name in (field.name for field in fields(kind)):
        value_type, words, *marks = get_args(hints[name])
        _add(parser, name, value_type, words, getattr(defaults, name), marks)
        if not marks and name not in ("output", "resume"):
            deciding.append(name)
    result = vars(parser.parse_args(given))
    try:
        made = kind(**{name: tuple(of) if isinstance(of, list) else of for name, of in result.items()})
    except ArgumentError as reason:
        parser.error(str(reason))
    changed = ", ".join(_flag(name) for name in deciding if getattr(made, name) != getattr(defaults, name))
    if changed and made.output == defaults.output:
        parser.error(f"--output must be given with {changed}: {made.output} holds the result of the defaults")
    if hasattr(made, "resume"):
        _check_unfinished(parser, made, made.resume)
    return made


def perform(work: Callable[[T], object], args: T) -> None:
    """Measure; Ctrl-C ends it with one line, which says what is kept and how to go on, and exit code 130."""
    try:
        work(args)
    except KeyboardInterrupt:
        kept, path = "nothing was stored; run the same command to start again.", unfinished_path(args)
        if hasattr(args, "resume") and path.exists():
            kept = f"{path} keeps what was measured; the same command with --resume goes on."
        print(f"interrupted: {kept}", file=sys.stderr)
        sys.exit(130)


def _check_unfinished(parser: argparse.ArgumentParser, args: Arguments, resume: bool) -> None:
    path = unfinished_path(args)
    if not path.exists():
        if resume:
            parser.error(f"--resume needs {path}, which an interrupted measurement leaves; there is none")
    elif not resume:
        parser.error(f"{path} is left of an earlier measurement: add --resume, or remove it")
    elif unfinished_options(args) != chosen_options(args):
        parser.error(f"--resume needs the options that {path} was begun with; got {chosen_options(args)}")


def _add(
    parser: argparse.ArgumentParser, name: str, kind: Any, words: str, default: Any, marks: list[object]
) -> None:
    if kind is bool:
        parser.add_argument(_flag(name), action="store_true", help=words)
        return
    many = get_origin(kind) is tuple
    names = next((list(mark.names) for mark in marks if isinstance(mark, Entries)), None)
    shown = " ".join(map(str, default)) if many else default
    words = f"{words}: {', '.join(names)}" if names and set(names) != set(default) else words
    parser.add_argument(
        _flag(name),
        type=get_args(kind)[0] if many else kind,
        nargs="+" if many else None,
        choices=names,
        default=default,
        metavar="NAME" if names else "PATH" if kind is Path else "X",
        help=f"{words} (default: {shown})".replace("%", "%%"),
    )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
