"""Training metrics, evaluation on unmoved data, and reports on the test data.

Metrics are kept as sums and counts, so that processes and resumed runs add up exactly. Reports show what
accuracy hides: with 88% of the rows in one class, a model that has learnt nothing is right in 88% of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from certus._eval_mode import loss_eval_mode
from certus.data import Samples
from certus.datasets import SplitDataset
from certus.errors import require
from certus.losses import ModelLoss, predicted


@dataclass
class Sums:
    """Sums of per-sample quantities and their counts, by name."""

    totals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, weights: Tensor | None = None, **quantities: Tensor) -> None:
        """Add (batch,) tensors, weighted by sample; quantities that are not measured are left out."""
        for name, values in quantities.items():
            total, count = self.totals.get(name, (0.0, 0.0))
            summed, more = values.detach().cpu().double(), float(len(values))
            if weights is not None:
                counts = weights.cpu().double()
                summed, more = summed * counts, float(counts.sum())
            self.totals[name] = (total + float(summed.sum()), count + more)

    def means(self, fabric: Fabric) -> dict[str, float]:
        """Means over the samples of all processes."""
        names = sorted(self.totals)
        if not names:
            return {}
        table = torch.tensor([self.totals[name] for name in names], dtype=torch.float64)
        if fabric.world_size > 1:  # on devices that have float64: MPS knows one process only
            reduced = fabric.all_reduce(table.to(fabric.device), reduce_op="sum")
            assert isinstance(reduced, Tensor)
            table = reduced.cpu()
        return {name: float(row[0] / row[1]) for name, row in zip(names, table, strict=True)}


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch, while θ moved; None where a method does not measure them.

    Attributes:
        loss: mean training loss at the moved inputs.
        accuracy: share of moved inputs that are classified correctly; None in regression.
        phi: mean of f at the last evaluated points of the ascents, a lower estimate of E φ_γ.
        rho_running: mean transport cost there. Not ρ̂, which is one pass at the final θ.
        gradients: mean gradients per sample of the inner problem.
        converged: share of inner problems that met their tolerance.
        gamma: penalty at the end of the epoch.
        calibration_loss, calibration_accuracy: on the unmoved calibration split.
        seconds: wall time of the epoch.
        curvature: L̄, *proven* for the weights at the end of the epoch; None unless training is certified.
    """

    epoch: int
    loss: float
    accuracy: float | None
    phi: float | None
    rho_running: float | None
    gradients: float | None
    converged: float | None
    gamma: float | None
    calibration_loss: float | None
    calibration_accuracy: float | None
    seconds: float
    curvature: float | None = None


@torch.no_grad()
def clean_metrics(loss: ModelLoss, data: Samples, batch_size: int = 1024) -> dict[str, float]:
    """Return mean loss, and accuracy for labels, on unmoved data, in eval mode.

    >>> from certus.models import toy_mlp
    >>> sorted(clean_metrics(ModelLoss(toy_mlp()), Samples(torch.zeros(3, 2), torch.tensor([0, 1, 0]))))
    ['accuracy', 'loss']
    """
    sums = Sums()
    with loss_eval_mode(loss):
        for batch in data.batches(batch_size):
            outputs = loss.outputs(batch.inputs)
            right = right_or_wrong(outputs, batch.targets)
            sums.add(batch.weights, loss=loss.criterion(outputs, batch.targets), **right)
    return {name: total / count for name, (total, count) in sums.totals.items()}


def right_or_wrong(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Return whether each sample is classified right; empty in regression."""
    return {} if targets.is_floating_point() else {"accuracy": predicted(outputs) == targets}


@dataclass(frozen=True, eq=False)
class ClassificationReport:
    """Counts (classes, classes) of true labels in rows and predicted ones in columns, with the names of the
    classes."""

    confusion: Tensor
    names: tuple[str, ...]

    @property
    def recall(self) -> list[float | None]:
        """Recall of each class; None for a class without samples."""
        shares = self.confusion.diagonal().double() / self.confusion.sum(1)
        return [None if math.isnan(share) else share for share in shares.tolist()]

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have samples."""
        recalls = [recall for recall in self.recall if recall is not None]
        return sum(recalls) / len(recalls)

    @property
    def majority(self) -> tuple[int, float]:
        """Most frequent class and its share, the accuracy of always predicting it."""
        counts = self.confusion.sum(1)
        return int(counts.argmax()), float(counts.max()) / float(counts.sum())

    @property
    def never(self) -> list[int]:
        """Classes that have samples and are never predicted."""
        unseen = (self.confusion.sum(1) > 0) & (self.confusion.sum(0) == 0)
        return unseen.nonzero().flatten().tolist()

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


def classification_report(loss: ModelLoss, data: SplitDataset) -> ClassificationReport:
    """Count true and predicted labels of the unmoved test data."""
    classes = data.classes or 0
    pairs = data.test.targets * classes + predicted(_outputs(loss, data.test))
    counts = torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    return ClassificationReport(counts, data.class_names or tuple(map(str, range(classes))))


def regression_report(loss: ModelLoss, data: SplitDataset) -> dict[str, float]:
    """Return the RMSE on the unmoved test data, in the target's units, and R² unless the variance is 0."""
    outputs, targets = _outputs(loss, data.test).double().flatten(), data.test.targets.double().flatten()
    squared = float(((outputs - targets) ** 2).mean())
    variance = float(targets.var(correction=0))
    unit = 1.0 if data.target_scale is None else data.target_scale[1]
    explained = {"r2": 1 - squared / variance} if variance > 0 else {}
    return {"rmse": math.sqrt(squared) * unit, **explained}


def balanced(data: SplitDataset) -> SplitDataset:
    """Weight the training samples so that every class counts alike; the mean weight is 1."""
    return replace(data, train=replace(data.train, weights=balancing_weights(data)[data.train.targets]))


def balancing_weights(data: SplitDataset) -> Tensor:
    """Return (classes,) weights by which all classes of the training data count alike."""
    require(data.classes is not None, "class_weights", "be left out for regression", "balanced")
    counts = torch.bincount(data.train.targets, minlength=data.classes or 0)
    return len(data.train) / ((counts > 0).sum() * counts.clamp_min(1))


@torch.no_grad()
def _outputs(loss: ModelLoss, data: Samples) -> Tensor:
    with loss_eval_mode(loss):
        return torch.cat([loss.model(part) for part in data.inputs.split(1024)]).cpu()
