"""Training metrics, evaluation on unmoved data, and reports on the test data.

Metrics are kept as sums and counts, so that processes and resumed runs add up exactly. Reports complement
accuracy: with 88% of the rows in one class, a constant prediction has an accuracy of 88%.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from certus._eval_mode import loss_eval_mode
from certus.data import Samples
from certus.datasets import SplitDataset
from certus.errors import require
from certus.losses import ModelLoss, predicted

if TYPE_CHECKING:  # it loads torch._dynamo, which takes a second and a half
    from lightning_fabric import Fabric


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


@dataclass(frozen=True)
class RareClass:
    """Ranking of the rows of a class before all others by their scores.

    Attributes:
        share: share of the samples, which is the average precision of uninformative scores (of AUC 0.5).
    """

    label: int
    share: float
    average_precision: float
    auc: float


def rarest_class(outputs: Tensor, targets: Tensor, classes: int) -> RareClass | None:
    """Return the ranking of the rarest class of (n,) labels by (n, …) outputs; None for a single label.

    >>> outputs = torch.tensor([[3.0], [2.0], [1.0], [-1.0]])
    >>> ranked = rarest_class(outputs, torch.tensor([1, 0, 0, 0]), 2)
    >>> ranked.average_precision, ranked.auc
    (1.0, 1.0)
    """
    from sklearn.metrics import average_precision_score, roc_auc_score  # inside: slow to import

    counts = torch.bincount(targets, minlength=classes)
    if int((counts > 0).sum()) < 2:
        return None
    label = int(torch.where(counts > 0, counts, len(targets) + 1).argmin())
    outputs = outputs.double().reshape(len(targets), -1)
    if outputs.shape[1] == 1:  # the logit of label 1
        outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
    others = outputs[:, torch.arange(outputs.shape[1]) != label]
    scores, own = (outputs[:, label] - others.logsumexp(1)).numpy(), (targets == label).numpy()
    # A sum of shares may exceed 1 by its rounding.
    precision = min(1.0, average_precision_score(own, scores))
    auc = roc_auc_score(own, scores)
    return RareClass(label, float(own.mean()), float(precision), float(auc))


@dataclass(frozen=True, eq=False)
class ClassificationReport:
    """Counts (classes, classes) of true labels in rows and predicted ones in columns, with the names of the
    classes.

    Attributes:
        rarest: the rarest class of the samples with its average precision and the area under its ROC curve,
            against all others; None if all samples have one label.
    """

    confusion: Tensor
    names: tuple[str, ...]
    rarest: RareClass | None = None

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
            "rarest": None if self.rarest is None else asdict(self.rarest),
        }


def classification_report(loss: ModelLoss, data: SplitDataset) -> ClassificationReport:
    """Count true and predicted labels of the unmoved test data."""
    classes = data.classes or 0
    outputs = _outputs(loss, data.test)
    pairs = data.test.targets * classes + predicted(outputs)
    counts = torch.bincount(pairs, minlength=classes**2).reshape(classes, classes)
    names = data.class_names or tuple(map(str, range(classes)))
    return ClassificationReport(counts, names, rarest_class(outputs, data.test.targets, classes))


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
