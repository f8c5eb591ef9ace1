"""No sampled curvature, slope or margin slope may exceed its bound: random networks of every kind."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import certus
from certus import CrossEntropy, SquaredL2
from certus.costs import Cost, Mahalanobis, Masked, SquaredSup, WeightedL2
from certus.losses import Criterion, Logistic, SmoothMargin
from tests.bounds.margins import by_margins
from tests.bounds.networks import Plan, derivatives, plans, points_and_targets, sample
from tests.shares import examples

CRITERIA: list[Criterion] = [
    *(CrossEntropy(), CrossEntropy(label_smoothing=0.3), CrossEntropy(temperature=0.5)),
    SmoothMargin(margin=1.0, sharpness=3.0),
]


def violations(plan: Plan, criterion: Criterion, *, margins: bool = False) -> list[str]:
    """What sampling finds above the bounds that hold everywhere."""
    model, shape = plan.build()
    bound = certus.input_smoothness(model, criterion, input_shape=shape)
    points, targets = points_and_targets(plan, shape)
    found = sample(model, criterion, points, targets, margins=margins)
    wrong = [rule for rule, value in bound.bounds.items() if found.curvature.max() > value]
    if bound.bounds["corrected"] > bound.bounds["paper"]:
        wrong.append("(b) above (a)")
    if bound.curvature != min(bound.bounds.values()):
        wrong.append("not the smallest")
    if found.slope.norm(dim=1).max() > bound.lipschitz:
        wrong.append("lipschitz")
    if torch.linalg.matrix_norm(found.gradients, 2).max() > bound.output_lipschitz:
        wrong.append("output_lipschitz")
    apart = (found.gradients.unsqueeze(2) - found.gradients.unsqueeze(1)).norm(dim=3).amax(0)
    assert bound.margin_lipschitz is not None
    assert bound.margin_curvature is not None
    if (apart > bound.margin_lipschitz).any():
        wrong.append("margin_lipschitz")
    if margins and (found.margin_curvature.amax(0) > bound.margin_curvature + 1e-12).any():
        wrong.append("margin_curvature")
    return wrong


@examples(30)
@given(plan=plans(), criterion=st.sampled_from(CRITERIA))
def test_thirty_networks(plan: Plan, criterion: Criterion) -> None:
    assert violations(plan, criterion) == []


@pytest.mark.soak
@settings(max_examples=2000)
@given(plan=plans(), criterion=st.sampled_from(CRITERIA))
def test_two_thousand_networks(plan: Plan, criterion: Criterion) -> None:
    assert violations(plan, criterion) == []


@examples(15)
@given(plan=plans())
def test_curvature_of_every_margin(plan: Plan) -> None:
    assert violations(plan, CrossEntropy(), margins=True) == []


def inside(points: Tensor, radius: float, seed: int) -> Tensor:
    """Points on and in the Euclidean balls around the given ones."""
    generator = torch.Generator().manual_seed(seed)
    moves = torch.randn(points.shape, generator=generator, dtype=torch.float64).flatten(1)
    lengths = torch.rand(len(points), 1, generator=generator, dtype=torch.float64) ** 0.1
    moves = radius * lengths * moves / torch.linalg.vector_norm(moves, dim=1, keepdim=True)
    moved: Tensor = points + moves.reshape(points.shape)
    return moved


@examples(15)
@given(plan=plans(), criterion=st.sampled_from(CRITERIA), radius=st.sampled_from([0.0, 0.05, 0.5, 3.0]))
def test_balls_around_samples(plan: Plan, criterion: Criterion, radius: float) -> None:
    model, shape = plan.build()
    points, targets = points_and_targets(plan, shape)
    bound = certus.bounds.local_smoothness(model, points, targets, radius, criterion)
    found = sample(model, criterion, inside(points, radius, plan.seed), targets, margins=True)
    # At radius 0 there is hardly any slack: autograd's own rounding must be allowed for.
    rounding = 1e-14 * (1 + found.gradients.flatten(1).norm(dim=1) ** 2)
    for values in bound.bounds.values():
        assert (found.curvature <= values + rounding).all()
    rows = torch.arange(len(points))
    assert (found.slope.norm(dim=1) <= bound.lipschitz + rounding).all()
    apart = (found.gradients - found.gradients[rows, targets].unsqueeze(1)).norm(dim=2)
    assert bound.margin_lipschitz is not None
    assert bound.margin_curvature is not None
    assert (apart <= bound.margin_lipschitz).all()
    own_curvature = found.margin_curvature[rows, :, targets]
    assert (own_curvature <= bound.margin_curvature + 1e-12 + rounding[:, None]).all()
    everywhere = certus.input_smoothness(model, criterion, input_shape=shape)
    assert (bound.curvature <= everywhere.curvature * (1 + 1e-8)).all()


@examples(4)
@given(plan=plans(("mlp", "residual")), seed=st.integers(0, 1000))
# Probabilities of 10⁻²⁴: curvature at most 9.6e-25, and 6.8e-25 is there.
@example(plan=Plan("mlp", 2, (4, 4, 1), 2, activation=0, scale=3.0, seed=4393), seed=0)
def test_in_the_norm_of_a_cost(plan: Plan, seed: int) -> None:
    """Curvature vᵀHv and slopes along moves of cost 1, in random directions and the worst signs."""
    model, shape = plan.build()
    generator = torch.Generator().manual_seed(seed)
    size = shape[0]
    factor = torch.randn(size, size, generator=generator, dtype=torch.float64)
    weights = torch.rand(size, generator=generator, dtype=torch.float64) + 0.1
    mask = torch.arange(size) % 2 == 0
    matrix = factor @ factor.T + 0.1 * torch.eye(size, dtype=torch.float64)
    costs: list[Cost] = [
        *(SquaredL2(), WeightedL2(weights), Mahalanobis(matrix), SquaredSup(), certus.costs.SquaredLp(1.5)),
        *(Masked(SquaredL2(), mask), Masked(Mahalanobis(matrix), mask), Masked(SquaredSup(), mask)),
    ]
    points, targets = points_and_targets(plan, shape)
    leaf = points.clone().requires_grad_()
    moves = torch.randn(40, size, generator=generator, dtype=torch.float64)
    moves = torch.cat([moves, moves.sign(), torch.eye(size, dtype=torch.float64)])
    slope, bent = derivatives(by_margins(CrossEntropy())(model(leaf), targets), leaf)
    for cost in costs:
        bound = certus.input_smoothness(model, cost=cost)
        free = moves * mask if isinstance(cost, Masked) else moves
        free = free[free.abs().sum(1) > 0]
        unit = free / cost(free, torch.zeros_like(free)).sqrt().unsqueeze(1)
        curved = torch.einsum("mi,bij,mj->bm", unit, bent, unit)
        for value in bound.bounds.values():
            assert curved.max() <= value * (1 + 1e-12)
        assert (slope @ unit.T).abs().max() <= bound.lipschitz * (1 + 1e-12)
        radius = 0.4
        local = certus.bounds.local_smoothness(model, points, targets, radius, cost=cost)
        moved = points + radius * unit[: len(points)][torch.arange(len(points)) % len(unit)]
        there = moved.requires_grad_()
        near, curves = derivatives(by_margins(CrossEntropy())(model(there), targets), there)
        assert (torch.einsum("mi,bij,mj->bm", unit, curves, unit).amax(1) <= local.curvature).all()
        assert ((near @ unit.T).abs().amax(1) <= local.lipschitz).all()


@examples(12)
@given(plan=plans(("mlp", "residual"), classes=1))
def test_regression_and_two_labels(plan: Plan) -> None:
    model, shape = plan.build()
    points, _ = points_and_targets(plan, shape)
    values = torch.linspace(-1, 1, len(points) * plan.classes, dtype=torch.float64).reshape(len(points), -1)
    moved = inside(points, 0.3, plan.seed)
    bound = certus.bounds.local_smoothness(model, points, values, 0.3, certus.losses.SquaredError())
    found = sample(model, certus.losses.SquaredError(), moved, values)
    for limit in bound.bounds.values():
        assert (found.curvature <= limit).all()
    assert (found.slope.norm(dim=1) <= bound.lipschitz).all()
    if plan.classes == 1:
        labels = torch.arange(len(points)) % 2
        found = sample(model, Logistic(), moved, labels)
        near = certus.bounds.local_smoothness(model, points, labels, 0.3, Logistic())
        far = certus.input_smoothness(model, Logistic())
        for limit in near.bounds.values():
            assert (found.curvature <= limit).all()
        assert all(found.curvature.max() <= limit for limit in far.bounds.values())
        assert (found.slope.norm(dim=1) <= near.lipschitz).all()


def test_many_classes() -> None:
    """Above 32 classes a box stands for all pairs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 40)).double()
    points, targets = torch.randn(30, 3).double(), torch.arange(30)
    found = sample(model, CrossEntropy(), points, targets)
    bound = certus.input_smoothness(model)
    assert all(found.curvature.max() <= value for value in bound.bounds.values())
    near = certus.bounds.local_smoothness(model, points, targets, 0.1)
    assert (found.curvature <= near.curvature).all()
    assert (found.slope.norm(dim=1) <= near.lipschitz).all()


def test_a_relu_network_keeps_its_slopes_and_is_flat_between_its_kinks() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, stride=1), nn.Flatten()),
        *(nn.Linear(16, 8), nn.LeakyReLU(0.1), nn.Linear(8, 3)),
    ).double()
    points, targets = torch.randn(40, 1, 3, 3).double(), torch.arange(40) % 3
    bound = certus.input_smoothness(model, input_shape=(1, 3, 3))
    assert bound.curvature == torch.inf
    assert bound.obstacle == "1"
    leaf = points.requires_grad_()
    (slope,) = torch.autograd.grad(by_margins(CrossEntropy())(model(leaf), targets).sum(), leaf)
    assert slope.flatten(1).norm(dim=1).max() <= bound.lipschitz
    flat = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    near = certus.bounds.local_smoothness(flat, torch.tensor([[5.0, 1.0]]), torch.tensor([0]), 1e-6)
    assert near.curvature.isfinite().all()
