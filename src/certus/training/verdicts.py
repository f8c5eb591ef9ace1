"""What accuracy hides: which labels a model never gives, how well it knows each, and errors in real units.

With 88% of the rows in one class, a model that knows nothing is right in 88% of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from certus.data import DataSet
from certus.errors import require
from certus.losses import ModelLoss, predicted
from certus.modes import evaluation_mode
from certus.split import Split

_BATCH = 1024


@dataclass(frozen=True, eq=False)
class ClassVerdict:
    """Attributes:
    confusion: (classes, classes) counts: true labels in rows, predicted ones in columns.
    names: of the classes.
    """

    confusion: Tensor
    names: tuple[str, ...]

    @property
    def recall(self) -> list[float | None]:
        """Of each class the share that is recognised; None for a class without samples."""
        counts = self.confusion.sum(1)
        return [
            int(self.confusion[at, at]) / int(count) if count else None for at, count in enumerate(counts)
        ]

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that there are."""
        known = [one for one in self.recall if one is not None]
        return sum(known) / len(known)

    @property
    def majority(self) -> tuple[int, float]:
        """The most frequent class, and its share: what always answering it would reach."""
        counts = self.confusion.sum(1)
        return int(counts.argmax()), float(counts.max()) / float(counts.sum())

    @property
    def never(self) -> list[int]:
        """Classes that have samples and are never predicted."""
        there, given = self.confusion.sum(1) > 0, self.confusion.sum(0) > 0
        return (there & ~given).nonzero().flatten().tolist()

    def as_json(self) -> dict[str, Any]:
        label, share = self.majority
        return {
            "names": list(self.names),
            "confusion": self.confusion.tolist(),
            "recall": self.recall,
            "balanced_accuracy": self.balanced_accuracy,
            "majority": label,
            "majority_share": share,
            "never_predicted": self.never,
        }


def class_verdict(loss: ModelLoss, data: DataSet) -> ClassVerdict:
    """Count true and predicted labels of the test data as they are."""
    classes = data.classes or 0
    pairs = data.test.targets * classes + predicted(_outputs(loss, data.test))
    counts = torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    return ClassVerdict(counts, data.class_names or tuple(map(str, range(classes))))


def regression_verdict(loss: ModelLoss, data: DataSet) -> dict[str, float]:
    """Root mean squared error on the test data as they are, in the target's own units; and R², the share of
    variance that is explained, unless there is no variance."""
    outputs, targets = _outputs(loss, data.test).double().flatten(), data.test.targets.double().flatten()
    squared = float(((outputs - targets) ** 2).mean())
    variance = float(targets.var(correction=0))
    unit = 1.0 if data.target_scale is None else data.target_scale[1]
    explained = {"r2": 1 - squared / variance} if variance > 0 else {}
    return {"rmse": math.sqrt(squared) * unit, **explained}


def balanced(data: DataSet) -> DataSet:
    """With weights on the training samples that make every class count alike; their mean is 1."""
    train = replace(data.train, weights=balancing_weights(data)[data.train.targets])
    return replace(data, train=train)


def balancing_weights(data: DataSet) -> Tensor:
    """(classes,) by which each class counts, so that all of the training data count alike."""
    require(data.classes is not None, "class_weights", "be left out for regression", "balanced")
    counts = torch.bincount(data.train.targets, minlength=data.classes or 0)
    return len(data.train) / ((counts > 0).sum() * counts.clamp_min(1))


@torch.no_grad()
def _outputs(loss: ModelLoss, data: Split) -> Tensor:
    with evaluation_mode(loss):
        return torch.cat([loss.model(part) for part in data.inputs.split(_BATCH)]).cpu()
