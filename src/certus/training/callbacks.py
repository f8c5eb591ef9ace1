"""Callbacks of the training loop: a progress bar, and metrics for any logger of Lightning or Fabric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from rich import progress
from rich.console import Console, RenderableType
from rich.text import Text

from certus._epoch_metrics import EpochMetrics
from certus._progress import shows_progress
from certus.errors import require
from certus.training._fit import Callback, TrainingState


class _TwoLines(progress.Progress):
    """Progress bar on one line, with metrics on a line below."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield Text(task.fields["metrics"], overflow="ellipsis", no_wrap=True, style="dim")


class ProgressBar(Callback):
    """Progress bar of the steps, with running means of the present epoch; silent outside a terminal."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        self._progress = _TwoLines(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not shows_progress(console),
        )
        self._task = progress.TaskID(0)
        self._epochs = 0
        self._steps: int | None = None

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._progress.stop()

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._epochs, self._steps = epochs, steps
        total = None if steps is None else epochs * steps  # a loader may not know its length
        self._task = self._progress.add_task("training", total=total, metrics="")
        self._show(state)

    def on_step_end(self, state: TrainingState) -> None:
        self._show(state)

    def on_measure_start(self) -> None:
        self._progress.update(self._task, description="measuring rho_hat", metrics="")

    def _show(self, state: TrainingState) -> None:
        means = {name: total / count for name, (total, count) in state.sums.totals.items()}
        names = ("loss", "accuracy", "rho_running", "gradients")
        parts = [f"{name.partition('_')[0]} {means[name]:.3g}" for name in names if name in means]
        metrics = ("moved inputs: " if "phi" in means else "") + "  ".join(parts)
        penalty = state.method.penalty
        if penalty is not None and isinstance(penalty.gamma, float):
            metrics += f"  gamma {penalty.gamma:.3g}"
        self._progress.update(
            self._task,
            completed=state.epoch * (self._steps or 0) + state.step,
            description=f"epoch {min(state.epoch + 1, self._epochs)}/{self._epochs}",
            metrics=metrics,
        )


class MetricsLogger(Callback):
    """Log the metrics of every epoch, by their names in ``EpochMetrics``; the step is the epoch.

    A run that resumes from a checkpoint logs its complete epochs first, so that the log is complete even if
    the run was killed: list this callback after the one that restores.

    Args:
        logger: anything with ``log_metrics(metrics, step)`` and ``save()``, such as
            ``lightning_fabric.loggers.CSVLogger("logs")``.
    """

    def __init__(self, logger: Any) -> None:
        fits = callable(getattr(logger, "log_metrics", None)) and callable(getattr(logger, "save", None))
        require(fits, "logger", "have log_metrics(metrics, step) and save()", type(logger))
        self._logger = logger

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        for entry in state.history:
            self._log(entry)

    def on_epoch_end(self, state: TrainingState) -> None:
        self._log(state.history[-1])

    def _log(self, entry: EpochMetrics) -> None:
        metrics = asdict(entry)
        step = metrics.pop("epoch")
        self._logger.log_metrics({name: value for name, value in metrics.items() if value is not None}, step)
        self._logger.save()
