"""Progress bars of commands and of functions, in a terminal or a notebook; silent elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from certus._format import escape_controls

ProgressFunction = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1."""


def shows_progress(console: Console) -> bool:
    """Whether the console can show a bar; a notebook needs ipywidgets."""
    if console.is_jupyter:
        return importlib.util.find_spec("ipywidgets") is not None
    return console.is_terminal


@contextmanager
def counting_bar(console: Console, title: str, total: float) -> Iterator[Callable[[float], None]]:
    """Show a bar for work that is counted: ``with counting_bar(...) as advance: … advance(count)``."""
    with _bar(console, bars.MofNCompleteColumn()) as bar:
        task = bar.add_task(escape_controls(title), total=total)
        yield lambda count: bar.advance(task, count)


@contextmanager
def progress_bar(
    progress: bool | ProgressFunction | None, title: str, console: Console | None = None
) -> Iterator[ProgressFunction | None]:
    """Yield the function to call with the share of the work that is done: that of a bar, or the caller's own.
    ``progress`` is False for none, True or None for a bar, or a function."""
    if callable(progress) or progress is False:
        yield progress or None
        return
    with _bar(console or Console(stderr=True), bars.TaskProgressColumn()) as bar:
        task = bar.add_task(escape_controls(title), total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _bar(console: Console, count: bars.ProgressColumn) -> bars.Progress:
    times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), count, *times)
    return bars.Progress(*columns, console=console, disable=not shows_progress(console))
