"""Certificates at faces of a box, against the worst mean in closed form."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus.domains import Box
from certus.losses import SquaredError


@pytest.mark.quick_share(5)
@pytest.mark.parametrize("cost", [certus.SquaredL2(), certus.costs.SquaredSup(), certus.costs.SquaredLp(1.0)])
@pytest.mark.parametrize(("start", "target"), list(product((0.0, 0.4, 1.0), (-1.0, 0.01, 0.99, 2.0))))
def test_a_squared_error_grows_on_both_sides(cost: certus.costs.Cost, start: float, target: float) -> None:
    """At a face of the box the output may still fall where it may not rise: F(x) = x on [0, 1]."""
    layer = nn.Linear(1, 1, dtype=torch.float64)
    layer.weight.data.fill_(1.0)
    layer.bias.data.zero_()
    data = torch.tensor([[start]], dtype=torch.float64), torch.tensor([target], dtype=torch.float64)
    certificate = certus.certify(
        layer, data, rho=[0.01, 0.25], criterion=SquaredError(), cost=cost, domain=Box(0, 1), progress=False
    )
    for rho in (0.01, 0.25):
        reach = np.clip([start - math.sqrt(rho), start + math.sqrt(rho)], 0, 1)
        assert max((reach - target) ** 2) <= certificate.bound(rho) * (1 + 1e-12)
