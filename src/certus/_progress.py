"""Progress bars of commands and of functions, in a terminal or a notebook.

Elsewhere functions are silent, and commands print a line a minute.
"""

from __future__ import annotations

import importlib.util
import time
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
    if console is not None and not shows_progress(console):
        yield _MinuteLines(console, title)
        return
    with _bar(console or Console(stderr=True), bars.TaskProgressColumn()) as bar:
        yield _Share(bar, escape_controls(title))


def describe(report: ProgressFunction | None, words: str) -> None:
    """Show what is known so far beside a bar; a caller's own function gets no words."""
    if isinstance(report, _Share | _MinuteLines):
        report.describe(words)


class _Share:
    """Shows the share of the work that is done."""

    def __init__(self, bar: bars.Progress, title: str) -> None:
        self._bar, self._title, self._task = bar, title, bar.add_task(title, total=1.0)

    def __call__(self, share: float) -> None:
        self._bar.update(self._task, completed=share)

    def describe(self, words: str) -> None:
        self._bar.update(self._task, description=f"{self._title}: {words}")


_PAUSE = 60.0  # seconds between two lines


class _MinuteLines:
    """Prints the share of the work that is done, at most once a minute."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title, self._last = console, escape_controls(title), time.monotonic()
        self._words = ""

    def describe(self, words: str) -> None:
        self._words = f", {words}"

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._last >= _PAUSE:
            self._last = now
            line = f"{self._title}: {share:.0%}{self._words}"
            self._console.print(line, markup=False, highlight=False)


def _bar(console: Console, count: bars.ProgressColumn) -> bars.Progress:
    times = (bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
    columns = (bars.TextColumn("{task.description}"), bars.BarColumn(), count, *times)
    return bars.Progress(*columns, console=console, disable=not shows_progress(console))
