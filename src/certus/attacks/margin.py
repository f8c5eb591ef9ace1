"""The margin by which a sample is misclassified: unlike cross-entropy it does not saturate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.errors import LossError
from certus.losses import check_labels


@dataclass(frozen=True)
class Margin:
    """max_{k ≠ y} F_k − F_y: positive exactly where the sample is misclassified.

    Where cross-entropy is so small that its gradient vanishes in floating point, this one still points the
    way: attack ``ModelLoss(model, Margin())``.

    >>> Margin()(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor([-2.])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.dim() == 2 and outputs.shape[1] == 1:  # one output stands for (0, F)
            outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
        if outputs.dim() != 2:
            raise LossError(f"Margin needs outputs of shape (batch, classes); got {tuple(outputs.shape)}.")
        check_labels("Margin", outputs, targets)
        own = outputs.gather(1, targets.unsqueeze(1)).squeeze(1)
        mine = torch.nn.functional.one_hot(targets, outputs.shape[1]).bool()
        return outputs.masked_fill(mine, -torch.inf).amax(1) - own
