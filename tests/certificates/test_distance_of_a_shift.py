"""√ρ is a root mean square distance: a mean distance of √ρ allows more than is certified."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus

COUNT, RHO = 100, 0.01


def test_a_mean_distance_is_another_budget() -> None:
    """A linear model and samples at distance 1 from its boundary: who moves by more than 1 errs."""
    model = nn.Linear(2, 2).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0]]))
        model.bias.zero_()
    inputs = torch.ones(COUNT, 2, dtype=torch.float64)
    certificate = certus.certify(model, (inputs, torch.ones(COUNT).long()), rho=RHO)
    one = certificate.bracket(RHO)
    assert one.error_high is not None
    assert one.distance == pytest.approx(0.1)
    assert one.error_high == pytest.approx(
        RHO, abs=1e-6
    )  # one sample in a hundred moves by 1, the others stay

    def moved(share: int) -> tuple[float, float, float]:
        """Some samples just beyond the boundary: mean distance, its root mean square, and the error."""
        points = inputs.clone()
        points[:share, 0] = -1e-9
        lengths: Tensor = (points - inputs).norm(dim=1)
        error = float((model(points).argmax(1) != 1).double().mean())
        return float(lengths.mean()), float((lengths**2).mean().sqrt()), error

    mean, root, error = moved(1)
    assert root == pytest.approx(one.distance)
    assert error <= one.error_high + 1e-6
    mean, root, error = moved(10)
    assert mean == pytest.approx(one.distance)  # "by 0.1 on average"
    assert root > 3 * one.distance
    assert error > 9 * one.error_high
