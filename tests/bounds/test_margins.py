"""The oracle of the curvature tests, at losses of every size."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from certus import CrossEntropy
from certus.losses import Criterion, Logistic, SmoothMargin
from tests.bounds.margins import by_margins
from tests.bounds.networks import derivatives, sample

CRITERIA: list[Criterion] = [
    *(CrossEntropy(), CrossEntropy(label_smoothing=0.3), CrossEntropy(temperature=0.5)),
    *(SmoothMargin(margin=1.0, sharpness=3.0), Logistic()),
]


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_the_criteria_are_the_same(criterion: Criterion) -> None:
    """Values, gradients and Hessians, where nothing cancels."""
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(20, 1 if isinstance(criterion, Logistic) else 4, generator=generator).double()
    targets = torch.arange(20) % max(2, outputs.shape[1])
    leaf = outputs.requires_grad_()
    ours, theirs = by_margins(criterion)(leaf, targets), criterion(leaf, targets)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(derivatives(ours, leaf), derivatives(theirs, leaf))


@pytest.mark.parametrize("lead", [-60.0, 0.0, 20.0, 55.0, 300.0])
def test_two_classes_by_hand(lead: float) -> None:
    """F = (lead + x, 0), y = 0: slope −σ(−lead), curvature σ(−lead)σ(lead), in Python's own numbers."""
    model = nn.Linear(1, 2).double()
    model.weight.data = torch.tensor([[1.0], [0.0]]).double()
    model.bias.data = torch.tensor([lead, 0.0]).double()
    found = sample(model, CrossEntropy(), torch.zeros(1, 1).double(), torch.tensor([0]))
    wrong, right = 1 / (1 + math.exp(lead)), 1 / (1 + math.exp(-lead))
    assert float(found.slope) == pytest.approx(-wrong, rel=1e-12)
    assert float(found.curvature) == pytest.approx(wrong * right, rel=1e-12)
