"""What happens between the epochs of an estimator's training: lines of progress, and an early end."""

from __future__ import annotations

import math

from torch import Tensor

from certus.losses import Criterion, ModelLoss
from certus.split import Split
from certus.training import Observer, TrainingState, evaluate


class EpochLines(Observer):
    """Prints a line for some ten epochs, or for each from a level of 2 on."""

    def __init__(self, level: int) -> None:
        self._level, self._every = level, 1

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._every = max(1, epochs // 10) if self._level < 2 else 1

    def after_epoch(self, state: TrainingState) -> None:
        told = state.history[-1]
        if told.epoch % self._every == 0:
            gamma = "" if told.gamma is None else f"  gamma {told.gamma:.4g}"
            print(f"epoch {told.epoch}: loss {told.loss:.6g}{gamma}")


class EarlyStopping(Observer):
    """Ends the training when the loss on samples held out has not fallen for some epochs, and goes back to
    the weights with which it was lowest."""

    def __init__(self, held_out: Split, criterion: Criterion, patience: int) -> None:
        self._data, self._criterion = held_out, criterion
        self._patience, self._best, self._since, self._epochs = patience, math.inf, 0, 0
        self._kept: dict[str, Tensor] = {}

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._epochs = epochs

    def after_epoch(self, state: TrainingState) -> None:
        loss = evaluate(ModelLoss(state.model, self._criterion), self._data)["loss"]
        self._since += 1
        if loss < self._best:
            self._best, self._since = loss, 0
            self._kept = {name: value.clone() for name, value in state.model.state_dict().items()}
        state.finished = self._since >= self._patience
        if state.finished or len(state.history) == self._epochs:
            state.model.load_state_dict(self._kept)
