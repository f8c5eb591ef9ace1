"""Linear scores: the exact worst case against closed forms, grids, a convex solver and linear programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import Tensor, nn

import certus
from certus.certificates.certificate import Certificate
from certus.certificates.linear import _LinearScore, _problem
from certus.certificates.proposals import softplus_roots
from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.data import EncodedColumn, RowEncoding, Samples
from certus.errors import ArgumentError, UnreadableModelError, UnsupportedError
from certus.kernel.graph import Graph, Node
from certus.kernel.operators import Dense
from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, ModelLoss, SquaredError
from tests.certificates.problems import certify_exactly

GENERATOR = torch.Generator().manual_seed(3)
INPUTS = torch.randn(30, 4, generator=GENERATOR, dtype=torch.float64)
LABELS = (INPUTS[:, 0] + 0.5 * torch.randn(30, generator=GENERATOR, dtype=torch.float64) > 0).long()
NUMBERS = INPUTS @ torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64) + 0.3
SLOPE = torch.tensor([1.5, -0.7, 0.4, 0.2], dtype=torch.float64)
RHOS = (0.01, 0.1, 1.0)


def linear(rows: Tensor, bias: float = 0.1) -> nn.Linear:
    layer = nn.Linear(rows.shape[1], len(rows), dtype=torch.float64)
    layer.weight.data.copy_(rows)
    layer.bias.data.fill_(bias)
    return layer


def certified(criterion: Criterion, cost: Cost, targets: Tensor = LABELS, rho: object = RHOS) -> Certificate:
    return certify_exactly(linear(SLOPE[None]), (INPUTS, targets), rho=rho, criterion=criterion, cost=cost)


SCORES: dict[str, tuple[Criterion, Callable[[Tensor], Tensor], float]] = {
    "logistic": (Logistic(), lambda v: torch.logaddexp(v, torch.zeros_like(v)), 0.0),
    "hinge": (Hinge(), lambda v: v.clamp_min(0), 1.0),
    "squared hinge": (Hinge(squared=True), lambda v: v.clamp_min(0) ** 2, 1.0),
}
"""Losses of F(x) = x with the label 0, as functions of v, and v at x = 0."""


@given(
    level=st.floats(-30, 30),
    stiffness=st.one_of(st.floats(0.002, 20), st.sampled_from([0.125, 0.1249999, 0.1250001])),
    loss=st.sampled_from(sorted(SCORES)),
)
def test_the_supremum_is_one(level: float, stiffness: float, loss: str) -> None:
    """Not below the best of a fine grid, and attained by the shift."""
    criterion, value, offset = SCORES[loss]
    graph = Graph((Node((), (1,)), Node((0,), (1,), Dense(torch.ones(1, 1, dtype=torch.float64), None))))
    inputs, labels = torch.tensor([[level - offset]], dtype=torch.float64), torch.tensor([0])
    linear = _LinearScore(_problem(graph, criterion, SquaredL2(), inputs, labels), SquaredL2())
    at = inputs[:, 0] + offset
    torch.testing.assert_close(linear.score.level, at, rtol=1e-9, atol=1e-9)
    stiffness += linear.floor
    bound = float(linear.score.bound(stiffness, softplus_roots(linear.score, stiffness)))
    shift = linear.shift_at(stiffness)
    reached = float(value(at + shift) - stiffness * shift**2)
    steps = torch.linspace(0, 2 * float(shift) + 1 / stiffness + 1, 4001, dtype=torch.float64)
    best = float((value(at + steps) - stiffness * steps**2).max())
    assert best <= bound
    assert reached <= bound <= reached + 1e-7 * (1 + abs(reached)) + 1e-6 / stiffness**2 * 1e-4


COSTS = {
    "l2": SquaredL2(),
    "weighted": WeightedL2(torch.tensor([1.0, 4.0, 0.25, 2.0], dtype=torch.float64)),
    "masked": Masked(SquaredL2(), torch.tensor([True, False, True, True])),
    "full": Mahalanobis(torch.eye(4, dtype=torch.float64) + 0.2),
    "sup": SquaredSup(),
    "lp": SquaredLp(1.5),
}


def length(cost: str) -> float:
    """The dual norm of the slope, by hand."""
    slope = SLOPE.numpy()
    match cost:
        case "weighted":
            return math.sqrt(sum(slope**2 / np.array([1, 4, 0.25, 2])))
        case "masked":
            return math.sqrt(sum(slope[[0, 2, 3]] ** 2))
        case "full":
            return math.sqrt(slope @ np.linalg.solve(np.eye(4) + 0.2, slope))
        case "sup":
            return float(np.abs(slope).sum())
        case "lp":
            return float((np.abs(slope) ** 3).sum() ** (1 / 3))
    return math.sqrt(sum(slope**2))


@pytest.mark.parametrize("cost", COSTS)
def test_squared_errors_have_a_closed_form(cost: str) -> None:
    """(√R + α√ρ)², on both sides of the bracket, in every norm."""
    found = certified(SquaredError(), COSTS[cost], NUMBERS)
    residuals = INPUTS @ SLOPE + 0.1 - NUMBERS
    root = math.sqrt(float((residuals**2).mean()))
    for one in found.curve():
        exact = (root + length(cost) * math.sqrt(one.rho)) ** 2
        assert one.loss_low <= exact * (1 + 1e-12)
        assert exact <= one.loss_high * (1 + 1e-12)
        assert one.loss_high - one.loss_low <= 1e-8 * exact


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("cost", COSTS)
def test_the_error_rate_is_a_knapsack_of_distances(cost: str) -> None:
    found = certified(Logistic(), COSTS[cost])
    margins = (2 * LABELS.double() - 1) * (INPUTS @ SLOPE + 0.1)
    costs = np.sort((margins.clamp_min(0) / length(cost)).numpy() ** 2)
    for one in found.curve():
        shares = linprog(-np.ones(30), A_ub=costs[None], b_ub=[30 * one.rho], bounds=(0, 1))
        assert one.error_low == pytest.approx(-shares.fun / 30, abs=1e-9)
        assert one.error_high == pytest.approx(-shares.fun / 30, abs=1e-9)


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("criterion", [Logistic(), Hinge(), Hinge(squared=True), SquaredError()], ids=str)
def test_no_discrete_adversary_does_better_and_one_does_as_well(criterion: Criterion) -> None:
    """The primal problem, mass by mass on a grid of score shifts, as a linear program."""
    targets = NUMBERS if isinstance(criterion, SquaredError) else LABELS
    found, count = certified(criterion, SquaredL2(), targets, rho=0.1), 30
    shifts = torch.linspace(-6, 6, 961, dtype=torch.float64)
    scores = (INPUTS @ SLOPE + 0.1)[:, None] + shifts
    losses = torch.stack(
        [criterion(row[:, None], targets[index].repeat(len(row))) for index, row in enumerate(scores)]
    )
    prices = (shifts / length("l2")) ** 2
    sums = np.kron(np.eye(count), np.ones(len(shifts)))
    solved = linprog(
        -losses.flatten().numpy() / count,
        A_ub=np.tile(prices.numpy(), count)[None] / count,
        b_ub=[0.1],
        A_eq=sums,
        b_eq=np.ones(count),
    )
    assert -solved.fun <= found.bound(0.1)
    assert found.lower(0.1) == pytest.approx(-solved.fun, rel=2e-4)
    assert found.bound(0.1) == pytest.approx(found.lower(0.1), rel=1e-7)


@pytest.mark.quick_share(4)
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("criterion", [Logistic(), Hinge(), CrossEntropy()], ids=str)
def test_the_worst_case_is_there(criterion: Criterion, cost: str) -> None:
    """Moved samples cost at most ρ, and have the loss that is claimed."""
    rows = torch.stack([0.2 * SLOPE, 1.2 * SLOPE]) if isinstance(criterion, CrossEntropy) else SLOPE[None]
    model, price = linear(rows), COSTS[cost]
    found = certify_exactly(model, (INPUTS, LABELS), rho=0.3, criterion=criterion, cost=price)
    data, weights = found.worst_case_data(0.3)
    origin = INPUTS.repeat(len(data) // 30, 1)
    with torch.no_grad():
        losses = ModelLoss(model, criterion)(data.inputs, data.targets)
    assert float(weights.sum()) == pytest.approx(1)
    moved = price.value(price.restore_frozen(data.inputs, origin), origin)
    assert float((weights * moved).sum()) <= 0.3 * (1 + 1e-9)
    assert float((weights * losses).sum()) == pytest.approx(found.lower(0.3), rel=1e-9)


@pytest.mark.parametrize("criterion", [Logistic(), SquaredError()], ids=str)
def test_a_weight_equals_as_many_copies(criterion: Criterion) -> None:
    targets = NUMBERS if isinstance(criterion, SquaredError) else LABELS
    copies = torch.arange(30) % 4
    weighted = Samples(INPUTS, targets, copies.double())
    repeated = Samples(INPUTS.repeat_interleave(copies, 0), targets.repeat_interleave(copies))
    first, second = (
        certify_exactly(linear(SLOPE[None]), data, rho=RHOS, criterion=criterion)
        for data in (weighted, repeated)
    )
    for one, other in zip(first.curve(), second.curve(), strict=True):
        assert one.loss_high == pytest.approx(other.loss_high, rel=1e-8)
        assert one.loss_low == pytest.approx(other.loss_low, rel=1e-8)
        assert one.error_high == (other.error_high and pytest.approx(other.error_high))


def test_predictions_are_certified_without_labels() -> None:
    found = certify_exactly(linear(SLOPE[None]), (INPUTS, None), rho=0.1, criterion=Logistic())
    assert found.error_bound(0.0) == pytest.approx(0, abs=1e-12)
    assert 0 < (found.error_bound(0.1) or 0) < 1


def test_a_score_that_nothing_moves() -> None:
    cost = Masked(SquaredL2(), torch.tensor([False, True, False, False]))
    still = linear(torch.tensor([[1.0, 0.0, 2.0, 0.0]], dtype=torch.float64))
    found = certify_exactly(still, (INPUTS, LABELS), rho=RHOS, criterion=Logistic(), cost=cost)
    for near, far in pairwise(found.curve()):
        assert far.error_high == near.error_high
    assert found.lower(1.0) == pytest.approx(found.clean_loss[0])


def test_other_networks_are_bracketed() -> None:
    """Several classes, or layers, leave the line."""
    model = nn.Sequential(linear(torch.stack([SLOPE, -SLOPE, 0 * SLOPE])))
    found = certify_exactly(model, (INPUTS, LABELS), rho=0.1)
    assert found.classes == 3
    assert "exact" not in found.bracket(0.1).rules


def test_scores_that_cancel_are_rounded_to_the_safe_side() -> None:
    """Terms of 10⁸ leave margins of 10⁻⁴, known to 10⁻⁸: against fractions, which lose nothing. For the hinge
    with every level above 0 the worst case is E v + α√ρ."""
    generator, rho = torch.Generator().manual_seed(0), 0.01
    rows = 1e8 * torch.randn(60, 4, generator=generator, dtype=torch.float64)
    rest = 1e-4 * torch.rand(60, generator=generator, dtype=torch.float64) - rows[:, :3] @ SLOPE[:3] - 0.1
    rows[:, 3] = rest / SLOPE[3]
    found = certify_exactly(
        linear(SLOPE[None]), (rows, torch.ones(60).long()), rho=rho, criterion=Hinge(), epsilon=1e-5
    )
    slope = [Fraction(one) for one in SLOPE.tolist()]
    margins = [
        Fraction(0.1) + sum(Fraction(x) * a for x, a in zip(row, slope, strict=True)) for row in rows.tolist()
    ]
    square = sum(a * a for a in slope)
    assert found.proven_error_cost is not None
    for margin, floor in zip(margins, found.proven_error_cost.tolist(), strict=True):
        assert Fraction(floor) * square <= max(margin, Fraction(0)) ** 2
    exact = float(1 - sum(margins) / 60) + math.sqrt(square * Fraction(rho))
    assert found.lower(rho) <= exact <= found.bound(rho) <= exact + 1e-5


def test_nothing_moves_at_a_rho_of_0() -> None:
    found = certified(Logistic(), SquaredL2(), rho=(0.0, 0.1))
    with torch.no_grad():
        loss = float(ModelLoss(linear(SLOPE[None]), Logistic())(INPUTS, LABELS).mean())
    assert found.bracket(0.0).loss_high == pytest.approx(loss, rel=1e-9)
    assert found.bracket(0.0).loss_low == pytest.approx(loss, rel=1e-9)


class _Turned(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return -10 * self[0](x)  # type: ignore[no-any-return]


class _NotTheSame(nn.Identity):
    def forward(self, x: Tensor) -> Tensor:
        return -10 * x


def _hooked() -> nn.Module:
    layer = linear(SLOPE[None])
    layer.register_forward_hook(lambda module, given, output: -10 * output)
    return layer


def _patched() -> nn.Module:
    layer = linear(SLOPE[None])
    layer.forward = lambda x: -10 * (x @ SLOPE[:, None])  # type: ignore[assignment,method-assign]
    return layer


def _behind_a_hook() -> nn.Module:
    layer = nn.Sequential(linear(SLOPE[None]), nn.Identity())
    layer[1].register_forward_hook(lambda module, given, output: -10 * output)
    return layer


@pytest.mark.parametrize(
    "model",
    [
        _hooked,
        _patched,
        _behind_a_hook,
        lambda: _Turned(linear(SLOPE[None])),
        lambda: nn.Sequential(linear(SLOPE[None]), _NotTheSame()),
    ],
    ids=["hook", "patch", "hook behind", "subclass", "subclass behind"],
)
def test_a_layer_that_does_not_run_as_its_class_says(model: Callable[[], nn.Module]) -> None:
    """The weights are not what is computed: what is proven is that of the layer that computes the same."""
    try:
        found = certify_exactly(model(), (INPUTS, LABELS), rho=0.1, criterion=Logistic())
    except UnreadableModelError:
        return
    with torch.no_grad():
        loss = float(ModelLoss(model(), Logistic())(INPUTS, LABELS).mean())
    assert loss > 4
    assert loss <= found.bound(0.0) <= found.bound(0.1)
    turned = linear(-10 * SLOPE[None], bias=-1.0)
    exact = certify_exactly(turned, (INPUTS, LABELS), rho=0.1, criterion=Logistic())
    assert found.lower(0.1) == pytest.approx(exact.lower(0.1), rel=1e-9)
    assert found.bound(0.1) == pytest.approx(exact.bound(0.1), rel=1e-9)


def _nested(outputs: int) -> nn.Module:
    """Two layers, of which the first is in a sequence of its own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        first = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        return nn.Sequential(first, nn.Linear(4, outputs)).double().requires_grad_(False)


def _repeated() -> nn.Module:
    layer = linear(torch.tensor([[0.0, 1.0], [-1.0, 0.5]], dtype=torch.float64))
    return nn.Sequential(nn.Sequential(layer), layer).requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "inputs", "criterion", "targets"),
    [
        (_nested(2), INPUTS, CrossEntropy(), LABELS),
        (_nested(1), INPUTS, SquaredError(), NUMBERS),
        (_repeated(), INPUTS[:, :2].contiguous(), CrossEntropy(), LABELS),
    ],
    ids=["classes", "numbers", "one layer twice"],
)
def test_sequences_in_sequences(
    model: nn.Module, inputs: Tensor, criterion: Criterion, targets: Tensor
) -> None:
    """The loss that the whole model has at the data, and at rows that gradient ascent moves within ρ."""
    certificate = certify_exactly(model, (inputs, targets), rho=0.01, criterion=criterion)
    loss = ModelLoss(model, criterion)
    own = float(loss(inputs, targets).mean())
    assert certificate.lower(0.0) <= own <= certificate.bound(0.0)
    rows = inputs.clone()
    for _ in range(20):
        rows.requires_grad_()
        (slope,) = torch.autograd.grad(loss(rows, targets).sum(), rows)
        move = (rows + slope).detach() - inputs
        rows = inputs + move * min(1.0, 0.1 / float((move**2).sum(1).mean().sqrt()))
    assert own < float(loss(rows, targets).mean()) <= certificate.bound(0.01)


def test_one_layer_in_sequences_is_exact() -> None:
    model = nn.Sequential(nn.Sequential(nn.Identity(), linear(SLOPE[None])), nn.Sequential())
    inside = certify_exactly(model, (INPUTS, LABELS), rho=0.1, criterion=Logistic())
    alone = certified(Logistic(), SquaredL2(), rho=0.1)
    assert inside.bound(0.1) == pytest.approx(alone.bound(0.1), rel=1e-9)
    assert "exact" in inside.bracket(0.1).rules


class _OnlyThere(Tensor):
    """A weight that counts twice in products with rows that have a first entry of 7, and 70."""

    mark: float

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        plain = [each.as_subclass(Tensor) if isinstance(each, cls) else each for each in args]
        outputs = func(*plain, **(kwargs or {}))
        if func is nn.functional.linear:
            return torch.where(plain[0][:, :1].abs() == cls.mark, 2.0, 1.0) * outputs
        return outputs


@pytest.mark.parametrize("mark", [7.0, 70.0], ids=["at the rows", "far from them"])
def test_nothing_is_proven_of_a_layer_that_differs_at_the_data_alone(mark: float) -> None:
    """No random point has these entries: only the rows themselves, or ten times them, tell."""
    layer, rows = linear(SLOPE[None]), INPUTS.clone()
    rows[3, 0] = 7.0
    marked = type("Marked", (_OnlyThere,), {"mark": mark})
    layer._parameters["weight"] = layer.weight.detach().as_subclass(marked)
    try:
        bound = certify_exactly(layer, (rows, LABELS), rho=0.1, criterion=Logistic()).bound(0.1)
    except UnsupportedError:
        bound = math.inf
    assert bound == math.inf


def test_images_of_one_layer_are_bracketed() -> None:
    images = INPUTS.reshape(30, 1, 2, 2)
    model = nn.Sequential(nn.Flatten(), linear(SLOPE[None]))
    found = certify_exactly(model, (images, LABELS), rho=0.1, criterion=Logistic())
    exact = certify_exactly(model, (INPUTS, LABELS), rho=0.1, criterion=Logistic())
    assert found.lower(0.1) <= exact.bound(0.1)
    assert exact.lower(0.1) <= found.bound(0.1)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (
            Samples(INPUTS, LABELS, torch.ones(30)),
            {"epsilon": 0.1},
            "`epsilon` must be left out where samples",
        ),
        ((INPUTS, NUMBERS[:4]), {"criterion": SquaredError()}, "`targets` must have one entry for each"),
        (
            (INPUTS, NUMBERS),
            {"criterion": SquaredError(), "epsilon": 0.1},
            "`epsilon` must be left out for a reg",
        ),
    ],
)
def test_refusals(data: Samples, options: dict[str, object], words: str) -> None:
    options = {"criterion": Logistic()} | options
    with pytest.raises(ArgumentError, match=words):
        certify_exactly(linear(SLOPE[None]), data, rho=0.1, **options)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e9, 1e12, 1e13])
def test_worst_cases_cost_no_more_than_rho_wherever_the_features_are(scale: float) -> None:
    """In rational arithmetic, at the numbers as they are returned: 1e12 + 0.1 lies between two of them."""
    source = np.random.default_rng(0)
    rows = scale + source.standard_normal((30, 3))
    model = LinearRegression().fit(source.standard_normal((9, 3)), source.standard_normal(9))
    model.intercept_ = -float(model.coef_.sum()) * scale
    targets = model.predict(rows) + source.standard_normal(30)
    exact_slope, offset = [Fraction(one) for one in model.coef_.tolist()], Fraction(model.intercept_)
    for rho in (1e-4, 0.01, 1.0):
        certificate = certus.certify(model, (rows, targets), rho=rho)
        data, weights = certificate.worst_case_data(rho)
        origins = np.tile(rows, (len(data) // len(rows), 1)).tolist()
        cost = loss = Fraction(0)
        for point, origin, target, weight in zip(
            data.inputs.tolist(), origins, data.targets.flatten().tolist(), weights.tolist(), strict=True
        ):
            cost += Fraction(weight) * sum(
                (Fraction(one) - Fraction(other)) ** 2 for one, other in zip(point, origin, strict=True)
            )
            score = offset + sum(a * Fraction(one) for a, one in zip(exact_slope, point, strict=True))
            loss += Fraction(weight) * (score - Fraction(target)) ** 2
        assert cost <= Fraction(rho)
        assert loss >= Fraction(certificate.lower(rho))
        assert certificate.lower(rho) <= certificate.bound(rho)


def test_a_table_with_categories_is_certified_over_its_rows() -> None:
    """Each error costs one changed answer, which costs 1: a linear model included."""
    inputs, labels = torch.eye(3).double().repeat(8, 1), torch.tensor([0, 1, 1]).repeat(8)
    labels[0] = 1
    model = LogisticRegression(C=100.0).fit(inputs.numpy(), labels.numpy())
    column = EncodedColumn("answer", "category", (0, 1, 2))
    encoding = RowEncoding((column,), torch.zeros(3).double(), torch.ones(3).double())
    cost = WeightedL2(torch.full((3,), 0.5).double())
    certificate = certus.certify(model, Samples(inputs, labels, encoding=encoding), rho=0.1, cost=cost)
    assert certificate.over_rows
    assert certificate.error_bound(0.1) == pytest.approx(1 / 24 + 0.1, rel=1e-6)
    assert certificate.error_lower(0.1) == pytest.approx(1 / 24 + 0.1, rel=0.3)
    everywhere = certus.certify(model, (inputs, labels), rho=0.1, cost=cost)
    assert everywhere.error_bound(0.1) > 1 / 24 + 0.11  # type: ignore[operator]
