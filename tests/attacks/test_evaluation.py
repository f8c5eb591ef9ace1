"""What is reported of an attack: outcomes, intervals, the worst of several, paired differences, budgets."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from certus import WRM, Box, CrossEntropy, ModelLoss, SquaredL2
from certus.attacks import (
    BIM,
    FGSM,
    PGD,
    Evaluation,
    GradientAttack,
    evaluate,
    fair_epsilon,
    minimum_norm_attack,
    typical_length,
    worst_of,
)
from certus.attacks.evaluation import Trial, as_row, normal_interval, paired_differences, sweep, wilson
from certus.costs import Cost, SquaredSup
from certus.data import Samples
from certus.errors import ArgumentError, LossError
from certus.inner import BarzilaiBorwein
from certus.inner.methods import ERM
from certus.losses import Logistic, SquaredError
from tests.attacks.models import convolutional, images

DATA = Samples(*images(50))
LOSS = ModelLoss(convolutional(), CrossEntropy())


def outcome(loss: list[float], wrong: list[bool] | None, length: float = 1.0) -> Evaluation:
    lengths = torch.full((len(loss),), length)
    return Evaluation(
        torch.tensor(loss), None if wrong is None else torch.tensor(wrong), lengths, lengths / 2
    )


def test_outcomes_are_those_of_the_moved_points() -> None:
    attack = FGSM(0.1, domain=Box(0, 1))
    found = evaluate(LOSS.model, DATA, attack, batch_size=7)
    moved = attack(LOSS, DATA.inputs, DATA.targets)
    outputs = LOSS.model(moved)
    torch.testing.assert_close(found.losses, CrossEntropy()(outputs, DATA.targets))
    assert found.errors is not None
    assert torch.equal(found.errors, outputs.argmax(1) != DATA.targets)
    move = (moved - DATA.inputs).flatten(1)
    torch.testing.assert_close(found.l2, move.norm(dim=1).double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(found.sup, move.abs().amax(1).double())
    assert found.rho_test == pytest.approx(float((move**2).sum(1).mean()), rel=1e-5)


def test_half_of_the_samples_misclassified_already() -> None:
    labels = LOSS.model(DATA.inputs).argmax(1)
    labels[::2] = (labels[::2] + 1) % 3
    data = Samples(DATA.inputs, labels)
    clean = evaluate(LOSS.model, data, ERM()).error
    assert clean is not None
    assert clean.value == 0.5
    for attack in (FGSM(0.2), BIM(0.2), PGD(0.2), PGD(2.0, 2.0), PGD(5.0, 1.0), WRM(0.1)):
        attacked = evaluate(LOSS.model, data, attack).error
        assert attacked is not None
        assert attacked.value > 0.5


def test_random_starts_come_from_the_seed() -> None:
    state = torch.random.get_rng_state()
    one, two, other = (evaluate(LOSS.model, DATA, PGD(0.1), seed=seed).losses for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_regression_and_rows() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    data = Samples(torch.randn(9, 3), torch.randn(9))
    found = evaluate(model, data, PGD(0.5), criterion=SquaredError())
    assert found.errors is None
    assert found.error is None
    clean = evaluate(model, data, ERM(), criterion=SquaredError())
    assert (found.losses > clean.losses).all()
    assert paired_differences(found, clean).of == "loss"
    assert as_row(Trial("pgd", math.inf, 0.5), found)["error"] is None


@pytest.mark.parametrize(("count", "total"), [(0, 10), (1, 10), (37, 100), (100, 100), (1, 1)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_the_score_test_rejects_at_the_ends_of_wilson(count: int, total: int, confidence: float) -> None:
    """An end p inside (0, 1) solves |p̂ − p| = z √(p (1 − p) / n)."""
    interval, z = wilson(count, total, confidence), NormalDist().inv_cdf((1 + confidence) / 2)
    assert interval.value == count / total
    assert (interval.low == 0.0, interval.high == 1.0) == (count == 0, count == total)
    for end in {interval.low, interval.high} - {0.0, 1.0}:
        assert abs(interval.value - end) == pytest.approx(z * math.sqrt(end * (1 - end) / total), abs=1e-12)


def test_normal_intervals() -> None:
    values = torch.tensor([1.0, 2.0, 4.0, 9.0])
    expected = stats.norm.interval(0.9, loc=4.0, scale=stats.sem(values.numpy()))
    found = normal_interval(values, 0.9)
    assert (found.value, found.low, found.high) == pytest.approx((4.0, *expected))
    assert normal_interval(values[:1]).high == math.inf


def test_the_worst_of_several() -> None:
    one = outcome([1.0, 5.0, 3.0, 1.0], [True, False, False, False], 1.0)
    two = outcome([9.0, 2.0, 4.0, 0.5], [False, True, False, False], 2.0)
    worst = worst_of([one, two])
    assert worst.losses.tolist() == [1.0, 2.0, 4.0, 1.0]
    assert worst.errors is not None
    assert worst.errors.tolist() == [True, True, False, False]
    assert worst.l2.tolist() == [1.0, 2.0, 2.0, 1.0]
    assert worst_of([outcome([1.0, 5.0], None), outcome([2.0, 3.0], None)]).losses.tolist() == [2.0, 5.0]


def test_paired_differences() -> None:
    one = outcome([1.0, 5.0, 3.0], [True, False, False])
    two = outcome([9.0, 2.0, 4.0], [True, True, False])
    found = paired_differences(one, two)
    # One sample more for "equal" (half for both right, half for both wrong), half for each way to differ.
    values, weights = np.array([0.0, 1.0, -1.0]), np.array([2 + 1, 0.5, 1 + 0.5])
    mean = np.average(values, weights=weights)
    half = 1.959963984540054 * np.sqrt(np.average((values - mean) ** 2, weights=weights) / 5)
    assert found.of == "error"
    assert (found.value, found.low, found.high) == pytest.approx((-1 / 3, mean - half, mean + half))
    back = paired_differences(two, one)
    assert (back.value, back.low, back.high) == pytest.approx((-found.value, -found.high, -found.low))


def test_paired_losses() -> None:
    found = paired_differences(outcome([1.0, 5.0, 3.0], None), outcome([9.0, 2.0, 4.0], None))
    differences = np.array([-8.0, 3.0, -1.0])
    half = 1.959963984540054 * differences.std(ddof=1) / math.sqrt(3)
    assert found.of == "loss"
    assert (found.value, found.low, found.high) == pytest.approx((-2.0, -2.0 - half, -2.0 + half))


@pytest.mark.parametrize(("count", "only_one", "only_other"), [(50, 0.02, 0.0), (100, 0.05, 0.03)])
def test_paired_intervals_cover(count: int, only_one: float, only_other: float) -> None:
    """Also where few samples tell the models apart: there the normal interval covers 63%."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(1_000):
        draws = rng.random(count)
        one, other = draws < only_one, draws > 1 - only_other
        found = paired_differences(
            outcome([0.0] * count, one.tolist()), outcome([0.0] * count, other.tolist())
        )
        covered += found.low <= only_one - only_other <= found.high
        assert found.low < found.high
    assert covered >= 930


def test_one_output_stands_for_two_classes() -> None:
    """σ(5x₀) against labels x₀ > 0: no error as it is, and the nearest one at |x₀|."""
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[5.0, 0.0]]))
        model.bias.zero_()
    inputs = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    data = Samples(inputs, (inputs[:, 0] > 0).long())
    loss = ModelLoss(model, Logistic())
    error = evaluate(model, data, ERM(), criterion=Logistic()).error
    assert error is not None
    assert error.value == 0
    found = minimum_norm_attack(loss, data.inputs, data.targets)
    torch.testing.assert_close(found.distance, inputs[:, 0].abs(), rtol=0.02, atol=1e-3)


class Overflowing(nn.Module):
    """Class 0 wherever the outputs are numbers, which they are for |x₀| ≤ 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        first = torch.where(inputs[:, 0].abs() > 1, torch.nan, 1 + 0 * inputs[:, 0])
        return torch.stack([first, inputs[:, 0] * 0.1], 1)


def test_no_answer_is_no_error() -> None:
    found = minimum_norm_attack(
        ModelLoss(Overflowing()), torch.tensor([[0.5, 0.5]]), torch.tensor([0]), largest=8.0
    )
    assert not found.success.any()


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_fair_epsilon_of_linear_losses(gamma: float) -> None:
    """T_γ moves x by g/2γ in the L2 cost; by ‖g‖₁/2γ in every coordinate in the sup-norm cost."""
    slopes = torch.tensor([[3.0, 4.0], [0.0, 1.0], [-6.0, 8.0]]).double()
    data = Samples(torch.zeros(3, 2).double(), torch.arange(3))

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return (inputs * slopes[targets]).sum(1)

    moves = slopes / (2 * gamma)
    precise = BarzilaiBorwein(tolerance=1e-12, max_gradients=100)
    wrm = WRM(gamma, cost=SquaredL2(), maximizer=precise)
    expected = {
        2.0: float((moves**2).sum(1).mean().sqrt()),
        math.inf: float(moves.abs().amax(1).mean()),
        1.0: float(moves.abs().sum(1).mean()),
    }
    for norm, value in expected.items():
        assert fair_epsilon(wrm, loss, data, norm, batch_size=2) == pytest.approx(value, rel=1e-6)
    sup = WRM(gamma, cost=SquaredSup(), maximizer=precise)
    assert fair_epsilon(sup, loss, data, math.inf) == pytest.approx(  # √ρ̂: the root of the mean square
        float((slopes.abs().sum(1) ** 2).mean().sqrt()) / (2 * gamma), rel=1e-4
    )


def test_typical_lengths() -> None:
    data = Samples(torch.tensor([[3.0, -4.0], [0.0, 2.0]]), torch.tensor([0, 1]))
    assert [typical_length(data, norm) for norm in (1.0, 2.0, math.inf)] == [4.5, 3.5, 3.0]


BAD = {
    "attack": (lambda: Trial("cw", 2.0, 1.0), "`attack` must be one of fgsm, bim, pgd, wrm; got 'cw'"),
    "worst": (
        lambda: sweep(LOSS, DATA, [Trial("worst", 2.0, 1.0)]),
        "`attack` must be one of fgsm, bim, pgd, wrm; got 'worst'",
    ),
    "no gamma": (lambda: Trial("wrm", None, None), "`gamma` must be given for the attack wrm; got None"),
    "no epsilon": (lambda: Trial("pgd", 2.0, None), "`epsilon` and `norm` must be given for the attack pgd"),
    "steps": (lambda: Trial("pgd", 2.0, 0.0, steps=0), "`steps` must be a whole number"),
    "idle gamma": (
        lambda: Trial("pgd", 2.0, 1.0, gamma=1.0),
        r"`gamma` must be left out for the attack pgd; got 1\.0\.",
    ),
    "idle radius": (
        lambda: Trial("wrm", None, 1.0, gamma=1.0),
        "`epsilon` must be left out for the attack wrm",
    ),
    "idle step": (
        lambda: Trial("fgsm", 2.0, 1.0, step_size=0.1),
        "`step_size` must be left out for the attack fgsm",
    ),
    "idle starts": (
        lambda: Trial("bim", 2.0, 1.0, restarts=2),
        "`restarts` must be left out for the attack bim",
    ),
    "same starts": (
        lambda: GradientAttack(1.0, restarts=2),
        "`restarts` must be 1 without `random_start`, or all runs are the same; got 2",
    ),
    "restarts": (lambda: Trial("pgd", 2.0, 0.0, restarts=0), "`restarts` must be a whole number"),
    "step": (lambda: Trial("pgd", 2.0, 0.1, step_size=-1.0), "`step_size` must be finite and not negative"),
    "epsilon": (lambda: Trial("pgd", 2.0, -1.0), "`epsilon` must be finite and not negative; got -1.0"),
    "one sample": (lambda: sweep(LOSS, DATA[:1], []), "`data` must have at least 2 samples, for intervals"),
    "batch": (lambda: evaluate(LOSS.model, DATA, ERM(), batch_size=0), "`batch_size` must be a whole number"),
    "level": (lambda: evaluate(LOSS.model, DATA, ERM(), confidence=1.0), "`confidence` must lie between"),
    "empty": (lambda: evaluate(LOSS.model, DATA[:0], ERM()), "`data` must not be empty; got 0 samples"),
    "model": (lambda: evaluate(lambda x: x, DATA, ERM()), "`model` must be a torch.nn.Module"),  # type: ignore[arg-type]
    "none": (lambda: worst_of([]), "`evaluations` must not be empty"),
    "numbers": (
        lambda: worst_of([outcome([1.0], None), outcome([1.0, 2.0], None)]),
        "`evaluations` must be of the same samples; they differ in number",
    ),
    "pair": (
        lambda: paired_differences(outcome([1.0], None), outcome([1.0, 2.0], None)),
        "`second` must be of the same samples; got 2 samples, not 1",
    ),
    "confidence": (lambda: wilson(1, 2, 1.0), "`confidence` must lie between 0 and 1; got 1.0"),
    "negative confidence": (lambda: wilson(1, 2, -0.5), "`confidence` must lie between 0 and 1; got -0.5"),
    "confidence of a mean": (
        lambda: normal_interval(torch.ones(2), -0.5),
        "`confidence` must lie between 0 and 1; got -0.5",
    ),
    "count": (lambda: wilson(3, 2), "`count` must lie between 0 and 2; got 3"),
    "budget": (lambda: fair_epsilon(WRM(1.0), LOSS, DATA[:0], 2.0), "`data` must not be empty"),
    "lengths": (lambda: typical_length(DATA[:0], 2.0), "`data` must not be empty"),
    "norm": (lambda: typical_length(DATA, 3.0), "`norm` must be 1, 2 or inf; got 3.0"),
}


@pytest.mark.parametrize(("work", "message"), BAD.values(), ids=BAD.keys())
def test_refused(work: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        work()  # type: ignore[operator]


def test_a_loss_that_is_not_finite_is_no_result() -> None:
    broken = convolutional()
    with torch.no_grad():
        broken.get_parameter("5.bias").fill_(math.nan)
    with pytest.raises(LossError, match="The loss is not finite after the attack, at samples 0, 1, 2, 3, 4"):
        evaluate(broken, DATA, ERM())
    loss = ModelLoss(Overflowing())
    inputs = torch.zeros(9, 2)
    inputs[7] = 3.0
    with pytest.raises(LossError, match="at sample 7"):
        evaluate(loss.model, Samples(inputs, torch.zeros(9, dtype=torch.long)), ERM(), batch_size=4)


@pytest.mark.parametrize("cost", [SquaredSup(), SquaredL2()], ids=["sup", "L2"])
def test_the_sup_norm_budget_is_the_root_of_the_costs_own_level(cost: Cost) -> None:
    """ℓ = s·⟨w, x⟩, s = 1 or 3 by label. With ‖·‖_∞² T moves each coordinate by s‖w‖₁/2γ, and ε = √E of its
    square (eqn:fgm-fair). With ‖·‖₂² the largest moves by s·max|w|/2γ, and ε is the mean (eq:inf-from-2)."""
    weight, gamma = torch.tensor([1.0, -2.0, 0.5]), 2.0
    data = Samples(torch.zeros(4, 3), torch.tensor([0, 1, 1, 1]))
    moves = torch.tensor([1.0, 3.0, 3.0, 3.0]) / (2 * gamma)

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return (1 + 2 * targets) * (inputs @ weight)

    found = fair_epsilon(WRM(gamma, cost=cost), loss, data, math.inf)
    sup, mean = (3.5 * moves).square().mean().sqrt(), (2.0 * moves).mean()
    assert found == pytest.approx(float(sup if isinstance(cost, SquaredSup) else mean), rel=1e-5)


@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_fair_budgets_measure_moves_and_not_places(norm: float) -> None:
    """WRM moves every sample of a linear loss by slope/2γ, wherever it is."""
    slope = torch.tensor([3.0, -4.0])
    data = Samples(torch.tensor([[1.0, 2.0], [-5.0, 7.0], [0.5, 0.0]]), torch.zeros(3, dtype=torch.long))

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs @ slope

    budget = fair_epsilon(WRM(0.5), loss, data, norm=norm)
    assert budget == pytest.approx(float(torch.linalg.vector_norm(slope, norm)))
