"""Callbacks of the training loop: the progress bar, and loggers of Lightning and Fabric.

A progress bar for training: the epoch on a line that keeps its place, what was measured below it.

What is measured in each epoch, to any logger of Lightning or Fabric: CSV files, TensorBoard and others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

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

from certus._progress import is_watched
from certus.errors import require
from certus.training._fit import Observer, TrainingState
from certus.training.metrics import EpochMetrics


class _TwoLines(Progress):
    """The bar on one line that keeps its place, the news on a line below."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["news"], overflow="ellipsis", no_wrap=True, style="dim")


class ProgressBar(Observer):
    """Steps done and to do, with the running means of the present epoch; silent where nobody watches."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._progress = _TwoLines(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not is_watched(console),
        )
        self._task = TaskID(0)
        self._epochs = 0
        self._steps: int | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._progress.stop()

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._epochs, self._steps = epochs, steps
        total = None if steps is None else epochs * steps  # a loader may not know its length
        self._task = self._progress.add_task("training", total=total, news="")
        self._show(state)

    def after_step(self, state: TrainingState) -> None:
        self._show(state)

    def measuring(self) -> None:
        self._progress.update(self._task, description="measuring rho_hat", news="")

    def _show(self, state: TrainingState) -> None:
        means = {name: total / count for name, (total, count) in state.sums.totals.items()}
        shown = ("loss", "accuracy", "rho_running", "gradients")
        told = [f"{name.partition('_')[0]} {means[name]:.3g}" for name in shown if name in means]
        news = ("moved inputs: " if "phi" in means else "") + "  ".join(told)
        penalty = state.method.penalty
        if penalty is not None and isinstance(penalty.gamma, float):
            news += f"  gamma {penalty.gamma:.3g}"
        self._progress.update(
            self._task,
            completed=state.epoch * (self._steps or 0) + state.step,
            description=f"epoch {min(state.epoch + 1, self._epochs)}/{self._epochs}",
            news=news,
        )


class Logged(Observer):
    """Hands every epoch's metrics to a logger, by their names in ``EpochMetrics``; the step is the epoch.

    A run that goes on from a checkpoint hands over the epochs that it has first. So a log is whole, even if
    its run was killed between writing the one and the other: list this observer behind the one that restores.

    Args:
        logger: anything with ``log_metrics(metrics, step)`` and ``save()``, such as
            ``lightning_fabric.loggers.CSVLogger("logs")``.
    """

    def __init__(self, logger: Any) -> None:
        fits = callable(getattr(logger, "log_metrics", None)) and callable(getattr(logger, "save", None))
        require(fits, "logger", "have log_metrics(metrics, step) and save()", type(logger))
        self._logger = logger

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        for entry in state.history:
            self._log(entry)

    def after_epoch(self, state: TrainingState) -> None:
        self._log(state.history[-1])

    def _log(self, entry: EpochMetrics) -> None:
        told = asdict(entry)
        step = told.pop("epoch")
        self._logger.log_metrics({name: value for name, value in told.items() if value is not None}, step)
        self._logger.save()
