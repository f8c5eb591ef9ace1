"""A second checker, in ball arithmetic, agrees with certificates of dense networks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import certus
from tools.second_checker import Network, RefusedError, check_norm, dual_bounds

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "softplus": nn.Softplus, "sigmoid": nn.Sigmoid}


def drawn(seed: int) -> tuple[nn.Sequential, Network, torch.Tensor, torch.Tensor]:
    """A random dense network, the same for the checker, and samples."""
    generator = np.random.default_rng(seed)
    widths = [int(generator.integers(2, 9)) for _ in range(int(generator.integers(2, 4)))]
    widths = [*widths, int(generator.integers(2, 5))]
    name = sorted(ACTIVATIONS)[seed % 3]
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for first, second in itertools.pairwise(widths):
        layers += [nn.Linear(first, second), ACTIVATIONS[name]()]
    model = nn.Sequential(*layers[:-1]).double()
    affine: list[Any] = [
        (layer.weight.detach().numpy(), layer.bias.detach().numpy())
        for layer in model
        if isinstance(layer, nn.Linear)
    ]
    norms = [float(np.linalg.norm(weight, 2) * (1 + 1e-12)) for weight, _ in affine]
    inputs = torch.randn(5, widths[0], dtype=torch.float64)
    labels = torch.randint(0, widths[-1], (5,))
    return model, Network(affine, name, norms), inputs, labels


def agree(seed: int) -> int:
    """Compare every dual value of one certificate; return how many are well inside the concave range."""
    model, network, inputs, labels = drawn(seed)
    certificate = certus.certify(
        model,
        (inputs, labels),
        rho=[1e-4, 1e-3],
        local_radii=0,
        gamma_rounds=0,
        attack_steps=0,
        progress=False,
    )
    assert certificate.source is not None
    compared = 0
    for level in certificate.dual_values:
        points = certificate.source.transported(level.gamma).inputs
        bounds, modulus = dual_bounds(network, inputs.numpy(), labels.tolist(), points.numpy(), level.gamma)
        second = torch.tensor(bounds, dtype=torch.float64)
        # The library takes the smallest of more rules: it is larger by no more than the room that it leaves
        # for the jump of torch's softplus at its threshold, and never below what is attained.
        assert bool((level.bound <= second + 1e-7).all()), (seed, level.gamma)
        assert bool((second >= level.loss - level.gamma * level.transport_cost - 1e-12).all())
        if modulus > 0.5:
            compared += len(second)
            assert float((second - level.bound).max()) < 1e-4, (seed, level.gamma)  # where the ascent stops
    return compared


def test_dual_values_agree() -> None:
    assert sum(agree(seed) for seed in range(12)) > 100


@pytest.mark.soak
def test_dual_values_of_a_thousand_certificates_agree() -> None:
    assert sum(agree(seed) for seed in range(1000)) > 10_000


@pytest.mark.parametrize("shape", [(3, 5), (6, 2), (1, 1)])
def test_a_norm_that_is_claimed_too_small_is_refused(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(0).normal(size=shape)
    norm = float(np.linalg.norm(matrix, 2))
    check_norm(matrix, norm * (1 + 1e-12))
    with pytest.raises(RefusedError, match="not proven to be at most"):
        check_norm(matrix, norm * (1 - 1e-6))
