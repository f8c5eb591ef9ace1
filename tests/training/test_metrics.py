"""What accuracy hides, against scikit-learn; and weights that let every class count alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from sklearn import metrics
from torch import nn

from certus.data import Samples
from certus.datasets import SplitDataset, load
from certus.domains import Unbounded
from certus.errors import ArgumentError
from certus.losses import ModelLoss, SquaredError
from certus.training import fit
from certus.training.metrics import balanced, classification_report, rarest_class, regression_report


def labelled(targets: torch.Tensor, inputs: torch.Tensor) -> SplitDataset:
    split = Samples(inputs, targets)
    return SplitDataset("own", split, split, split, Unbounded(), 3, class_names=("a", "b", "c"))


def test_counts_agree_with_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, targets = (
        torch.randn(200, 3, generator=generator),
        torch.randint(0, 3, (200,), generator=generator),
    )
    outputs[:, 2] -= 9  # never the largest
    data = labelled(targets, outputs)
    found = classification_report(ModelLoss(nn.Identity()), data)
    said = outputs.argmax(1)
    assert found.confusion.tolist() == metrics.confusion_matrix(targets, said).tolist()
    assert found.recall == pytest.approx(metrics.recall_score(targets, said, average=None).tolist())
    assert found.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(targets, said))
    assert found.never == [2]
    label, share = found.majority
    assert share == pytest.approx(torch.bincount(targets).max().item() / 200)
    assert label == int(torch.bincount(targets).argmax())
    absent = classification_report(ModelLoss(nn.Identity()), labelled(targets.clamp_max(1), outputs))
    assert absent.recall[2] is None
    assert absent.never == []


def test_the_ranking_of_the_rarest_class_by_brute_force() -> None:
    """AUC counts pairs; average precision sums precisions at the rank of every row of the class."""
    generator = torch.Generator().manual_seed(1)
    for classes, width in ((2, 1), (2, 2), (3, 3)):
        outputs = torch.randn(60, width, generator=generator)
        targets = (torch.rand(60, generator=generator) < 0.2).long()
        targets[:classes] = torch.arange(classes)
        ranked = rarest_class(outputs, targets, classes)
        assert ranked is not None
        counts = torch.bincount(targets)
        assert ranked.label == int(counts.argmin())
        assert ranked.share == pytest.approx(int(counts.min()) / 60)
        logits = torch.cat([torch.zeros_like(outputs), outputs], 1) if width == 1 else outputs
        scores, own = logits.double().softmax(1)[:, ranked.label], targets == ranked.label
        pairs = (scores[own][:, None] > scores[~own]).double()
        assert ranked.auc == pytest.approx(float(pairs.mean()))
        order = own[scores.argsort(descending=True)].double()
        precision = order.cumsum(0) / torch.arange(1, 61)
        assert ranked.average_precision == pytest.approx(float(precision[order == 1].mean()))
    assert rarest_class(torch.zeros(3, 2), torch.ones(3).long(), 2) is None


def test_errors_of_a_regression_are_in_the_targets_units() -> None:
    data = load("diabetes")
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    found = regression_report(ModelLoss(model, SquaredError()), data)
    mean, scale = data.target_scale or (0.0, 1.0)
    true = data.test.targets.double() * scale + mean
    said = model(data.test.inputs).detach().double().flatten() * scale + mean
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(true, said))
    assert found["r2"] == pytest.approx(metrics.r2_score(true, said))


def test_balanced_weights_let_a_rare_class_count() -> None:
    """A weighted fit is one on data in which the rare samples are repeated."""
    inputs = torch.tensor([[0.0], [0.5], [1.0], [0.9]])
    targets = torch.tensor([0, 0, 0, 1])
    split = Samples(inputs, targets)
    data = SplitDataset("own", split, split, split, Unbounded(), 2)
    weighted = balanced(data)
    assert weighted.train.weights is not None
    torch.testing.assert_close(weighted.train.weights, torch.tensor([2 / 3, 2 / 3, 2 / 3, 2.0]))
    repeated = Samples(torch.cat([inputs, inputs[3:], inputs[3:]]), torch.tensor([0, 0, 0, 1, 1, 1]))
    models = []
    for train in (weighted.train, repeated):
        torch.manual_seed(0)
        model = nn.Linear(1, 2)
        fit(model, train, epochs=20, batch_size=8, optimizer=torch.optim.SGD(model.parameters(), lr=0.5))
        models.append(model.weight.detach())
    torch.testing.assert_close(models[0], models[1])
    with pytest.raises(ArgumentError, match="`class_weights` must be left out for regression"):
        balanced(replace(data, classes=None))
