"""Progress bars, the same from commands and from Python: in a terminal or a notebook, silent elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from certus._format import printable

Told = Callable[[float], None]
"""Told the share of the work that is done, from 0 to 1."""


def is_watched(console: Console) -> bool:
    """Whether anybody would see a bar; a notebook shows one with ipywidgets."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def counting(console: Console, what: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar for work that is counted: ``with counting(...) as advance: … advance(count)``."""
    with _bar(console, MofNCompleteColumn()) as bar:
        task = bar.add_task(printable(what), total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def share_bar(
    progress: bool | Told | None, what: str, console: Console | None = None
) -> Iterator[Told | None]:
    """What is told of the share that is done: a bar where somebody watches, or the caller's own function.

    Args:
        progress: False for none; True and None for a bar; a function is told instead.
    """
    if callable(progress) or progress is False:
        yield progress or None
        return
    with _bar(console or Console(stderr=True), TaskProgressColumn()) as bar:
        task = bar.add_task(printable(what), total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _bar(console: Console, count: ProgressColumn) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        count,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not is_watched(console))
