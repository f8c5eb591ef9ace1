"""A progress bar for training, on stderr; silent when that is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from certus.printable import printable
from certus.training import Observer, TrainingState


class _TwoLines(Progress):
    """The bar on one line that keeps its place, the news on a line below."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["news"], overflow="ellipsis", no_wrap=True, style="dim")


class ProgressBar(Observer):
    """Steps done and to do, with the running means of the present epoch."""

    def __init__(self, console: Console) -> None:
        self._progress = _TwoLines(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = TaskID(0)
        self._epochs, self._steps = 0, 0

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._progress.stop()

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        assert steps is not None  # the data of a run are in memory
        self._epochs, self._steps = epochs, steps
        self._task = self._progress.add_task("training", total=epochs * steps, news="")
        self._show(state)

    def after_step(self, state: TrainingState) -> None:
        self._show(state)

    def measuring(self) -> None:
        self._progress.update(self._task, description="measuring rho_hat", news="")

    def _show(self, state: TrainingState) -> None:
        means = {name: total / count for name, (total, count) in state.sums.totals.items()}
        shown = ("loss", "accuracy", "phi", "rho_running", "gradients")
        told = [f"{name.partition('_')[0]} {means[name]:.3g}" for name in shown if name in means]
        news = ("moved inputs: " if "phi" in means else "") + "  ".join(told)
        penalty = state.method.penalty
        if penalty is not None and isinstance(penalty.gamma, float):
            news += f"  gamma {penalty.gamma:.3g}"
        self._progress.update(
            self._task,
            completed=state.epoch * self._steps + state.step,
            description=f"epoch {min(state.epoch + 1, self._epochs)}/{self._epochs}",
            news=news,
        )


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for work that is counted: ``with counting(...) as advance: … advance(count)``."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(printable(what), total=total)
        yield lambda count: bar.advance(task, count)
