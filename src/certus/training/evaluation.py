"""What a model is worth on data as they are, without any perturbation."""

from __future__ import annotations

import torch
from torch import Tensor

from certus.losses import ModelLoss, predicted
from certus.modes import evaluation_mode
from certus.split import Split
from certus.training.metrics import Sums


@torch.no_grad()
def evaluate(loss: ModelLoss, data: Split, batch_size: int = 1024) -> dict[str, float]:
    """Mean loss, and accuracy for labels, of the data as they are, in eval mode.

    >>> from certus.models import toy_mlp
    >>> sorted(evaluate(ModelLoss(toy_mlp()), Split(torch.zeros(3, 2), torch.tensor([0, 1, 0]))))
    ['accuracy', 'loss']
    """
    sums = Sums()
    with evaluation_mode(loss):
        for first in range(0, len(data), batch_size):
            batch = data[first : first + batch_size]
            outputs = loss.outputs(batch.inputs)
            told = right_or_wrong(outputs, batch.targets)
            sums.add(batch.weights, loss=loss.criterion(outputs, batch.targets), **told)
    return {name: total / count for name, (total, count) in sums.totals.items()}


def right_or_wrong(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Whether each sample is classified right; nothing in regression."""
    return {} if targets.is_floating_point() else {"accuracy": predicted(outputs) == targets}
