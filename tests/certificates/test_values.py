"""Values at the samples, in every cost: against brute force in the plane, and exact fractions."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import arb
from torch import Tensor, nn

from certus.bounds.norm_proposals import claim_norms
from certus.certificates.problem import Problem
from certus.costs import Masked, SquaredL2
from certus.domains import Box, Domain, Unbounded
from certus.kernel.costs import Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Hinge
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem as KernelProblem
from certus.kernel.problem import Values
from certus.losses import Criterion, CrossEntropy, SmoothMargin, SquaredError
from tests.bounds.balls import balls, coefficient, cross_entropy, outputs
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, network, samples
from tests.oracles import Array, maximum_on_grid
from tests.problems import SHARP_COSTS, SMOOTH_COSTS, PlaneCost

COSTS = [cost for cost in (*SMOOTH_COSTS, *SHARP_COSTS) if "bregman" not in cost.name]
EVERY_COST = pytest.mark.parametrize("cost", COSTS, ids=str)


def problem(cost: PlaneCost, domain: Domain = EVERYWHERE, inputs: Tensor | None = None) -> Problem:
    points = samples(0, 4)[0] if inputs is None else inputs
    return Problem.of(
        network("linear", 0), (points, torch.tensor([0, 1, 2, 0])), CROSS_ENTROPY, cost.cost, domain
    )


def directions(cost: PlaneCost) -> Array:
    """Moves of length 1 in the norm of a cost, all around."""
    angles = np.linspace(0, 2 * math.pi, 80_001)
    moves = np.stack([np.cos(angles), np.sin(angles)], 1)
    if "masked" in cost.name:
        moves = np.array([[1.0, 0.0], [-1.0, 0.0]])
    return moves / np.sqrt(cost.numpy_form(moves, np.zeros(2)))[:, None]


@EVERY_COST
def test_dual_norms(cost: PlaneCost) -> None:
    """The largest slope along moves of cost 1; and the largest of those for gradients of a length in L2."""
    made, moves = problem(cost), directions(cost)
    gradients = torch.tensor([[1.0, 2.0], [-3.0, 0.5], [0.0, -1.0], [0.7, 0.7]], dtype=torch.float64)
    kernel = made.kernel
    duals = kernel.cost.dual(kernel.feasible(gradients))
    for gradient, length in zip(gradients.numpy(), duals.tolist(), strict=True):
        truth = float((moves @ gradient).max())
        assert truth - 1e-15 <= length <= truth * (1 + 1e-7) + 1e-9
    angles = np.linspace(0, 2 * math.pi, 721)
    around = torch.from_numpy(3 * np.stack([np.cos(angles), np.sin(angles)], 1))
    if "masked" in cost.name:
        around[:, 1] = 0.0
    largest = float(kernel.cost.dual(around).max())
    size = float(kernel.cost.dual_size(torch.full((1,), 3.0, dtype=torch.float64)))
    assert largest <= size
    if "masked" not in cost.name:
        assert size <= largest * (1 + 1e-4)


@EVERY_COST
@pytest.mark.parametrize("box", [None, (-1.0, 1.5)])
def test_the_remaining_gain(cost: PlaneCost, box: tuple[float, float] | None) -> None:
    """sup over Z of ⟨g, z − x⟩ − (μ/2)‖z − x‖², on a grid; exactly that for L2, and without a box."""
    domain = Unbounded() if box is None else Box(*box)
    generator = torch.Generator().manual_seed(1)
    points = 2 * torch.rand(6, 2, generator=generator, dtype=torch.float64) - 1
    gradients = 4 * torch.randn(6, 2, generator=generator, dtype=torch.float64)
    modulus = torch.tensor([0.5, 1.0, 2.0, 4.0, 0.0, -1.0], dtype=torch.float64)
    if "masked" in cost.name:
        gradients[:, 1] = 0.0  # as the ascent sees them
    gaps = cost.cost.gap(gradients, points, modulus, domain)
    assert gaps[4:].tolist() == [math.inf] * 2
    positive = (gradients[:4], points[:4], modulus[:4])
    proven = cost.cost.kernel((2,)).gap(*positive, domain.kernel())
    for index in range(4):
        point, gradient = points[index].numpy(), gradients[index].numpy()
        low, high = (point - 40, point + 40) if box is None else (np.full(2, box[0]), np.full(2, box[1]))
        if "masked" in cost.name:
            low[1] = high[1] = point[1]
        weight = float(modulus[index]) / 2

        def model(z: Array, x: Array = point, g: Array = gradient, w: float = weight) -> Array:
            return np.asarray((z - x) @ g - w * cost.numpy_form(z, x))

        truth = maximum_on_grid(model, low, high, zooms=10, size=41)[1]
        exact = box is None or cost.name in ("L2", "weighted", "masked L2")
        for gap in (float(gaps[index]), float(proven[index])):
            assert gap >= truth - 1e-9
            assert not exact or gap <= truth * (1 + 1e-3) + 1e-6


@EVERY_COST
def test_the_farthest_point_of_a_box(cost: PlaneCost) -> None:
    made = problem(cost, Box(-1.0, 2.0))
    corners = np.array(list(itertools.product((-1.0, 2.0), repeat=2)))
    for point, reach in zip(made.inputs.numpy(), made.kernel.reach.tolist(), strict=True):
        places = corners.copy()
        if "masked" in cost.name:
            places[:, 1] = point[1]
        truth = math.sqrt(float(cost.numpy_form(places, point).max()))
        assert reach >= truth
        assert "matrix" in cost.name or reach <= truth * (1 + 1e-8)
    half = problem(cost, Box(torch.tensor([-1.0, -math.inf]), torch.tensor([2.0, 2.0])))
    known = "masked" in cost.name and "matrix" not in cost.name  # the open side is frozen
    assert bool(torch.isfinite(half.kernel.reach).all()) is known
    assert problem(cost).kernel.reach.tolist() == [math.inf] * 4


@EVERY_COST
def test_slopes_that_a_box_blocks(cost: PlaneCost) -> None:
    """At faces and corners: no feasible move gains more than the feasible part says, and no less."""
    inputs = torch.tensor([[-1.0, 0.3], [1.0, 1.0], [-1.0, 1.0], [0.2, 0.4]], dtype=torch.float64)
    kernel, moves = problem(cost, Box(-1.0, 1.0), inputs).kernel, directions(cost)
    for slope in ([2.0, -1.0], [-2.0, 1.0], [1.0, 3.0], [-1.0, -3.0]):
        slopes = torch.tensor([slope] * 4, dtype=torch.float64)
        lengths = kernel.cost.dual(kernel.feasible(slopes))
        assert bool((lengths <= kernel.cost.dual(slopes)).all())
        for point, length in zip(inputs.numpy(), lengths.tolist(), strict=True):
            moved = point + 1e-6 * moves
            inside = (np.abs(moved) <= 1).all(1)
            truth = float((moves[inside] @ np.array(slope)).max(initial=0.0))
            assert truth <= length * (1 + 1e-9)
            if "matrix" not in cost.name:
                assert length <= truth * (1 + 1e-3) + 1e-9


def test_margins_and_slopes_of_a_linear_network() -> None:
    """F_k − F_y and its gradient, with a mask and a face of a box; the loss and its slope."""
    layer = nn.Linear(2, 3).double()
    layer.weight.data = torch.tensor([[1.0, 2.0], [-0.5, 1.0], [3.0, -1.0]], dtype=torch.float64)
    layer.bias.data = torch.tensor([0.25, -0.5, 0.0], dtype=torch.float64)
    inputs, labels = torch.tensor([[0.5, -0.25], [1.0, 0.5]], dtype=torch.float64), torch.tensor([1, 2])
    made = Problem.of(nn.Sequential(layer), (inputs, labels), CROSS_ENTROPY, L2, Box(-1.0, 1.0))
    values = Values.at(made.kernel)
    for index, label in enumerate(labels.tolist()):
        logits = (inputs[index] @ layer.weight.T + layer.bias).detach()
        shares = torch.softmax(logits, 0)
        for k in range(3):
            row = (layer.weight[k] - layer.weight[label]).detach().clone()
            if index == 1:
                row[0] = min(float(row[0]), 0.0)  # it stands at the upper bound
            margin = float(logits[k] - logits[label])
            assert margin <= float(values.margins[index, k]) <= margin + 1e-12
            assert row.norm() <= values.steepness[index, k] <= row.norm() + 1e-9
        loss = float(torch.logsumexp(logits, 0) - logits[label])
        assert loss <= float(values.loss[index]) <= loss + 1e-10
        assert loss - 1e-10 <= float(values.start[index]) <= loss
        slope = (shares @ layer.weight - layer.weight[label]).detach().clone()
        if index == 1:
            slope[0] = min(float(slope[0]), 0.0)
        assert slope.norm() <= values.slope[index] <= slope.norm() + 1e-9


LARGE = 2.0**53  # LARGE + 1 is LARGE in float64


def cancelling(rows: list[tuple[float, float, float]], order: tuple[int, ...]) -> nn.Module:
    layer = nn.Linear(3, len(rows), bias=False).double()
    layer.weight.data = torch.tensor(rows, dtype=torch.float64)[:, list(order)]
    return nn.Sequential(layer)


ORDERS = list(itertools.permutations(range(3)))


@pytest.mark.parametrize(
    ("criterion", "slope", "scale", "offset"),
    [
        (CrossEntropy(), 1.0, 1.0, 0.0),
        (CrossEntropy(temperature=0.25), 4.0, 4.0, 0.0),
        (SmoothMargin(margin=0.5, sharpness=4.0), 1.0, 4.0, 0.5),
    ],
)
def test_losses_of_outputs_that_cancel(
    criterion: Criterion, slope: float, scale: float, offset: float
) -> None:
    """Outputs of ±1 that float64 takes for 0: margins are off by 2, losses by what that makes of them."""
    lost = 0.0
    for order in ORDERS:
        inputs = torch.tensor([[LARGE, 1.0, LARGE]], dtype=torch.float64)[:, list(order)]
        model = cancelling([(1.0, 1.0, -1.0), (-1.0, -1.0, 1.0)], order)
        for label in (0, 1):
            data = (inputs, torch.tensor([label]))
            made = Problem.of(model, data, criterion, SquaredL2(), Unbounded())
            computed = float(made.kernel.losses(inputs))
            with balls():
                margin = arb(-2 if label == 0 else 2) + arb(offset)
                truth = arb(slope) / arb(scale) * (1 + (arb(scale) * margin).exp()).log()
                off = abs(arb(computed) - truth)
                allowed = float(made.kernel.slack(torch.tensor([computed]).double(), made.kernel.rounding))
                assert off <= allowed
            lost = max(lost, float(off.mid()))
            values = Values.at(made.kernel)
            assert float(values.margins[0, 1 - label]) >= (-2 if label == 0 else 2)
            assert float(values.level) >= scale * ((-2 if label == 0 else 2) + offset)
            with balls():
                assert float(values.start) <= truth <= float(values.loss)
    assert lost > 0.5


@pytest.mark.parametrize("count", [1, 3])
def test_squared_errors_of_outputs_that_cancel(count: int) -> None:
    """All outputs are 1, and float64 takes them for 0; targets far away and near."""
    lost = 0
    for order, target in itertools.product(ORDERS, (0.0, -100.0, 3.0)):
        inputs = torch.tensor([[LARGE, 1.0, LARGE]], dtype=torch.float64)[:, list(order)]
        model = cancelling([(1.0, 1.0, -1.0)] * count, order)
        data = (inputs, torch.full((1, count), target, dtype=torch.float64))
        made = Problem.of(model, data, SquaredError(), SquaredL2(), Unbounded())
        computed, kernel = made.kernel.losses(inputs), made.kernel
        truth = count * (1 - Fraction(target)) ** 2
        off = abs(Fraction(float(computed)) - truth)
        assert off <= Fraction(float(kernel.slack(computed, kernel.rounding)))
        values = Values.at(kernel)
        assert Fraction(float(values.start)) <= truth <= Fraction(float(values.loss))
        assert truth <= Fraction(float(values.level)) ** 2
        lost += off > 0
        # The row 2(F − y) is off by 2 in each entry, and with it the gradient.
        least = 2 * math.sqrt(count) * float(off > 0)
        assert float(kernel.slope_error(computed, kernel.rounding)) >= least
    assert lost > 0


@pytest.mark.parametrize("power", [1, 2])
def test_hinge_losses_of_outputs_that_cancel(power: int) -> None:
    """The score is 1, and float64 takes it for 0: with the label 0 the loss is 2 or 4, with 1 it is 0."""
    lost = 0
    for order, label in itertools.product(ORDERS, (0, 1)):
        inputs = torch.tensor([[LARGE, 1.0, LARGE]], dtype=torch.float64)[:, list(order)]
        row = torch.tensor([[1.0, 1.0, -1.0]], dtype=torch.float64)[:, list(order)]
        graph = Graph((Node((), (3,)), Node((0,), (1,), Dense(row, None))))
        data = (inputs, torch.tensor([label]))
        kernel = KernelProblem.of(graph, Hinge(power), Lp(shape=(3,)), Unbounded().kernel(), data)
        computed, truth = kernel.losses(inputs), (2 - 2 * label) ** power
        off = abs(float(computed) - truth)
        assert off <= float(kernel.slack(computed, kernel.rounding))
        lost += off > 0
        claim_norms(kernel.graph)
        values = Values.at(kernel)
        assert float(values.start) <= truth <= float(values.loss)
        assert float(values.level) >= 2 - 2 * label
        assert math.isinf(float(values.slope))  # of a kink that may be anywhere near
    assert lost > 0


def test_a_sample_where_the_loss_overflows_is_refused() -> None:
    data = (torch.full((1, 2), 1.7e308, dtype=torch.float64), torch.tensor([0]))
    made = Problem.of(network("linear", 0), data, CROSS_ENTROPY, L2, EVERYWHERE)
    with pytest.raises(Refused, match="overflows float64 at some samples"):
        Values.at(made.kernel)


def test_a_mask_does_not_count_frozen_coordinates() -> None:
    inner = Masked(SquaredL2(), torch.tensor([True, False]))
    made = Problem.of(network("tanh", 0), samples(0, 3), CROSS_ENTROPY, inner, Unbounded())
    slopes = torch.tensor([[1.0, 5.0], [-2.0, 3.0], [0.0, 1.0]], dtype=torch.float64)
    assert made.kernel.feasible(slopes).tolist() == [[1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("seed", range(12))
def test_slopes_are_rounded_up(seed: int) -> None:
    """‖∇ℓ‖ in balls of 300 bits."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    point = torch.randn(1, 2, dtype=torch.float64)
    made = Problem.of(model, (point, torch.tensor([1])), CROSS_ENTROPY, L2, EVERYWHERE)
    slope = float(Values.at(made.kernel).slope)
    with balls(terms=2):
        along = [
            coefficient(cross_entropy(outputs(model, point, direction), 1), 1)
            for direction in torch.eye(2, dtype=torch.float64)
        ]
        truth = (along[0] ** 2 + along[1] ** 2).sqrt()
        assert truth <= slope <= truth * (1 + arb(10) ** -9)


def test_a_gradient_that_cancels() -> None:
    """(2²⁷ + 1)(2²⁷ − 1) − 2²⁷·2²⁷ = −1 is the slope of the margin, which float64 may compute as 0."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(),
            ([[2.0**27 - 1], [2.0**27]], [[2.0**27 + 1, -(2.0**27)], [0.0, 0.0]]),
            strict=True,
        ):
            parameter.copy_(torch.tensor(value, dtype=torch.float64))
    made = Problem.of(model, (torch.zeros(1, 1), torch.tensor([0])), CROSS_ENTROPY, L2, EVERYWHERE)
    assert float(Values.at(made.kernel).slope) >= 0.5


@pytest.mark.parametrize(("factor", "target"), [(1, 10**9), (1024, 0)])
def test_squared_errors_that_rounding_changes_much(factor: int, target: int) -> None:
    """F/factor = (2²⁷ + 1)(2²⁷ − 1) − 2²⁷·2²⁷ = −1 may be computed as 0, and (F − y)² as y²."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False), nn.Linear(2, 1, bias=False)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(), ([[2.0**27 - 1], [2.0**27]], [[2.0**27 + 1, -(2.0**27)]]), strict=True
        ):
            parameter.copy_(torch.tensor(value, dtype=torch.float64))
        parameter.mul_(factor)
    data = (torch.ones(1, 1), torch.tensor([[target]], dtype=torch.float64))
    made = Problem.of(model, data, SquaredError(), L2, EVERYWHERE)
    assert Fraction(float(Values.at(made.kernel).loss)) >= (target + factor) ** 2


@pytest.mark.parametrize("target", [-(10.0**18), 10.0**18])
def test_a_target_that_swallows_the_output(target: float) -> None:
    """F − y = 1 ∓ 10¹⁸ is computed without its 1, so that the gradient 2(F − y) is off by 2."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.fill_(1.0)  # type: ignore[operator]
    data = (torch.ones(1, 1), torch.tensor([[target]], dtype=torch.float64))
    made = Problem.of(model, data, SquaredError(), L2, EVERYWHERE)
    kernel = made.kernel
    assert float(kernel.slope_error(kernel.losses(kernel.inputs), kernel.rounding)) >= 2


def test_the_largest_output_counts() -> None:
    model = nn.Linear(2, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.0, 1.0], [-7.0, 0.0], [2.0, 0.0]]))
    made = Problem.of(
        nn.Sequential(model), (torch.ones(1, 2), torch.tensor([0])), CROSS_ENTROPY, L2, EVERYWHERE
    )
    assert float(made.kernel.rounding.outputs) == 7.0
