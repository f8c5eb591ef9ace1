"""What is measured in each epoch, to any logger of Lightning or Fabric: CSV files, TensorBoard and others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from certus.errors import require
from certus.training.fit import Observer, TrainingState
from certus.training.metrics import EpochMetrics


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
