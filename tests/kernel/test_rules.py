"""Bounds on φ_γ and radii: attacks on them, with clever and with foolish proposals, and their tightness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import pytest
import torch
from torch import Tensor, nn

from certus.certificates.dual_values import climb
from certus.certificates.engine import make_grid
from certus.certificates.error_costs import error_candidates, nearest_errors
from certus.certificates.problem import Problem
from certus.certificates.proposals import softplus_roots, tangent_points, with_parabolas
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Box, Domain, Unbounded
from certus.inner import default_maximizer
from certus.kernel import problem as trusted
from certus.kernel.costs import Lp
from certus.kernel.majorants import Constants, Tangents, constants, hidden_layer, parabolas
from certus.kernel.passes import Refused
from certus.kernel.problem import Values
from certus.kernel.radial import Neighborhoods, neighborhoods, rival_radii
from certus.kernel.rules import Proposal, Rule, bounds_by_rule
from certus.layers import LogCosh, Residual
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin, SquaredError
from tests.certificates.problems import bounded

GAMMAS = (0.05, 0.3, 1.0, 3.0, 20.0)


def _dense(
    unit: Callable[[], nn.Module] = nn.Tanh, *, classes: int = 3, inputs: int = 4, width: int = 8
) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, width), unit(), nn.Linear(width, classes))


def _deep() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ELU(), nn.Linear(8, 7), nn.Softplus(), nn.Linear(7, 3))


def _residual() -> nn.Module:
    branch = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Residual(branch), nn.Linear(6, 3))


def _convolutional() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ELU(), nn.Conv2d(3, 4, 3, stride=2), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(16, 3)),
    )


CROSS_ENTROPY, L2, EVERYWHERE = CrossEntropy(), SquaredL2(), Unbounded()


@dataclass(frozen=True, eq=False)
class Case:
    network: Callable[[], nn.Module]
    criterion: Criterion = CROSS_ENTROPY
    cost: Cost = L2
    domain: Domain = EVERYWHERE
    shape: tuple[int, ...] = (4,)
    classes: int | None = 3
    clip: float | None = None


MASK = torch.tensor([True, False, True, True])
MATRIX = torch.eye(4) + 0.3 * torch.ones(4, 4) + torch.diag(torch.linspace(0, 2, 4))
CASES: dict[str, Case] = {
    "dense": Case(_dense),
    "deep": Case(_deep),
    "residual": Case(_residual),
    "convolutional": Case(_convolutional, shape=(2, 5, 5)),
    "convolutional, channels": Case(
        _convolutional, shape=(2, 5, 5), cost=WeightedL2(torch.tensor([1.0, 3.0]).reshape(2, 1, 1))
    ),
    "convolutional, pixels": Case(
        _convolutional, shape=(2, 5, 5), cost=WeightedL2(torch.linspace(0.5, 2, 50).reshape(2, 5, 5))
    ),
    "linear": Case(lambda: nn.Linear(4, 3)),
    "relu": Case(lambda: _dense(nn.ReLU)),
    "log cosh": Case(lambda: _dense(lambda: LogCosh(3.0))),
    "log cosh, wide": Case(lambda: _dense(lambda: LogCosh(2.0), inputs=12, width=5), shape=(12,)),
    "log cosh, weighted": Case(
        lambda: _dense(lambda: LogCosh(3.0)), cost=WeightedL2(torch.linspace(0.5, 3, 4))
    ),
    "log cosh, box": Case(lambda: _dense(lambda: LogCosh(3.0)), domain=Box(-1, 1)),
    "log cosh, masked": Case(lambda: _dense(lambda: LogCosh(3.0)), cost=Masked(SquaredL2(), MASK)),
    "masked": Case(_dense, cost=Masked(SquaredL2(), MASK)),
    "weighted": Case(_deep, cost=WeightedL2(torch.linspace(0.5, 3, 4))),
    "full matrix": Case(_dense, cost=Mahalanobis(MATRIX)),
    "full matrix, masked": Case(_dense, cost=Masked(Mahalanobis(MATRIX), MASK)),
    "full matrix, box": Case(_dense, cost=Mahalanobis(MATRIX), domain=Box(-1, 1)),
    "L1.5": Case(_dense, cost=SquaredLp(1.5)),
    "L1": Case(_dense, cost=SquaredLp(1.0)),
    "L1.5, masked, box": Case(_dense, cost=Masked(SquaredLp(1.5), MASK), domain=Box(-1, 1)),
    "sup": Case(_dense, cost=SquaredSup()),
    "sup, masked": Case(_dense, cost=Masked(SquaredSup(), MASK)),
    "divergence": Case(_dense, cost=Bregman(lambda z: (z**2 + z**4 / 9).flatten(1).sum(1), 2.0)),
    "box": Case(_dense, domain=Box(-1, 1)),
    "weighted, box": Case(_dense, cost=WeightedL2(torch.linspace(0.5, 3, 4)), domain=Box(-1, 1)),
    "ball": Case(_dense, domain=Ball(0.0, 2.0)),
    "weighted, ball": Case(_dense, cost=WeightedL2(torch.linspace(0.5, 3, 4)), domain=Ball(0.0, 2.0)),
    "regression": Case(lambda: _dense(classes=2), SquaredError(), classes=None),
    "regression, box": Case(lambda: _dense(classes=1), SquaredError(), classes=None, domain=Box(-1, 1)),
    "linear regression": Case(lambda: nn.Linear(4, 1), SquaredError(), classes=None),
    "regression, clipped": Case(lambda: _dense(classes=1), SquaredError(), classes=None, clip=2.0),
    "label smoothing": Case(_dense, CrossEntropy(label_smoothing=0.1)),
    "temperature": Case(_dense, CrossEntropy(temperature=0.5)),
    "margin": Case(_dense, SmoothMargin(0.5, 3.0)),
    "logistic": Case(lambda: _dense(classes=1), Logistic(), classes=2),
    "linear logistic": Case(lambda: nn.Linear(4, 1), Logistic(), classes=2),
    "clipped": Case(_dense, clip=1.5),
    "many classes": Case(lambda: _dense(classes=40), classes=40),
    "many inputs": Case(lambda: _dense(inputs=1100, width=5), shape=(1100,)),
}


@lru_cache
def problem_of(name: str) -> Problem:
    """Seven samples, three of them on a face of the box, and the first four classified rightly."""
    case = CASES[name]
    torch.manual_seed(len(name))
    model = case.network().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    inputs = torch.rand(7, *case.shape, dtype=torch.float64) * 2 - 1
    inputs.flatten(1)[:3, 0] = 1.0
    targets = torch.randn(7, 2 if name == "regression" else 1, dtype=torch.float64)
    if case.classes is not None:
        targets = torch.randint(case.classes, (7,))
        with torch.no_grad():
            outputs = model(inputs)
        targets[:4] = (outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long())[:4]
    return Problem.of(model, (inputs, targets), case.criterion, case.cost, case.domain)


def climbed(problem: Problem, gamma: float) -> Tensor:
    return climb(
        problem, gamma, default_maximizer(problem.cost, problem.domain, tolerance=1e-7, max_gradients=60)
    )


@lru_cache
def with_all_proposals(name: str) -> Neighborhoods:
    """Bounds with balls, and parabolas at the samples and at tangent points."""
    problem = problem_of(name)
    grid = make_grid(problem, [0.01, 1.0], GAMMAS, 3)
    return bounded(problem, grid, CASES[name].clip, tangent_points(problem))


def attacked(problem: Problem, gamma: float, generator: torch.Generator, every: int) -> list[Tensor]:
    """Points of Z: where ascents lead from the samples, points around those, and points of all distances."""
    first = climbed(problem, gamma)
    points = [first]
    for turn in sorted({1, 2, *range(59, -1, -every)}):
        spread = torch.randn(first.shape, dtype=torch.float64, generator=generator)
        around, size = (first, 0.5**turn) if turn in (1, 2) else (problem.inputs, 10 ** (turn / 30 - 1))
        moved = problem.cost.restore_frozen(around + size * spread, problem.inputs)
        points.append(problem.domain.project(moved))
    return points


QUICK_AND_FULL = [10, pytest.param(1, marks=pytest.mark.soak)]
"""Of 60 distances, each tenth, and all of them."""

KINDS = [pytest.param(name, marks=pytest.mark.soak if "," in name else ()) for name in CASES]
"""Variants of a case, whose names have a comma, wait for the soak."""


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("every", QUICK_AND_FULL)
@pytest.mark.parametrize("name", KINDS)
def test_attacks_never_exceed(name: str, every: int) -> None:
    """No point is above a bound, and no error within a radius; with foolish proposals, too."""
    problem, case = problem_of(name), CASES[name]
    kernel, values = problem.kernel, Values.at(problem.kernel)
    generator = torch.Generator().manual_seed(1)
    clever = with_all_proposals(name)
    edges = torch.tensor([0.0, 0.3, 0.31, 5.0], dtype=torch.float64)
    foolish = neighborhoods(kernel, values, _foolish(kernel, values, generator), edges, [2], case.clip)
    for gamma in GAMMAS if every == 1 else GAMMAS[1::2]:
        points = attacked(problem, gamma, generator, every)
        heights = []
        for each in points:
            loss, cost = kernel.losses(each), kernel.cost.value(each, problem.inputs)
            heights.append((loss if case.clip is None else loss.clamp_max(case.clip)) - gamma * cost)
        highest = torch.stack(heights).amax(0)
        roots = softplus_roots(clever.profile.score, gamma * kernel.unit_cost)
        odd = torch.rand(len(kernel), generator=generator).double() * 5
        for each in points[:3]:
            proposal = Proposal.at(kernel, gamma, each)
            for around, ends in ((clever, roots), (foolish, odd)):
                for rule, bound in bounds_by_rule(around, proposal, ends).items():
                    assert bool((bound >= highest - 1e-9).all()), (gamma, rule)


CLASSIFIERS = [
    pytest.param(
        name,
        marks=()
        if name
        in (
            "deep",
            "linear",
            "convolutional",
            "log cosh",
            "masked",
            "L1.5",
            "sup",
            "full matrix",
            "box",
            "logistic",
            "many classes",
        )
        else pytest.mark.soak,
    )
    for name, case in CASES.items()
    if case.classes is not None
]


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("every", QUICK_AND_FULL)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_no_error_is_found_within_a_radius(name: str, every: int) -> None:
    """By minimum-norm attacks and beyond tangent points."""
    problem = problem_of(name)
    kernel, values = problem.kernel, Values.at(problem.kernel)
    generator = torch.Generator().manual_seed(1)
    candidates = [*error_candidates(problem, 5.0, 30 if every == 1 else 8)]
    candidates += [(None, points) for points in attacked(problem, 1.0, generator, every)]
    distances = (nearest_errors(problem, candidates)[0].cost / kernel.unit_cost).sqrt()
    clever = with_all_proposals(name)
    edges = torch.tensor([0.0, 0.01, 0.3, 5.0], dtype=torch.float64)
    foolish = neighborhoods(kernel, values, _foolish(kernel, values, generator), edges, [1, 2])
    assert int(torch.isfinite(distances).sum()) >= 2
    for around in (clever, foolish):
        assert around.radius is not None
        assert bool((around.radius <= distances).all())
    # Bounds on balls only add to those that hold everywhere.
    everywhere = with_parabolas(kernel, values, tangent_points(problem))
    assert clever.radius is not None
    assert bool((rival_radii(kernel, values, [everywhere]).amin(1) <= clever.radius).all())


@pytest.mark.parametrize(
    "cost", [SquaredL2(), SquaredSup(), Masked(SquaredL2(), MASK)], ids=["L2", "sup", "masked"]
)
def test_beyond_the_reach_of_the_domain_is_no_error(cost: Cost) -> None:
    """A box that holds no error, around samples whose nearest ones are not much farther."""
    layer = nn.Linear(4, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
    data = (torch.full((1, 4), 0.5, dtype=torch.float64), torch.tensor([0]))
    for lowest, certain in ((0.1, True), (-0.9, False)):
        made = Problem.of(nn.Sequential(layer), data, CROSS_ENTROPY, cost, Box(lowest, 0.5))
        radius = bounded(made, make_grid(made, [0.01], GAMMAS, 0)).radius
        assert radius is not None
        assert bool(torch.isinf(radius)) == certain


def test_a_higher_peak_outside_of_the_ball_counts() -> None:
    """f = ℓ − γc is concave around the sample, with its maximum there; beyond the ball the loss jumps."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2, bias=False)).double()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), ([[5.0]], [-10.0], [[0.0], [10.0]]), strict=True):
            parameter.copy_(torch.tensor(value))
    data = (torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0]))
    kernel = Problem.of(model, data, CROSS_ENTROPY, L2, EVERYWHERE).kernel
    values, edges = Values.at(kernel), torch.tensor([0.0, 0.5, 4.0, 6.0], dtype=torch.float64)
    around = neighborhoods(kernel, values, constants(kernel, values), edges, [1])
    places = torch.linspace(-5, 5, 100_001, dtype=torch.float64).unsqueeze(1)
    with torch.no_grad():
        losses = CROSS_ENTROPY(model(places), torch.zeros(len(places), dtype=torch.long))
    for gamma in (0.3, 0.5, 1.0):
        truth = float((losses - gamma * places[:, 0] ** 2).max())
        assert truth > 1 + float(values.loss)
        bounds = bounds_by_rule(around, Proposal.at(kernel, gamma, data[0]))
        assert truth <= float(bounds[Rule.LOCAL]) < math.inf
        assert truth <= float(bounds[Rule.RADIAL])


def test_a_gradient_that_cancels_still_counts() -> None:
    """(2²⁷ + 1)(2²⁷ − 1) − 2²⁷·2²⁷ = −1 is the slope of the margin, which float64 may compute as 0."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    rows = ([[2.0**27 - 1], [2.0**27]], [[2.0**27 + 1, -(2.0**27)], [0.0, 0.0]])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), rows, strict=True):
            parameter.copy_(torch.tensor(value, dtype=torch.float64))
    data, gamma = (torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0])), 1e4
    problem = Problem.of(model, data, CROSS_ENTROPY, L2, EVERYWHERE)
    around = bounded(problem, make_grid(problem, [0.01], (gamma,), 0))
    moves = torch.linspace(0, 1e-3, 100_001, dtype=torch.float64)
    truth = float((torch.log1p(moves.exp()) - gamma * moves**2).max())
    assert truth > math.log(2) + 1e-6
    for rule, bound in bounds_by_rule(around, Proposal.at(problem.kernel, gamma, data[0])).items():
        assert float(bound) >= truth, rule
        assert rule is not Rule.CONCAVE or math.isfinite(float(bound))


def _foolish(problem: trusted.Problem, values: Values, generator: torch.Generator) -> Constants:
    """Parabolas at random points with random multipliers."""
    start = bounds = constants(problem, values)
    if problem.classes is None or not isinstance(problem.cost, Lp) or problem.cost.p != 2:
        return bounds
    sample, rival = (~problem.own).nonzero().unbind(1)
    moves = torch.randn(problem.inputs[sample].shape, dtype=torch.float64, generator=generator)
    factors = 1 + torch.rand(4, generator=generator).double()
    distances = torch.rand(len(sample), 4, generator=generator).double() * 3 + 1e-3
    points = problem.inputs[sample] + moves
    for shaped in (False, True) if hidden_layer(problem) is not None else (False,):
        tangents = Tangents(sample, rival, points, factors, distances, shaped)
        bounds = bounds.beside(parabolas(problem, values, start, tangents))
    with pytest.raises(Refused, match="everywhere"):
        parabolas(problem, values, bounds, tangents)
    return bounds


_FAR_FROM_ATTAINED = {"relu": 2e-2, "clipped": 2e-2, "regression, clipped": 1e-6}
"""Kinks have no curvature, and clipped losses none that is used at their corner."""


@pytest.mark.parametrize("name", KINDS)
def test_bounds_meet_ascents_where_the_problem_is_concave(name: str) -> None:
    """At a large γ, and at one for which the curvature everywhere is just enough."""
    problem, case = problem_of(name), CASES[name]
    kernel, around = problem.kernel, with_all_proposals(name)
    convexity, curvature = kernel.cost.strong_convexity, float(around.balls[-1].curvature.max())
    room = _FAR_FROM_ATTAINED.get(name, 1e-6 if convexity > 0 else 1e-3)
    gammas = {20.0: [rule for rule in Rule if rule not in (Rule.ENSEMBLE, Rule.ROWS)]}
    if convexity > 0 and math.isfinite(curvature) and case.clip is None:
        gammas[1.5 * curvature / convexity] = [Rule.CONCAVE]
    for gamma, rules in gammas.items():
        proposal = Proposal.at(kernel, gamma, climbed(problem, gamma))
        attained = proposal.loss if case.clip is None else proposal.loss.clamp_max(case.clip)
        attained = attained - gamma * proposal.cost
        roots = softplus_roots(around.profile.score, gamma * kernel.unit_cost)
        bounds = bounds_by_rule(around, proposal, roots)
        assert bool((torch.stack([bounds[rule] for rule in rules]).amin(0) <= attained + room).all()), gamma


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e200])
def test_proposals_that_are_no_numbers_prove_nothing(number: float) -> None:
    """Not at the samples that they are for; the others are unharmed."""
    problem = problem_of("log cosh")
    kernel, values = problem.kernel, Values.at(problem.kernel)
    around = with_all_proposals("log cosh")
    points, roots = climbed(problem, 20.0), softplus_roots(around.profile.score, 20.0)
    assert roots is not None
    proven = bounds_by_rule(around, Proposal.at(kernel, 20.0, points), roots)
    points[2], roots[2] = number, number
    bounds = bounds_by_rule(around, Proposal.at(kernel, 20.0, points), roots)
    others = torch.arange(7) != 2
    for rule in bounds:
        assert bool((bounds[rule] >= proven[rule] - 1e-9)[2])
        assert torch.allclose(bounds[rule][others], proven[rule][others])
    assert bool((bounds[Rule.CONCAVE] == math.inf)[2])
    sample, rival = (~kernel.own).nonzero().unbind(1)
    places = kernel.inputs[sample]
    places[sample == 2] = number
    factors, distances = torch.full((1,), 1.5).double(), torch.ones(len(sample), 1).double()
    for shaped in (False, True):
        tangents = Tangents(sample, rival, places, factors, distances, shaped)
        found = parabolas(kernel, values, constants(kernel, values), tangents)
        assert bool((found.rise == math.inf)[2].all())
        assert bool((found.coefficient == math.inf)[2].all())
        assert int(torch.isfinite(found.rise).sum()) == 6 * 2


def test_proposals_outside_of_the_theorems_are_refused() -> None:
    problem = problem_of("dense")
    kernel, values = problem.kernel, Values.at(problem.kernel)
    start = constants(kernel, values)
    one = torch.ones(1, dtype=torch.float64)
    right = Tangents(torch.tensor([0]), (kernel.targets[:1] + 1) % 3, kernel.inputs[:1], 2 * one, one[None])
    parabolas(kernel, values, start, right)
    for factor in (1.0, 0.5, -2.0, math.nan):
        with pytest.raises(Refused, match="factors"):
            parabolas(kernel, values, start, replace(right, factors=factor * one))
    for distance in (0.0, -1.0, math.nan):
        with pytest.raises(Refused, match="distances"):
            parabolas(kernel, values, start, replace(right, distances=distance * one[None]))
    with pytest.raises(Refused, match="no quadratic form for this network"):
        parabolas(kernel, values, start, replace(right, shaped=True))
    with pytest.raises(Refused, match="everywhere"):
        parabolas(kernel, values, constants(kernel, values, 0.1, 1), right)
    for name in ("L1.5", "sup", "full matrix", "divergence"):
        other = problem_of(name).kernel
        there = Values.at(other)
        with pytest.raises(Refused, match="no parabolas for this norm"):
            parabolas(other, there, constants(other, there), right)
    edges = ([0.0], [0.1, 1.0], [0.0, 1.0, 1.0], [0.0, 2.0, 1.0], [0.0, math.inf], [0.0, math.nan])
    for ends in edges:
        with pytest.raises(Refused, match="increase from 0"):
            neighborhoods(kernel, values, start, torch.tensor(ends, dtype=torch.float64), [])
    for ball in (0, 3, -1):
        with pytest.raises(Refused, match="balls"):
            neighborhoods(kernel, values, start, torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64), [ball])


def test_two_parabolas_of_one_margin_are_refused() -> None:
    """The rise of one beside the coefficient of the other would bound nothing."""
    kernel = problem_of("dense").kernel
    values, same = Values.at(kernel), torch.tensor([0, 0])
    numbers = torch.full((2, 1), 2.0, dtype=torch.float64)
    tangents = Tangents(same, (kernel.targets[same] + 1) % 3, kernel.inputs[:2], numbers[0], numbers)
    with pytest.raises(Refused):
        parabolas(kernel, values, constants(kernel, values), tangents)


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan])
def test_a_penalty_that_is_not_positive_proves_nothing(gamma: float) -> None:
    """Refused, or every bound is infinite."""
    problem = problem_of("dense")
    around = with_all_proposals("dense")
    try:
        bounds = bounds_by_rule(around, Proposal.at(problem.kernel, gamma, problem.inputs))
    except Refused:
        return
    for rule, bound in bounds.items():
        assert bool((bound == math.inf).all()), rule


def test_bounds_on_a_ball_do_not_hold_everywhere() -> None:
    kernel = problem_of("dense").kernel
    values, edges = Values.at(kernel), torch.tensor([0.0, 0.1, 0.2], dtype=torch.float64)
    with pytest.raises(Refused):
        neighborhoods(kernel, values, constants(kernel, values, 0.2, 2), edges, [])
