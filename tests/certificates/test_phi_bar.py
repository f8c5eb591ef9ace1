"""φ̄ ≥ φ: every rule by itself, against brute force in the plane, for every cost and at every γ."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import Box, CrossEntropy
from certus.certificates.dual_values import climb
from certus.certificates.engine import make_grid
from certus.certificates.problem import Problem
from certus.certificates.proposals import softplus_roots
from certus.costs import Cost
from certus.domains import Domain
from certus.inner import BarzilaiBorwein
from certus.kernel.radial import Neighborhoods
from certus.kernel.rules import Proposal, Rule, _gap_rules, bounds_by_rule
from certus.losses import Criterion, Logistic, SmoothMargin, SquaredError
from tests.certificates.problems import (
    ACTIVATIONS,
    CROSS_ENTROPY,
    EVERYWHERE,
    L2,
    around,
    bounded,
    network,
    numpy_loss,
    samples,
)
from tests.oracles import Array, maximum_on_grid
from tests.problems import SHARP_COSTS, SMOOTH_COSTS, PlaneCost

GAMMAS = (0.2, 0.8, 3.0, 12.0)
SHORT = BarzilaiBorwein(
    tolerance=0.0, max_gradients=2
)  # far from the maximum: the gap has to carry the bound
LONG = BarzilaiBorwein(tolerance=1e-8, max_gradients=60)


@dataclass
class Tally:
    """How many bounds were checked, by rule, and how loose the tightest one was."""

    checked: dict[Rule, int]
    tightest: float = math.inf


def brute_force(
    model: nn.Module,
    criterion: Criterion,
    sample: tuple[Tensor, Tensor],
    gamma: float,
    cost: PlaneCost | None = None,
    domain: Domain = EVERYWHERE,
    clip: float | None = None,
) -> float:
    """φ_γ of one sample, from below, by a grid and finer ones around its best point."""
    whole, start = numpy_loss(model, criterion, sample[1]), sample[0].numpy()
    ceiling = math.inf if clip is None else clip

    def objective(points: Array) -> Array:
        moved = ((points - start) ** 2).sum(1) if cost is None else cost.numpy_form(points, start)
        return np.asarray(np.minimum(whole(points), ceiling) - gamma * moved)

    low, high = (np.full(2, -1.0), np.full(2, 1.0)) if isinstance(domain, Box) else (start - 12, start + 12)
    if cost is not None and "masked" in cost.name:
        low[1] = high[1] = start[1]
    return maximum_on_grid(objective, low, high, zooms=4, size=31)[1]


def bounds_around(problem: Problem, clip: float | None = None, balls: int = 4) -> Neighborhoods:
    return bounded(problem, make_grid(problem, [0.01, 1.0], (0.05, 20.0), balls), clip)


def radial(known: Neighborhoods, gamma: float) -> Tensor:
    return known.profile.bound(known.profile.rings(gamma))


def check(
    kind: str,
    seed: int,
    *,
    criterion: Criterion = CROSS_ENTROPY,
    cost: Cost = L2,
    numpy_cost: PlaneCost | None = None,
    domain: Domain = EVERYWHERE,
    clip: float | None = None,
    classes: int = 3,
    gammas: tuple[float, ...] = GAMMAS,
    outputs: int | None = None,
    size: float = 1.5,
    ascents: tuple[BarzilaiBorwein, ...] = (SHORT, LONG),
) -> Tally:
    model = network(kind, seed, outputs or classes, size=size)
    inputs, targets = samples(seed, 4, classes)
    if isinstance(criterion, SquaredError):
        targets = torch.randn(4, generator=torch.Generator().manual_seed(seed)).double()
    problem = Problem.of(model, (inputs, targets), criterion, cost, domain)
    known = bounds_around(problem, clip)
    tally = Tally(dict.fromkeys(Rule, 0))
    for gamma in gammas:
        truth = [
            brute_force(model, criterion, (origin, target), gamma, numpy_cost, domain, clip)
            for origin, target in zip(inputs, targets, strict=True)
        ]
        for ascent in ascents:
            with torch.no_grad():
                proposal = Proposal.at(problem.kernel, gamma, climb(problem, gamma, ascent))
                roots = softplus_roots(known.profile.score, gamma * known.profile.unit_cost)
                bounds = bounds_by_rule(known, proposal, roots)
            for rule, bound in bounds.items():
                slack = bound - torch.tensor(truth, dtype=torch.float64)
                assert float(slack.min()) >= -1e-9, (rule, gamma, slack)
                tally.checked[rule] += int(torch.isfinite(bound).sum())
                tally.tightest = min(tally.tightest, float(slack.max()))
    return tally


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", [*ACTIVATIONS, "residual"])
def test_every_activation(kind: str, seed: int) -> None:
    tally = check(kind, seed)
    assert tally.checked[Rule.RADIAL] == tally.checked[Rule.LIPSCHITZ] == 2 * 4 * len(GAMMAS)
    if kind != "relu":
        assert tally.checked[Rule.LOCAL] > 0
        tally = check(kind, seed, size=0.8, gammas=(1.5, 4.0))
        assert tally.checked[Rule.CONCAVE] > 0


@pytest.mark.parametrize("cost", [*SMOOTH_COSTS, *SHARP_COSTS], ids=str)
def test_every_cost(cost: PlaneCost) -> None:
    tally = check("elu", 3, cost=cost.cost, numpy_cost=cost, gammas=(0.6, 4.0))
    assert tally.checked[Rule.RADIAL] > 0
    assert (tally.checked[Rule.LOCAL] > 0) == (cost.cost.strong_convexity > 0)


@pytest.mark.parametrize("kind", ["elu", "relu"])
def test_a_box_and_a_clip(kind: str) -> None:
    check(kind, 4, domain=Box(-1.0, 1.0))
    check(kind, 5, clip=0.7)
    check(kind, 6, domain=Box(-1.0, 1.0), clip=0.5, gammas=(0.01, 0.3, 2.0))


def test_samples_on_the_faces_of_a_box() -> None:
    """Gradients that point outwards are dropped there."""
    inputs = torch.tensor([[-1.0, -1.0], [1.0, 0.2], [0.3, 1.0], [1.0, -1.0]], dtype=torch.float64)
    for seed in range(2):
        model, targets = network("tanh", seed), torch.tensor([0, 1, 2, 0])
        known = around(model, (inputs, targets), domain=Box(-1.0, 1.0))
        for gamma in (0.3, 2.0):
            bound = radial(known, gamma)
            for sample, most in zip(zip(inputs, targets, strict=True), bound, strict=True):
                assert (
                    brute_force(model, CROSS_ENTROPY, sample, gamma, domain=Box(-1, 1)) <= float(most) + 1e-9
                )


@pytest.mark.parametrize(
    ("criterion", "classes", "outputs"),
    [
        (CrossEntropy(temperature=0.5), 3, 3),
        (CrossEntropy(label_smoothing=0.2), 3, 3),
        (SmoothMargin(margin=0.5, sharpness=4.0), 3, 3),
        (Logistic(), 2, 1),
    ],
)
def test_every_criterion(criterion: Criterion, classes: int, outputs: int) -> None:
    check("elu", 7, criterion=criterion, classes=classes, outputs=outputs, gammas=(0.6, 4.0, 12.0))


@pytest.mark.parametrize(
    ("criterion", "outputs"),
    [
        (CrossEntropy(), 3),
        (CrossEntropy(temperature=0.3), 3),
        (CrossEntropy(label_smoothing=0.1), 3),
        (SmoothMargin(margin=0.7, sharpness=3.3), 3),
        (Logistic(), 1),
        (SquaredError(), 1),
    ],
)
def test_the_kernel_computes_the_loss_in_float64(criterion: Criterion, outputs: int) -> None:
    """Constants such as 0.1 and 0.7 included, which single precision would change by 10⁻⁸."""
    model, (inputs, targets) = network("elu", 11, outputs), samples(11, 20, max(outputs, 2))
    if isinstance(criterion, SquaredError):
        targets = inputs[:, 0]
    problem = Problem.of(model, (inputs, targets), criterion, L2, EVERYWHERE).kernel
    with torch.no_grad():
        truth = criterion(model(inputs), targets)
        torch.testing.assert_close(problem.losses(inputs), truth, rtol=1e-12, atol=1e-13)
        room = problem.slack(truth, problem.rounding)
        assert ((problem.losses(inputs) - truth).abs() <= room).all()


def test_regression_with_and_without_a_clip() -> None:
    tally = check("tanh", 8, criterion=SquaredError(), outputs=1, clip=2.0)
    assert tally.checked[Rule.RADIAL] == 2 * 4 * len(GAMMAS)
    tally = check("tanh", 9, criterion=SquaredError(), outputs=1, size=0.7, gammas=(6.0, 20.0))
    assert tally.checked[Rule.LIPSCHITZ] > 0


def test_a_linear_classifier_of_two_classes_is_bounded_tightly() -> None:
    """There the margins are affine: the radial rule loses only what its rings lose, and the gap rule
    nothing."""
    tally = check("linear", 10, classes=2, ascents=(LONG,))
    assert tally.tightest < 1e-4
    for seed in range(3):
        model, data = network("linear", seed, 2), samples(seed, 20, 2)
        known = around(model, data)
        weights = model[0].weight[1] - model[0].weight[0]  # type: ignore[index]
        steep = float(weights.norm().detach())
        for gamma in (0.3, 2.0):
            with torch.no_grad():
                margins = (model(data[0])[:, 1] - model(data[0])[:, 0]) * (1 - 2 * data[1])
            steps = torch.linspace(0, steep / gamma, 20001).double()
            truth = (torch.nn.functional.softplus(margins[:, None] + steep * steps) - gamma * steps**2).amax(
                1
            )
            excess = radial(known, gamma) - truth
            assert float(excess.min()) >= 0
            assert float(excess.max()) < 0.01


def test_rings_begin_at_the_radius_of_a_ball() -> None:
    """Ring i bounds f between the edges i and i + 1, the last one all beyond; "local" on a ball counts all
    rings outside it, the first included."""
    model, (inputs, targets) = network("elu", 1, size=1.0), samples(1, 4)
    problem = Problem.of(model, (inputs, targets), CROSS_ENTROPY, L2, EVERYWHERE)
    known = bounds_around(problem, balls=1)
    gamma, rings = 3.0, known.profile.rings(3.0)
    edges = [*known.profile.edges.tolist(), 3 * float(known.profile.edges[-1])]
    angles = torch.linspace(0, 2 * math.pi, 60, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    for ring in range(rings.shape[1]):
        radii = torch.linspace(edges[ring], edges[ring + 1], 5, dtype=torch.float64)
        offsets = (radii[:, None, None] * circle).reshape(-1, 2)
        for sample in range(len(inputs)):
            loss = numpy_loss(model, CROSS_ENTROPY, targets[sample])((inputs[sample] + offsets).numpy())
            most = float((torch.from_numpy(loss) - gamma * (offsets**2).sum(1)).max())
            assert most <= float(rings[sample, ring]) + 1e-9
    (edge,) = [ball.edge for ball in known.balls if ball.edge is not None]
    with torch.no_grad():
        proposal = Proposal.at(problem.kernel, gamma, climb(problem, gamma, LONG))
        for ring in range(edge, rings.shape[1]):
            alone = torch.full_like(rings, -math.inf)
            alone[:, ring] = 100.0
            assert torch.equal(
                _gap_rules(known, proposal, alone)[Rule.LOCAL], torch.full((4,), 100.0).double()
            )
        inside = torch.full_like(rings, -math.inf)
        inside[:, :edge] = 100.0
        assert (_gap_rules(known, proposal, inside)[Rule.LOCAL] < 50).all()
