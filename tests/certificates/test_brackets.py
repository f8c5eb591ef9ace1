"""Brackets hold what they should: linear programs, closed forms, exact transport, brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import certus
from certus import Box, CrossEntropy, SquaredL2, certify
from certus.attacks import PGD
from certus.certificates import Rule, worst_error
from certus.costs import LabelCost, WeightedL2
from certus.errors import ArgumentError
from certus.losses import SquaredError
from tests.certificates.problems import around, network, numpy_loss, samples
from tests.oracles import Array, Ways, worst_case_by_brute_force, worst_share_by_brute_force

RHOS = (0.01, 0.1)
SQUARE = Box(-1.0, 1.0)


def ways_to_lose(model: nn.Module, label: int, clip: float | None = None) -> Callable[[Array], Array]:
    loss = numpy_loss(model, CrossEntropy(), torch.tensor(label))
    return lambda points: np.minimum(loss(points), math.inf if clip is None else clip)


def ways_to_err(model: nn.Module, label: int) -> Callable[[Array], Array]:
    def wrong(points: Array) -> Array:
        with torch.no_grad():
            return np.asarray((model(torch.from_numpy(points)).argmax(1) != label).double().numpy())

    return wrong


# How far each side may be from the truth, (below, above): some three times what is measured.
CLOSE = {"elu": (0.001, 0.001), "relu": (0.03, 0.3), "logcosh": (0.05, 0.03)}


@pytest.mark.quick_share(2)
@pytest.mark.parametrize("kind", ["elu", "relu", "logcosh"])
@pytest.mark.parametrize("clip", [None, 0.8])
def test_the_bracket_holds_the_truth(kind: str, clip: float | None) -> None:
    """The exact worst case in a box, by brute force over points and γ, for loss and error rate."""
    model, (inputs, targets) = network(kind, 1), samples(1, 6)
    found = certify(model, (inputs, targets), rho=RHOS, domain=SQUARE, clip=clip, attack_steps=20)
    below, above = CLOSE[kind]
    losing: list[Ways] = [[(ways_to_lose(model, int(y), clip), 0.0)] for y in targets]
    erring: list[Ways] = [[(ways_to_err(model, int(y)), 0.0)] for y in targets]
    for bracket in found.curve():
        truth = worst_case_by_brute_force(losing, inputs.numpy(), bracket.rho)
        assert truth - below <= bracket.loss_low <= truth + 1e-9
        assert truth - 1e-5 <= bracket.loss_high <= truth + above
        wrong = worst_share_by_brute_force(erring, inputs.numpy(), bracket.rho)
        assert bracket.error_low is not None
        assert bracket.error_high is not None
        assert wrong - 0.001 <= bracket.error_low <= wrong + 1e-6
        assert wrong - 1e-6 <= bracket.error_high <= wrong + 0.3


def test_linear_regression_has_a_closed_form() -> None:
    """sup {E (wᵀx − y)² : W_c ≤ ρ} = (√E ℓ + ‖w‖_*√ρ)²: a norm-regularised loss, met from both sides."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 1).double()
    model, row = nn.Sequential(layer), layer.weight.detach().flatten()
    inputs, targets = torch.randn(40, 3).double(), torch.randn(40).double()
    weights = torch.tensor([0.5, 2.0, 1.0]).double()
    for cost, dual in (
        (SquaredL2(), float(row.norm())),
        (WeightedL2(weights), float((row / weights.sqrt()).norm())),
    ):
        found = certify(
            model,
            (inputs, targets),
            rho=(0.01, 0.1, 1.0),
            criterion=SquaredError(),
            cost=cost,
            gamma_rounds=3,
        )
        with torch.no_grad():
            start = float(SquaredError()(model(inputs), targets).mean())
        for bracket in found.curve():
            exact = (math.sqrt(start) + dual * math.sqrt(bracket.rho)) ** 2
            assert bracket.loss_low <= exact * (1 + 1e-9)
            assert exact <= bracket.loss_high <= exact * 1.01
            assert bracket.loss_low >= 0.99 * exact
            assert bracket.error_high is None


def test_linear_classifiers_have_exact_error_rates() -> None:
    """The distance to the nearest error of a linear classifier is known: the bracket closes on its
    knapsack."""
    model, (inputs, targets) = network("linear", 2), samples(2, 60)
    found = certify(model, (inputs, targets), rho=RHOS, attack_steps=40)
    weights = model[0].weight.detach()  # type: ignore[index]
    with torch.no_grad():
        outputs = model(inputs)
    own = targets[:, None]
    margins = outputs.gather(1, own) - outputs
    lengths = (weights[targets][:, None] - weights[None]).norm(dim=2)
    distance = (margins / lengths).scatter(1, own, math.inf).amin(1).clamp_min(0)
    for rho in RHOS:
        exact = worst_error(distance**2, [rho])[0]
        low, high = found.error_lower(rho), found.error_bound(rho)
        assert low is not None
        assert high is not None
        assert exact - 5e-4 <= low <= exact + 1e-12
        assert exact - 1e-12 <= high <= exact + 1e-8


@given(
    st.lists(st.one_of(st.just(math.inf), st.just(0.0), st.floats(1e-3, 5)), min_size=1, max_size=12),
    st.floats(0, 2),
)
def test_the_knapsack_is_the_dual_program(costs: list[float], rho: float) -> None:
    """inf_γ γρ + E (1 − γτ)₊: piecewise linear in γ, so that its minimum is at 0 or at some 1/τ."""
    values = np.array(costs)
    slopes = [0.0, *(1 / value for value in costs if 1e-12 < value < math.inf), 1e15]

    def dual(gamma: float) -> float:
        with np.errstate(invalid="ignore"):
            part = np.where(np.isinf(values), 0.0, np.maximum(1 - gamma * values, 0.0))
        share = float(part.mean())
        # At γ = 0 everything that an error can be bought for is one.
        return gamma * rho + share

    primal = worst_error(torch.tensor(costs, dtype=torch.float64), [rho])[0]
    assert primal == pytest.approx(min(dual(gamma) for gamma in slopes), abs=1e-6)


def test_the_worst_case_is_data_within_rho() -> None:
    """P*_n: exact transport agrees that it is within ρ, and its mean loss is the lower side."""
    model, data = network("tanh", 3), samples(3, 30)
    found = certify(model, data, rho=RHOS)
    for rho in RHOS:
        moved, weights = found.worst_case_data(rho)
        distances = ot.dist(data[0].numpy(), moved.inputs.numpy())
        distances[data[1].numpy()[:, None] != moved.targets.numpy()[None]] = 1e3  # labels do not move
        exact = ot.emd2(np.full(30, 1 / 30), weights.numpy(), distances)
        assert exact <= rho * (1 + 1e-9) + 1e-9
        with torch.no_grad():
            losses = CrossEntropy()(model(moved.inputs), moved.targets)
        assert float((losses * weights).sum()) == pytest.approx(found.lower(rho), abs=1e-7)


def test_tight_at_rho_hat_where_the_inner_problem_is_concave() -> None:
    """eqn:certificate: at ρ̂_n both sides are equal, up to the solver's tolerance."""
    model, data = network("softplus", 4, size=0.7), samples(4, 50)
    threshold = certus.input_smoothness(model).gamma
    found = certify(model, data, rho=0.1, gammas=[4 * threshold, 2 * threshold], gamma_rounds=0)
    for reached in found.attained_budgets:
        assert reached.loss <= reached.bound <= reached.loss + 1e-4
    assert set(found.dual_values[0].rule.tolist()) <= {Rule.LOCAL, Rule.CONCAVE}


@pytest.mark.parametrize("kind", ["elu", "relu", "tanh"])
def test_no_error_within_the_certified_radius(kind: str) -> None:
    for seed in range(4):
        model, (inputs, _) = network(kind, seed), samples(seed, 12)
        with torch.no_grad():
            targets = model(inputs).argmax(1)
        radius = around(model, (inputs, targets)).radius
        assert radius is not None
        assert float(radius.min()) > 0
        angles = torch.linspace(0, 2 * math.pi, 400).double()
        circle = torch.stack([angles.cos(), angles.sin()], 1)
        for share in (0.25, 0.6, 1.0):
            points = inputs[:, None] + share * radius[:, None, None] * circle
            with torch.no_grad():
                predicted = model(points.reshape(-1, 2)).argmax(1).reshape(len(inputs), -1)
            assert bool((predicted == targets[:, None]).all())


def test_labels_that_move_at_a_price() -> None:
    """The same over pairs (x, y)."""
    model, (inputs, targets), price = network("elu", 5), samples(5, 4), 0.05
    found = certify(model, (inputs, targets), rho=RHOS, domain=SQUARE, label_cost=LabelCost(price, classes=3))
    prices = [[0.0 if label == y else price for label in range(3)] for y in targets]
    losing = [[(ways_to_lose(model, label), own[label]) for label in range(3)] for own in prices]
    erring = [[(ways_to_err(model, label), own[label]) for label in range(3)] for own in prices]
    for bracket in found.curve():
        truth = worst_case_by_brute_force(losing, inputs.numpy(), bracket.rho)
        assert truth - 0.01 <= bracket.loss_low <= truth + 1e-9
        assert truth - 1e-5 <= bracket.loss_high <= truth + 0.01
        wrong = worst_share_by_brute_force(erring, inputs.numpy(), bracket.rho)
        assert bracket.error_low is not None
        assert bracket.error_high is not None
        assert wrong - 1e-6 <= bracket.error_low <= bracket.error_high <= wrong + 1e-6


@pytest.mark.quick_share(2)
@pytest.mark.parametrize("price", [1.0, 0.1])
def test_gamma_goes_as_far_as_labels_need(price: float) -> None:
    """Inputs stand still, so that the worst case is a knapsack of labels: the dearest gains are bought first.

    The outputs hardly slope, and the γ of their slope is thousands of times too small for any label.
    """
    model, targets = nn.Sequential(nn.Linear(1, 3)).double(), torch.tensor([2, 2, 2, 2, 1, 1, 0])
    model[0].weight.data = torch.tensor([[0.0], [0.0], [1e-3]], dtype=torch.float64)
    model[0].bias.data = torch.tensor([0.0, 20.0, 35.0], dtype=torch.float64)
    data, label_cost = (torch.zeros(len(targets), 1), targets), LabelCost(price, classes=3)
    losses = -torch.log_softmax(model[0].bias.data, 0)
    own, gains = losses[targets], (losses.max() - losses[targets]).sort(descending=True).values
    found = certify(model, data, rho=RHOS, domain=Box(0.0, 0.0), label_cost=label_cost)
    sure = certify(
        *(model, data), rho=RHOS, domain=Box(0.0, 0.0), label_cost=label_cost, confidence=0.9, gamma_rounds=0
    )
    for rho in RHOS:
        bought = (rho * len(targets) / price - torch.arange(len(targets))).clamp(0, 1)
        truth = float(own.mean() + (gains * bought).mean())
        assert truth * (1 - 1e-6) <= found.bound(rho) <= 1.01 * truth
        assert 0.99 * truth <= found.lower(rho) <= truth * (1 + 1e-6)
    assert sure.population is not None
    assert max(sure.population.upper.means) >= sure.population.clip / price  # in the grid itself


def test_the_toy_curve_lies_above_every_attack() -> None:
    """fig:loss-bound done soundly: proven above attained at every ρ, with the paper's recipe between them."""
    torch.manual_seed(0)
    data, model = certus.datasets.rings(train=500, test=150), certus.models.toy_mlp()
    loss, optimizer = certus.ModelLoss(model), torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(40):
        moved = certus.WRM(2.0)(loss, data.train.inputs, data.train.targets)
        loss(moved, data.train.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    rhos = [0.001 * 1.4**index for index in range(20)]
    found = certify(model, data.test, rho=(rhos[0], rhos[-1]), local_radii=4)
    curve = found.curve(rhos)
    assert all(one.loss_low <= one.loss_estimate <= one.loss_high for one in curve)
    assert all(first.loss_high <= second.loss_high for first, second in itertools.pairwise(curve))
    for one in curve:
        attacked = PGD(one.distance, 2.0, steps=10)(loss, data.test.inputs, data.test.targets)
        with torch.no_grad():
            assert float(loss(attacked, data.test.targets).mean()) <= one.loss_high


def test_a_cost_that_is_no_number_is_refused() -> None:
    """NaN would count as "never an error"."""
    with pytest.raises(ArgumentError, match=r"`costs` must .*NaN at 1 samples"):
        worst_error(torch.tensor([0.1, math.nan]), [1.0])
