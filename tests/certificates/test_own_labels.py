"""Certificates of the model's own predictions: errors are changes, and they say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus.certificates import Certificate
from certus.certificates.files import as_json
from certus.data import Samples
from tests.certificates.problems import network, samples

RHOS = (0.0, 0.01, 0.05, 0.2)


def worst_share(costs: np.ndarray, rho: float) -> float:
    """The largest share of samples that a mean cost of ρ can change: the cheapest first, the last in part."""
    left, changed = rho * len(costs), 0.0
    for cost in np.sort(costs):
        if cost > left:
            return (changed + (left / cost if cost > 0 else 0.0)) / len(costs)
        left, changed = left - cost, changed + 1
    return 1.0


def test_an_error_is_a_prediction_that_changes() -> None:
    """A linear model: the distance to its boundary is known, whatever the labels are."""
    torch.manual_seed(0)
    model, inputs = nn.Linear(3, 2).double(), torch.randn(40, 3, dtype=torch.float64)
    with torch.no_grad():
        wrong = 1 - model(inputs).argmax(1)
        slope = model.weight[1] - model.weight[0]
        distance = (inputs @ slope + model.bias[1] - model.bias[0]).abs() / slope.norm()
    costs = (distance**2).numpy()
    own = certus.certify(model, (inputs, None), rho=RHOS[1:])
    given = certus.certify(model, (inputs, wrong), rho=RHOS[1:])
    assert (own.labels, given.labels) == ("predicted", "given")
    assert given.bracket(0.0).error_low == pytest.approx(1.0)  # every label is wrong
    for rho in RHOS:
        one = own.bracket(rho)
        assert one.error_low is not None
        assert one.error_high is not None
        truth = worst_share(costs, rho)
        assert one.error_low <= truth + 1e-9
        assert truth <= one.error_high + 1e-12
        assert one.error_high == pytest.approx(truth, abs=0.02)  # linear: the radii are exact


@pytest.mark.parametrize("form", ["samples", "batches"])
def test_predicted_labels_replace_targets(form: str) -> None:
    """Whatever the targets are, and however the data come: the same as without any."""
    model, (inputs, targets) = network("tanh", 1), samples(1, 25)
    data: Any = Samples(inputs, targets)
    if form == "batches":
        data = DataLoader(TensorDataset(inputs, targets), batch_size=7)
    options: dict[str, Any] = {"rho": RHOS[1:], "local_radii": 1, "gamma_rounds": 0, "attack_steps": 2}
    own = certus.certify(model, data, labels="predicted", **options)
    assert own.labels == "predicted"
    assert as_json(own) == as_json(certus.certify(model, (inputs, None), **options))


def test_a_curved_boundary_by_brute_force() -> None:
    """The nearest change of prediction on a fine grid: no distance is below the proven one."""
    model, (inputs, _) = network("tanh", 1, size=3.0), samples(1, 25)
    found = certus.certify(
        model, (inputs, None), rho=0.01, epsilon=(0.05, 0.2), local_radii=2, gamma_rounds=0
    )
    side = torch.linspace(-0.7, 0.7, 281, dtype=torch.float64)
    around = torch.cartesian_prod(side, side)
    with torch.no_grad():
        own = model(inputs).argmax(1)
        pairs = zip(inputs, own, strict=True)
        costs = np.array([_nearest(model, point, int(label), around) for point, label in pairs])
    for rho in RHOS:
        high = found.bracket(rho).error_high
        assert high is not None
        assert worst_share(costs, rho) <= high + 1e-12
    for one in found.accuracies():
        assert one.certified <= float((costs > one.epsilon**2).mean())


def _nearest(model: nn.Module, point: Tensor, label: int, around: Tensor) -> float:
    """The squared distance of the nearest grid point with another prediction; ∞ if there is none."""
    other = model(point + around).argmax(1) != label
    return float((around[other] ** 2).sum(1).min()) if bool(other.any()) else np.inf


def _said(certificate: Certificate) -> list[str]:
    """All that is shown of a certificate: table, JSON and picture."""
    figure = certificate.plot()
    title = figure.get_suptitle()
    return [str(certificate), str(as_json(certificate)), title]


@pytest.mark.parametrize("kind", ["network", "linear model", "custom criterion"])
def test_every_way_says_whose_labels_they_are(kind: str) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(20, 2, dtype=torch.float64)
    if kind == "network":
        pair = [
            certus.certify(nn.Linear(2, 3), (inputs, labels), rho=0.01)
            for labels in (None, torch.arange(20) % 3)
        ]
    elif kind == "linear model":
        labels = (inputs[:, 0] > 0).long()
        fitted = LogisticRegression().fit(inputs.numpy(), labels.numpy())
        pair = [certus.certify(fitted, (inputs.numpy(), each), rho=0.01) for each in (None, labels.numpy())]
    else:
        hinge = nn.MultiMarginLoss(reduction="none")
        pair = [
            certus.certify(nn.Linear(2, 3), (inputs, labels), rho=0.01, criterion=hinge)
            for labels in (None, torch.arange(20) % 3)
        ]
    own, given = pair
    assert (own.labels, given.labels) == ("predicted", "given")
    for words in _said(own):
        assert "predictions" in words
    assert "labels predicted" in repr(own)
    for words in _said(given):
        assert "own predictions" not in words
