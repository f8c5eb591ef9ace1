"""How far margins rise with the distance, and how near an error can be: against the functions themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.majorants import Constants, Parabolas
from certus.kernel.operators import Dense
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import _NOTHING, _ends, _growths, rival_radii

EDGES = torch.tensor([0.0, 0.3, 1.0, 4.0], dtype=torch.float64)
INNER, OUTER = EDGES[:-1], EDGES[1:]


def draw(*shape: int, seed: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_rise_is_one_of_two_functions_and_the_smaller_at_the_outer_edge() -> None:
    slope, most, bend = draw(20, seed=0), 2 * draw(20, seed=1), 3 * draw(20, seed=2) - 0.5
    low, high = _ends(_growths(slope, bend, most), INNER, OUTER)
    picked = set()
    for index in range(20):
        steep, upper, curved = float(slope[index]), float(most[index]), max(0.0, float(bend[index]))
        functions: list[Callable[[float], float]] = [
            lambda r, s=steep, c=curved: s * r + c * r**2 / 2,  # type: ignore[misc]
            lambda r, m=upper: m * r,  # type: ignore[misc]
        ]
        for ring in range(3):
            inner, outer = float(INNER[ring]), float(OUTER[ring])
            which = min((0, 1), key=lambda k: functions[k](outer))
            picked.add(which)
            ends = [float(low[index, ring]), float(high[index, ring])]
            assert ends == pytest.approx([functions[which](inner), functions[which](outer)], rel=1e-8)
            assert ends[0] >= functions[which](inner)
            assert ends[1] >= functions[which](outer)
    assert picked == {0, 1}


def parabolas(rise: Tensor, bend: Tensor) -> Parabolas:
    return Parabolas(rise, bend, torch.full(rise.shape[:2], math.inf, dtype=torch.float64))


def test_a_parabola_takes_over_where_it_is_smaller_at_the_outer_edge() -> None:
    rise, bend, most = 0.3 * draw(1, 4, 3, seed=3), 2 * draw(1, 4, 3, seed=4), 0.5 + draw(1, 4, 1, seed=5)
    low, high = _ends(
        [(_NOTHING, most[..., None], _NOTHING), (rise[..., None], _NOTHING, bend[..., None])], INNER, OUTER
    )
    replaced = 0
    for k in range(4):
        for ring in range(3):
            inner, outer = float(INNER[ring]), float(OUTER[ring])
            ends = [rise[0, k] + bend[0, k] * r**2 / 2 for r in (inner, outer)]
            pair = int(ends[1].argmin())
            wanted = (float(most[0, k, 0]) * inner, float(most[0, k, 0]) * outer)
            if float(ends[1][pair]) < wanted[1]:
                wanted, replaced = (float(ends[0][pair]), float(ends[1][pair])), replaced + 1
            assert (float(low[0, k, ring]), float(high[0, k, ring])) == pytest.approx(wanted, rel=1e-8)
            assert float(low[0, k, ring]) >= wanted[0]
            assert float(high[0, k, ring]) >= wanted[1]
    assert 0 < replaced < 12


def test_slopes_whose_squares_vanish_count() -> None:
    """m(r) = −1 + 10⁻²⁰⁰r is an error from r = 10²⁰⁰ on, although the square of its slope is 0 in float64."""
    problem, tiny = labelled(torch.zeros(1, dtype=torch.int64), 2, Domain()), 1e-200
    one = torch.ones(1, dtype=torch.float64)
    margins = torch.tensor([[0.0, -1.0]], dtype=torch.float64)
    steep = torch.tensor([[0.0, tiny]], dtype=torch.float64)
    values = Values(one, one, one, one, margins, steep, one)
    space = Constants(None, torch.full_like(steep, math.inf), torch.zeros_like(steep), one, one, one)
    assert 0.99 / tiny <= float(rival_radii(problem, values, [space]).amin(1)) <= 1 / tiny


def root(function: Callable[[float], float]) -> float:
    """Where an increasing function, negative at 0, becomes 0; ∞ if it does not."""
    return math.inf if function(1e9) < 0 else float(brentq(function, 0.0, 1e9, xtol=1e-14))


def labelled(labels: Tensor, classes: int, domain: Domain) -> Problem:
    """A problem about samples at 0, of which only labels and reach count."""
    layer = Dense(torch.zeros(classes, 1, dtype=torch.float64), None)
    graph = Graph((Node((), (1,)), Node((0,), (classes,), layer)))
    inputs = torch.zeros(len(labels), 1, dtype=torch.float64)
    return Problem.of(graph, Softmax(), Lp(shape=(1,)), domain, (inputs, labels))


@pytest.mark.parametrize("with_parabolas", [False, True])
def test_radii_are_the_roots_of_what_margins_can_rise_to(with_parabolas: bool) -> None:
    """Every class must stay below 0, on all of space or on a ball, at whose edge its constants end."""
    count, classes = 12, 4
    margins, steep = -0.2 - draw(count, classes, seed=7), 0.2 + draw(count, classes, seed=8)
    labels = torch.arange(count) % classes
    problem = labelled(labels, classes, Domain())
    margins[problem.own] = 0.0
    margins[0, 1] = 0.3  # an error already
    unused = torch.zeros(count, dtype=torch.float64)
    values = Values(unused, unused, unused, unused, margins, steep, unused)
    rise, bend = 0.5 * draw(count, classes, 2, seed=9), draw(count, classes, 2, seed=10)
    lipschitz, curvature = 0.2 + draw(count, classes, seed=11), draw(count, classes, seed=12) - 0.2
    near = Constants(2, lipschitz, curvature, unused, unused, unused)
    lipschitz, curvature = 0.5 + draw(count, classes, seed=13), 3 * draw(count, classes, seed=14)
    extra = (parabolas(rise, bend),) if with_parabolas else ()
    space = Constants(None, lipschitz, curvature, unused, unused, unused, extra)
    found = rival_radii(problem, values, [near, space], EDGES).amin(1)
    limits = set()
    for i in range(count):
        rivals = []
        for k in range(classes):
            if k == labels[i]:
                continue
            radii = []
            for ball in (near, space):
                start, g, most = float(margins[i, k]), float(steep[i, k]), float(ball.margin_lipschitz[i, k])
                kappa = max(0.0, float(ball.margin_curvature[i, k]))
                if start >= 0:
                    radii.append(0.0)
                    continue

                def e(
                    r: float, m: float = start, g: float = g, c: float = kappa, most: float = most
                ) -> float:
                    return m + min(most * r, g * r + c * r**2 / 2)

                roots = [root(e)]
                if ball.parabolas:
                    for pair in range(2):
                        left = start + float(rise[i, k, pair])
                        if left < 0:
                            roots.append(math.sqrt(-2 * left / float(bend[i, k, pair])))
                radius = max(roots)
                if ball.edge is not None:
                    limits.add(radius > float(EDGES[2]))
                    radius = min(radius, float(EDGES[2]))
                radii.append(radius)
            rivals.append(max(radii))  # each rival by the set that is best for it
        best = min(rivals)
        assert float(found[i]) == pytest.approx(best, rel=1e-7, abs=1e-12)
        assert float(found[i]) <= best
    assert limits == {False, True}
    assert float(found[0]) == 0
    reach = 0.5 * (float(found[1:].min()) + float(found[1:].max()))
    edge = torch.tensor(reach, dtype=torch.float64)
    boxed = rival_radii(labelled(labels, classes, Domain(-edge, edge)), values, [near, space], EDGES).amin(1)
    assert torch.equal(boxed, torch.where(found > reach, math.inf, found))  # beyond Z there is no error
    assert 0 < int(torch.isinf(boxed).sum()) < count


def test_bounds_on_a_ball_are_never_worse_than_those_around_it() -> None:
    def some(edge: int | None, seed: int) -> Constants:
        lipschitz, curvature = draw(5, 3, seed=seed), draw(5, 3, seed=seed + 1)
        slope, bend, root = (draw(5, seed=seed + at) for at in (2, 3, 4))
        extra = parabolas(draw(5, 3, 2, seed=seed + 5), draw(5, 3, 2, seed=seed + 6))
        return Constants(edge, lipschitz, curvature, slope, bend, root, (extra,))

    ball, space = some(2, 20), some(None, 30)
    found = ball.within(space)
    assert found.edge == 2
    for name in ("margin_lipschitz", "margin_curvature", "slope", "curvature", "root"):
        mine, other, both = (getattr(each, name) for each in (ball, space, found))
        assert torch.equal(both, torch.where(mine < other, mine, other))
    assert found.parabolas is space.parabolas  # which hold everywhere
