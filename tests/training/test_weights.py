"""Samples that count differently: a weight of k is k copies of the sample."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

from certus._validation import checked_weights
from certus.data import Samples
from certus.datasets import SplitDataset
from certus.domains import Unbounded
from certus.errors import ArgumentError
from certus.inner import WRM
from certus.inner.methods import ERM, Method
from certus.losses import ModelLoss
from certus.models import mlp
from certus.training import fit
from certus.training.metrics import clean_metrics

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(12, 3, generator=GENERATOR, dtype=torch.float64)
LABELS = (INPUTS[:, 0] > 0).long()
COPIES = torch.tensor([1, 3, 2, 1, 1, 4, 1, 2, 1, 1, 5, 2])


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return mlp(3, [8], 2, "softplus").double()


@pytest.mark.parametrize("method", [ERM(), WRM(gamma=1.0), WRM(rho=0.05)], ids=["erm", "gamma", "rho"])
def test_a_weight_equals_as_many_copies(method: Method) -> None:
    weighted = Samples(INPUTS, LABELS, checked_weights(COPIES, len(INPUTS)))
    repeated = Samples(INPUTS.repeat_interleave(COPIES, 0), LABELS.repeat_interleave(COPIES))
    found = [
        fit(network(), data, method=copy.deepcopy(method), epochs=15, batch_size=64)
        for data in (weighted, repeated)
    ]
    for one, other in zip(*(each.model.parameters() for each in found), strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)
    first, second = (each.history[-1] for each in found)
    assert first.loss == pytest.approx(second.loss, rel=1e-8)
    if found[0].robustness is not None:
        assert found[1].robustness is not None
        numbers = [dataclasses.astuple(each.robustness)[:3] for each in found if each.robustness is not None]
        assert numbers[0] == pytest.approx(numbers[1], rel=1e-6)


def test_weights_change_the_outcome() -> None:
    """Else the test above would compare a training with itself."""
    plain = fit(network(), Samples(INPUTS, LABELS), epochs=15, batch_size=64)
    counted = checked_weights(COPIES, len(INPUTS))
    other = fit(network(), Samples(INPUTS, LABELS, counted), epochs=15, batch_size=64)
    assert plain.history[-1].loss != pytest.approx(other.history[-1].loss, rel=1e-3)


def test_a_slice_keeps_its_weights() -> None:
    part = Samples(INPUTS, LABELS, COPIES.double())[2:5]
    assert part.weights is not None
    assert part.weights.tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (torch.ones(3), r"`weights` must have one entry for each of the 2 samples; got shape \(3,\)"),
        (torch.tensor([1.0, -1.0]), "`weights` must be finite and not negative"),
        (torch.tensor([1.0, float("nan")]), "`weights` must be finite and not negative"),
        (torch.zeros(2), "`weights` must not all be 0"),
        ([1.0, 2.0], "`weights` must be a tensor"),
    ],
)
def test_invalid_weights(weights: torch.Tensor, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        checked_weights(weights, 2)


def test_held_out_samples_count_by_their_weights() -> None:
    """Against copies, which have no weights."""
    counts = COPIES.double()
    weighted = Samples(INPUTS, LABELS, counts)
    repeated = Samples(INPUTS.repeat_interleave(COPIES, 0), LABELS.repeat_interleave(COPIES))
    loss = ModelLoss(network())
    found, expected = (clean_metrics(loss, data, batch_size=5) for data in (weighted, repeated))
    assert found == pytest.approx(expected)
    assert found["loss"] != pytest.approx(clean_metrics(loss, Samples(INPUTS, LABELS))["loss"])
    histories = []
    for held_out in (weighted, repeated):
        data = SplitDataset("rows", Samples(INPUTS, LABELS), held_out, held_out, Unbounded(), 2)
        histories.append(fit(network(), data, epochs=2, progress=False).history)
    for one, other in zip(*histories, strict=True):
        assert one.calibration_loss == pytest.approx(other.calibration_loss)
        assert one.calibration_accuracy == pytest.approx(other.calibration_accuracy)
