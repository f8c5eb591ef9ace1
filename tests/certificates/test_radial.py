"""The radial rule by itself: rings and all that lies beyond them, against a fine grid of distances."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from certus.certificates.proposals import softplus_roots
from certus.kernel.losses import Form, Score
from certus.kernel.radial import Profile

EDGES = torch.tensor([0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
LEFT = torch.tensor([[0.2, 0.9, 1.4], [1.0, 0.6, 0.9]], dtype=torch.float64)  # (samples, rings)
RIGHT = torch.tensor([[0.8, 1.5, 6.0], [0.7, 2.6, 0.3]], dtype=torch.float64)
ORIGIN, SLOPE = torch.tensor([0.2, 1.0], dtype=torch.float64), torch.tensor([3.0, 0.5], dtype=torch.float64)
FAR = torch.tensor([math.inf, math.inf], dtype=torch.float64)


def profile(
    *,
    second: float = 5.0,
    unit_cost: float = 1.0,
    clip: float | None = None,
    root: float = 0.0,
    reach: Tensor = FAR,
    score: Score | None = None,
) -> Profile:
    """Two samples with two majorants each, the second of which is above the first by ``second``.

    With a root they are squares, which no slope bounds; the score is the square root, or the loss itself.
    """
    left, right = (torch.stack([ends, ends + second]) for ends in (LEFT, RIGHT))
    roots = torch.full_like(ORIGIN, root)
    slope = SLOPE if root == 0 else FAR
    if score is None:
        score = Score(Form.SQUARE, ORIGIN.sqrt(), roots) if root else Score(Form.POSITIVE, ORIGIN, SLOPE)
    return Profile(EDGES, left, right, ORIGIN, slope, roots, score, reach, unit_cost, clip)


def highest(sample: int, ring: int, price: float, clip: float | None) -> float:
    """sup of min(chord, B) − price·r² over a ring."""
    radii = torch.linspace(float(EDGES[ring]), float(EDGES[ring + 1]), 200_001, dtype=torch.float64)
    share = (radii - EDGES[ring]) / (EDGES[ring + 1] - EDGES[ring])
    chord = LEFT[sample, ring] * (1 - share) + RIGHT[sample, ring] * share
    return float((chord.clamp_max(math.inf if clip is None else clip) - price * radii**2).max())


@pytest.mark.parametrize("clip", [None, 1.2, 0.5, 100.0])
@pytest.mark.parametrize("unit_cost", [1.0, 2.5])
@pytest.mark.parametrize("gamma", [0.05, 0.7, 4.0])
def test_rings_against_a_fine_grid(gamma: float, unit_cost: float, clip: float | None) -> None:
    """The smaller majorant counts, whichever it is, and the price is γ times the unit price."""
    for second in (5.0, 0.0):
        found = profile(second=second, unit_cost=unit_cost, clip=clip).rings(gamma)
        for sample in range(2):
            for ring in range(3):
                truth = highest(sample, ring, gamma * unit_cost, clip)
                assert truth - 1e-9 <= float(found[sample, ring]) <= truth + 1e-7
    swapped = profile(second=-0.25, unit_cost=unit_cost).rings(gamma)
    plain = profile(second=0.0, unit_cost=unit_cost).rings(gamma)
    torch.testing.assert_close(swapped[:, :3], plain[:, :3] - 0.25, rtol=0, atol=1e-7)


@pytest.mark.parametrize("clip", [None, 4.0])
@pytest.mark.parametrize(("gamma", "root"), [(0.05, 0.0), (4.0, 0.0), (0.3, 0.5), (0.26, 0.5), (4.0, 0.5)])
def test_beyond_the_last_edge(gamma: float, root: float, clip: float | None) -> None:
    """ℓ(x₀) + Gr, or (√ℓ(x₀) + αr)², less the price, at all distances of at least 3."""
    unit_cost = 1.5
    found = profile(unit_cost=unit_cost, root=root, clip=clip).rings(gamma)[:, 3]
    radii = 3.0 + torch.linspace(0, 400, 400_001, dtype=torch.float64)
    for sample in range(2):
        heights = ORIGIN[sample] + SLOPE[sample] * radii
        if root:
            heights = (ORIGIN[sample].sqrt() + root * radii) ** 2
        heights = heights.clamp_max(math.inf if clip is None else clip)
        truth = float((heights - gamma * unit_cost * radii**2).max())
        assert float(found[sample]) >= truth - 1e-9
        if clip is None:
            assert float(found[sample]) <= truth + 1e-6
        else:
            assert float(found[sample]) == pytest.approx(clip - gamma * unit_cost * 9, abs=1e-9)


def test_squares_that_outgrow_the_price_have_no_bound() -> None:
    found = profile(root=0.5)
    assert found.rings(0.25)[:, 3].tolist() == [math.inf] * 2
    assert found.lipschitz(0.25).tolist() == [math.inf] * 2
    assert found.bound(found.rings(0.25)).tolist() == [math.inf] * 2
    clipped = profile(root=0.5, clip=4.0)
    assert clipped.lipschitz(0.25).tolist() == [4.0] * 2


def test_rings_without_points_of_the_domain_do_not_count() -> None:
    """A ring counts as soon as it begins within reach."""
    reach = torch.tensor([0.4, 1.0], dtype=torch.float64)
    found, free = profile(reach=reach).rings(0.7), profile().rings(0.7)
    assert found[0, 1:].tolist() == [-math.inf] * 3
    assert found[1, 3] == -math.inf
    assert torch.equal(found[0, :1], free[0, :1])
    assert torch.equal(found[1, :3], free[1, :3])


@pytest.mark.parametrize("clip", [None, 0.9])
def test_the_bound_is_the_largest_of_all_rings(clip: float | None) -> None:
    for gamma in (0.3, 2.0, 1e6):
        made = profile(clip=clip)
        rings, bound = made.rings(gamma), made.bound(made.rings(gamma))
        for sample in range(2):
            start = float(ORIGIN[sample]) if clip is None else min(clip, float(ORIGIN[sample]))
            assert float(bound[sample]) == max(start, *rings[sample].tolist())
    left = profile().bound(profile().rings(1e6))
    assert float(left[1]) == pytest.approx(1.0, abs=1e-6)  # all that is left is ℓ(x₀)


@pytest.mark.parametrize("unit_cost", [1.0, 2.5])
def test_the_lipschitz_rule(unit_cost: float) -> None:
    """sup over r of ℓ(x₀) + Gr − γgr², and of (√ℓ(x₀) + αr)² − γgr², on a fine grid."""
    radii = torch.linspace(0, 60, 600_001, dtype=torch.float64)
    for gamma, root in ((0.3, 0.0), (2.0, 0.0), (0.3, 0.5), (2.0, 0.5)):
        found = profile(unit_cost=unit_cost, root=root).lipschitz(gamma)
        for sample in range(2):
            heights = ORIGIN[sample] + SLOPE[sample] * radii
            if root:
                heights = (ORIGIN[sample].sqrt() + root * radii) ** 2
            truth = float((heights - gamma * unit_cost * radii**2).max())
            assert truth - 1e-9 <= float(found[sample]) <= truth + 1e-6
        clipped = profile(unit_cost=unit_cost, root=root, clip=1.1).lipschitz(gamma)
        torch.testing.assert_close(clipped, found.clamp_max(1.1))


@pytest.mark.parametrize("gamma", [0.3, 2.0])
def test_the_lipschitz_rule_of_a_softplus(gamma: float) -> None:
    """sup over r of ln(1 + eᵛ⁺ᴸʳ) − γgr² on a fine grid, where it is below that of ℓ(x₀) + Gr − γgr²."""
    level, steepness = torch.tensor([-1.5, 0.541], dtype=torch.float64), SLOPE  # ln(1 + eᵛ) ≈ ℓ(x₀)
    score = Score(Form.SOFTPLUS, level, steepness)
    made = profile(unit_cost=2.5, score=score)
    found = made.lipschitz(gamma, softplus_roots(score, gamma * 2.5))
    plain = ORIGIN + SLOPE**2 / (4 * gamma * 2.5)
    radii = torch.linspace(0, 60, 600_001, dtype=torch.float64)
    for sample in range(2):
        scores = level[sample] + steepness[sample] * radii
        truth = float((torch.logaddexp(scores, torch.zeros(()).double()) - gamma * 2.5 * radii**2).max())
        assert truth < float(plain[sample])
        assert truth - 1e-9 <= float(found[sample]) <= truth + 1e-6
    torch.testing.assert_close(made.lipschitz(gamma), plain, rtol=1e-9, atol=0)  # without proposals
