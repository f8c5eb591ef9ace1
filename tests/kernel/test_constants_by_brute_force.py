"""Constants of the softmax family, rings of a profile and stakes, against suprema on fine grids."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.evidence import mark
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Form, Score, Softmax
from certus.kernel.operators import Dense
from certus.kernel.problem import Problem
from certus.kernel.radial import Profile
from certus.kernel.rules import DualBounds, over_labels
from certus.kernel.smoothing import GammaDesign, stake

LOSSES = {
    "cross-entropy": Softmax(),
    "temperature": Softmax(2.0, 4.0, 2.0),
    "margin": Softmax(1.0, 3.0, 3.0, 0.5),
    "smoothing": Softmax(2.0, 4.0, 2.0, 0.0, 0.2),
}
ERRORS = torch.tensor([0.0, 0.1, 0.3, 0.5, 0.7, 1.0], dtype=torch.float64)


def just_above(bound: Tensor, truth: Tensor, room: float = 1e-6) -> bool:
    return bool(((bound >= truth - 1e-12) & (bound <= truth * (1 + room) + 1e-9)).all())


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_mass_that_moves_away_from_the_targets(name: str, classes: int) -> None:
    """g·Σ(p − t)⁺ for the softmax p and smoothed targets t; equal where p is at another label."""
    loss = LOSSES[name]
    share = loss.smoothing
    logits = 3 * torch.randn(500, classes, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.full((classes,), share / classes, dtype=torch.float64)
    targets[0] += 1 - share
    chances = torch.cat([logits.softmax(1), torch.eye(classes, dtype=torch.float64)[1:]])
    mass = loss.slope * (chances - targets).clamp_min(0).sum(1)
    weight = loss.weight(1 - chances[:, 0], classes)
    assert bool((weight >= mass - 1e-12).all())
    assert float(weight[-1]) == pytest.approx(float(mass[-1]))
    if share == 0:
        assert torch.allclose(weight, mass)


@pytest.mark.parametrize("name", LOSSES)
def test_variances_and_curvatures(name: str) -> None:
    """Of points on an interval of length 1, mass 1 − q at one of them; and with the same q in both terms."""
    loss, grid = LOSSES[name], torch.linspace(0, 1, 10_001, dtype=torch.float64)
    inside = grid <= ERRORS.unsqueeze(1)
    spread = torch.where(inside, grid * (1 - grid), 0.0).amax(1) * loss.spread
    assert just_above(loss.variance(ERRORS), spread)
    for curvature, apart in ((0.0, 1.3), (0.4, 1.3), (5.0, 0.7), (2.0, 0.0)):
        numbers = (torch.full_like(ERRORS, curvature), torch.full_like(ERRORS, apart))
        bound = loss.combine(*numbers, ERRORS, 3)
        assert just_above(bound, loss.weight(ERRORS, 3) * curvature + spread * apart**2)
        if loss.smoothing == 0:
            both = loss.slope * curvature * grid + loss.spread * apart**2 * grid * (1 - grid)
            truth = torch.where(inside, both, 0.0).amax(1)
            assert just_above(loss.combine(*numbers, ERRORS, 2), truth)


@pytest.mark.parametrize("name", LOSSES)
def test_the_corrected_constant(name: str) -> None:
    """max over 0 ≤ u ≤ ½ of g√(2 − u)β + h·u·α²."""
    loss, u = LOSSES[name], torch.linspace(0, 0.5, 10_001, dtype=torch.float64)
    for curvature, length in ((0.0, 1.3), (0.4, 1.3), (5.0, 0.7), (3.0, 1.1), (2.0, 0.0)):
        truth = (loss.slope * (2 - u).sqrt() * curvature + loss.spread * u * length**2).max()
        numbers = (torch.tensor([each], dtype=torch.float64) for each in (curvature, length))
        assert just_above(loss.corrected(*numbers), truth)


@pytest.mark.parametrize("name", LOSSES)
def test_the_probability_of_other_classes(name: str) -> None:
    loss = LOSSES[name]
    margins = 2 * torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    own = torch.arange(4) == torch.arange(50).unsqueeze(1) % 4
    powers = torch.where(own, 1.0, (loss.scale * (margins + loss.offset)).exp())
    truth = 1 - 1 / powers.sum(1)
    error = loss.error(margins, own)
    assert just_above(error, truth)
    assert bool((error <= 1).all())
    assert float(loss.error(torch.full((1, 4), 900.0).double(), own[:1])) == 1.0


def profile(root: float, slope: float, clip: float | None = None, reach: float = math.inf) -> Profile:
    """Two rings of two majorants around one sample, whose loss there is 0.5."""
    one = torch.ones(1, dtype=torch.float64)
    left = torch.tensor([[[0.5, 1.4]], [[0.6, 1.2]]], dtype=torch.float64)
    right = torch.tensor([[[1.4, 3.0]], [[1.2, 3.5]]], dtype=torch.float64)
    edges = torch.tensor([0.0, 0.5, 1.5], dtype=torch.float64)
    score = Score(Form.POSITIVE, 0.5 * one, slope * one)
    return Profile(edges, left, right, 0.5 * one, slope * one, root * one, score, reach * one, 0.7, clip)


@pytest.mark.parametrize("gamma", [0.2, 1.5, 4.0, 60.0])
@pytest.mark.parametrize("clip", [None, 1.3, 2.5])
def test_suprema_on_rings(clip: float | None, gamma: float) -> None:
    """Of the smaller chord, for each majorant, less 0.7γr²."""
    given, price = profile(0.0, 2.0, clip), 0.7 * gamma
    shares = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    for ring in (0, 1):
        inner, outer = given.edges[ring], given.edges[ring + 1]
        chords = given.left[:, 0, ring, None] * (1 - shares) + given.right[:, 0, ring, None] * shares
        heights = chords if clip is None else chords.clamp_max(clip)
        truth = (heights - price * (inner + shares * (outer - inner)) ** 2).amax(1).amin()
        bound = given.rings(gamma)[0, ring]
        # The grid misses the corner of a clipped chord by up to a step.
        assert truth - 1e-12 <= bound <= truth + (1e-6 if clip is None else 2e-4)
    whole = given.bound(given.rings(gamma))
    assert torch.equal(whole, torch.maximum(given.rings(gamma).amax(1), torch.tensor([0.5]).double()))


@pytest.mark.parametrize(("root", "slope"), [(0.0, 2.0), (0.0, 0.1), (0.6, 9.0), (0.1, 9.0)])
@pytest.mark.parametrize("gamma", [0.2, 0.55, 1.5, 60.0])
def test_suprema_beyond_the_last_ring(root: float, slope: float, gamma: float) -> None:
    """ℓ(x₀) + Gr, or (√ℓ(x₀) + αr)² for squares, less 0.7γr², from r = 1.5 on."""
    price, far = 0.7 * gamma, np.linspace(1.5, 200, 200_001)
    heights = (math.sqrt(0.5) + root * far) ** 2 if root else 0.5 + slope * far
    truth, bound = float((heights - price * far**2).max()), float(profile(root, slope).rings(gamma)[0, -1])
    if root**2 >= price:
        assert bound == math.inf
    else:
        assert truth - 1e-12 <= bound <= truth + 1e-5 * (1 + max(heights[0], price * 1.5**2))
    clipped = float(profile(root, slope, clip=0.8).rings(gamma)[0, -1])
    assert clipped == pytest.approx(0.8 - price * 1.5**2)


def test_rings_out_of_reach_do_not_count() -> None:
    rings = profile(0.0, 2.0, reach=0.7).rings(0.3)[0]
    assert torch.isinf(rings).tolist() == [False, False, True]
    assert rings[-1] == -math.inf


@pytest.mark.parametrize("price", [0.0, 0.3, 5.0])
def test_the_price_of_a_label(price: float) -> None:
    graph = Graph((Node((), (2,)), Node((0,), (2,), Dense(torch.eye(2).double(), None))))
    cost, points, labels = (
        Lp(shape=(2,), label_price=price),
        torch.zeros(3, 2).double(),
        torch.tensor([0, 1, 0]),
    )
    own, other = torch.tensor([[1.0, 2.0, 3.0], [2.0, 2.5, 0.0]]).double()
    parts = [
        mark(DualBounds(2.0, bound, torch.full((3,), rule), problem=problem))
        for rule, (bound, problem) in enumerate(
            (bound, Problem.of(graph, Softmax(), cost, Domain(), (points, targets)))
            for bound, targets in ((own, labels), (other, 1 - labels))
        )
    ]
    whole = over_labels(parts[0], parts[1:])
    assert just_above(whole.bound, torch.maximum(own, other - 2.0 * price), 1e-9)
    assert torch.equal(whole.rule, (other - 2.0 * price > own).long())


def test_stakes_by_hand() -> None:
    """c^γ_K − βc⁰_K from its least value on, as a number between 0 and its range."""
    first, second = np.array([0.0, 0.4, 1.0]), np.array([0.3, 0.2, 0.9])
    designs = [GammaDesign(2.0, first, 0.75), GammaDesign(1.0, second, 0.25, slope=0.5)]
    values = torch.tensor([[0.0, 0.4, 1.0], [0.3, 0.2, 0.9]], dtype=torch.float64)
    for index, left in ((0, first), (1, second - 0.5 * first)):
        numbers, ceiling, level, low, _ = stake(designs, values, 0.1, index)
        assert numbers.numpy() == pytest.approx(left - left.min(), abs=1e-8)
        assert bool(((numbers >= 0) & (numbers <= ceiling)).all())
        assert low <= left.min()
        assert low + ceiling >= left.max()
        assert ceiling == pytest.approx(left.max() - left.min(), abs=1e-8)
        assert designs[index].share * 0.1 * (1 - 1e-9) < level <= designs[index].share * 0.1
