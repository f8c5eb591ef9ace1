"""The bundled data are what they say they are."""

from __future__ import annotations

import math

import torch
from sklearn.datasets import load_digits

from certus.datasets import SplitDataset, digits, rings


def together(data: SplitDataset) -> torch.Tensor:
    return torch.cat([data.train.inputs, data.calibration.inputs, data.test.inputs])


def test_digits_are_all_there_once() -> None:
    data = digits(seed=3)
    pixels, labels = load_digits(return_X_y=True)
    ours = torch.cat([(16 * together(data)).flatten(1), together_targets(data)[:, None]], 1)
    theirs = torch.cat([torch.as_tensor(pixels), torch.as_tensor(labels)[:, None]], 1).float()
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.tolist()))
    assert data.classes == 10
    assert data.domain.contains(data.train.inputs).all()
    assert float(data.train.inputs.max()) == 1.0


def together_targets(data: SplitDataset) -> torch.Tensor:
    return torch.cat([data.train.targets, data.calibration.targets, data.test.targets]).float()


def test_seeds_decide_the_split() -> None:
    assert torch.equal(digits(1).test.inputs, digits(1).test.inputs)
    assert not torch.equal(digits(1).test.inputs, digits(2).test.inputs)
    assert torch.equal(rings(seed=1).train.inputs, rings(seed=1).train.inputs)
    assert not torch.equal(rings(seed=1).train.inputs, rings(seed=2).train.inputs)


def test_rings_have_the_papers_distribution() -> None:
    """Radii of a Gaussian in the plane: P(R > r) = exp(−r²/2), restricted to what lies outside the margin."""
    data = rings(train=60_000, calibration=1_000, test=2_000)
    assert (len(data.train), len(data.calibration), len(data.test)) == (60_000, 1_000, 2_000)
    radius = data.train.inputs.double().norm(dim=1)
    low, high = math.sqrt(2) / 1.3, 1.3 * math.sqrt(2)
    assert not ((radius > low + 1e-6) & (radius < high - 1e-6)).any()
    assert torch.equal(data.train.targets, (radius > math.sqrt(2)).long())
    disc, ring = 1 - math.exp(-(low**2) / 2), math.exp(-(high**2) / 2)
    share = disc / (disc + ring)  # 0.708: the paper's 70%
    deviation = math.sqrt(share * (1 - share) / 60_000)
    assert abs(float((data.train.targets == 0).double().mean()) - share) < 4 * deviation
    # Median radius of the disc, from its distribution function.
    median = math.sqrt(-2 * math.log(1 - disc / 2))
    inside = float((radius[data.train.targets == 0] < median).double().mean())
    assert abs(inside - 0.5) < 4 * math.sqrt(0.25 / (share * 60_000))
    # No direction is preferred.
    mean = data.train.inputs.double().mean(0)
    assert float(mean.abs().max()) < 4 * math.sqrt(float((radius**2).mean()) / 2 / 60_000)
