"""Losses and radial majorants exceed their exact values by the rounding of the theory, and little more.

Exact values come from ball arithmetic; margins are the worst cases of ``certus.kernel.rounding``.
"""

from __future__ import annotations

import math

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.losses import Form, Hinge, Rounding, Score, Softmax, SquaredError, margins_above
from certus.kernel.radial import Profile
from certus.kernel.rounding import FEW, HUNDREDS, MANY, SOME, TENS, slack
from tests.kernel.margins import near

ctx.prec = 200
LEVELS = (-30.0, -1.3, 0.0, 0.4, 2.0, 25.0)


def tensor(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def above(bound: Tensor | float, exact: arb | float, margin: float, most: float = 4.0) -> bool:
    """Whether a bound exceeds an exact value by at least the margin, and at most a multiple of it."""
    rest = float(arb(float(bound)) - exact)
    return 0.9 * margin <= rest <= most * margin


def stiffness(price: float, weight: float, steepness: float) -> arb:
    return arb(price) / (arb(weight) * arb(steepness) ** 2)


@pytest.mark.parametrize("price", [0.3, 7.0])
@pytest.mark.parametrize("steepness", [0.2, 1.7])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_suprema_of_scores(price: float, steepness: float, weight: float) -> None:
    kappa = stiffness(price, weight, steepness)
    for form in Form:
        score = Score(form, tensor(0.5), tensor(steepness), weight)
        assert above(-float(score.stiffness(price)), -kappa, SOME * float(kappa))
    for level in LEVELS:
        score = Score(Form.POSITIVE, tensor(level), tensor(steepness), weight)
        exact = arb(level) + 1 / (4 * kappa)
        bound = float(score.bound(price))
        rise = float(1 / (4 * kappa))
        if exact < -1e-9:
            assert bound == 0
        else:
            assert above(bound, weight * exact, weight * SOME * (abs(level) + 2 * rise), 1.2)
        square = Score(Form.SQUARE, tensor(level), tensor(steepness), weight).bound(price)
        if kappa < 1:
            assert square == math.inf
        else:
            exact = weight * arb(max(level, 0.0)) ** 2 * (1 + 1 / (kappa - 1))
            lost = SOME * (2 + float(1 / (kappa - 1)))  # of both factors, and of κ
            assert above(square, exact, lost * float(exact), 2) or float(exact) == float(square) == 0


def softplus(level: float, root: float, kappa: arb) -> tuple[arb, arb, float]:
    """The right side of Jaakkola's and Jordan's bound, its last term, and the size of all terms."""
    slope = (arb(root) / 2).tanh() / (4 * arb(root))
    rise = (arb(0.5) + 2 * slope * arb(level)) ** 2 / (4 * (kappa - slope))
    height = arb(level) / 2 + (2 * (arb(root) / 2).cosh()).log() + slope * (arb(level) ** 2 - arb(root) ** 2)
    sizes = 1 + abs(level) + root + float(slope) * level**2  # λξ² of the sizes is spent where λ was raised
    return height + rise, rise, sizes


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("root", [1e-3, 0.6, 5.0, 40.0])
def test_suprema_of_softplus(level: float, root: float) -> None:
    for price, steepness, weight in ((0.9, 1.0, 1.0), (40.0, 2.0, 1.5)):
        kappa = stiffness(price, weight, steepness)
        score = Score(Form.SOFTPLUS, tensor(level), tensor(steepness), weight)
        exact, rise, sizes = softplus(level, root, kappa)
        bound = score.bound(price, tensor(root))
        assert above(bound, weight * exact, weight * SOME * sizes, 4 + 4 * float(rise) / sizes)
    assert score.bound(1e-4, tensor(root)) == (math.inf if root < 40 else score.bound(1e-4, tensor(root)))


def rounding(width: int = 3) -> Rounding:
    return Rounding(tensor(2.0), tensor(1e-3), tensor(5.0), tensor(1e-2), width)


def test_errors_of_gradients_and_margins() -> None:
    given = rounding()
    exact = (0.7 + 0.1) * 1e-2 + 0.1 * 5
    assert above(given.gradient(tensor(0.7), tensor(0.1)), arb(exact), MANY * exact)
    assert float(given.difference()) == near(2e-2 + 2 * FEW * 5, rel=1e-15)
    outputs, labels = torch.tensor([[3.0, -1.0, 2.5]], dtype=torch.float64), torch.tensor([0])
    exactly = Rounding(tensor(2.0), tensor(0.0), tensor(5.0), tensor(1e-2), 3)
    margins = margins_above(outputs, labels, exactly)[0]
    assert margins[0] == 0
    assert above(margins[1], arb(-4), 4 * TENS)
    assert above(margins[2], arb(-0.5), 0.5 * TENS)
    assert float(margins_above(outputs, labels, given)[0, 1]) == near(-4 + 2e-3)


@pytest.mark.parametrize("loss", [Hinge(2), SquaredError()])
@pytest.mark.parametrize("length", [0.0, 0.3, 9.0])
def test_errors_of_squares(loss: Hinge | SquaredError, length: float) -> None:
    """(v + e)² − v² for a length v of three outputs, each of which is off by 10⁻³."""
    error = 1e-3 * math.sqrt(3)
    exact = (length + error) ** 2 - length**2
    found = float(loss.slack(tensor(length**2), rounding()))
    assert above(found, arb(exact), SOME * (1 + length**2), 1.5)


@pytest.mark.parametrize("length", [0.0, 0.3, 9.0])
def test_errors_of_a_hinge(length: float) -> None:
    found = float(Hinge(1).slack(tensor(length), rounding()))
    assert above(found, arb(2e-3), SOME * (1 + length), 1.5)
    outputs, labels = torch.tensor([[0.0, length]], dtype=torch.float64), torch.tensor([1])
    exactly = Rounding(tensor(2.0), tensor(0.0), tensor(5.0), tensor(1e-2), 2)
    assert above(
        Hinge(1).level(outputs, labels, exactly),
        1 - arb(length),
        TENS * length + FEW * (1 + length),
        1.5,
    )


SOFTMAX = (
    Softmax(),
    Softmax(smoothing=0.2),
    Softmax(2.0, 4.0, 2.0),
    Softmax(1.0, 3.0, 3.0, 0.5),
    Softmax(3.0, 1.5, 0.5, -2.0),
)


@pytest.mark.parametrize("loss", SOFTMAX)
def test_errors_of_a_softmax_loss(loss: Softmax) -> None:
    """Each output is off by 10⁻³, ℓ is g-Lipschitz in every margin, and its own sums cancel."""
    own = loss.slope / loss.scale * slack(3 + 17) * (1 + loss.scale * (2 + abs(loss.offset)))
    for height in (0.0, 0.7, 30.0):
        exact = 2 * loss.slope * 1e-3
        found = float(loss.slack(tensor(height), rounding()))
        assert above(found, arb(exact), own + SOME * (1 + height), 1.2)
    exactly = Rounding(tensor(2.0), tensor(0.0), tensor(5.0), tensor(0.0), 3)
    only = float(loss.slack(tensor(0.0), exactly)) - SOME
    assert only == near(own, rel=1e-3)
    error = math.sqrt(3) * (loss.slope * loss.scale / 2 * 1e-3 + loss.scale * own)
    slopes = (1.5 * loss.slope + error) * 1e-2 + error * 5
    assert float(loss.slope_error(tensor(0.7), torch.tensor([0]), rounding())) == near(
        slopes * (1 + MANY), rel=1e-12
    )


def log_sum(loss: Softmax, margins: list[float], own: int | None) -> arb:
    """ln Σ exp s(m + offset), over other classes, and with 1 for the own one."""
    total = arb(0 if own is None else 1)
    for k, margin in enumerate(margins):
        if k != own:
            total += (arb(loss.scale) * (arb(margin) + arb(loss.offset))).exp()
    return total.log()


@pytest.mark.parametrize("loss", [each for each in SOFTMAX if not each.smoothing])
@pytest.mark.parametrize("margins", [(0.0, -3.0, 1.5), (0.0, -40.0, -35.0), (0.0, 7.0, 7.0)])
def test_levels_and_values_of_a_softmax_loss(loss: Softmax, margins: tuple[float, ...]) -> None:
    outputs, labels = torch.tensor([margins], dtype=torch.float64), torch.tensor([0])
    exactly = Rounding(tensor(2.0), tensor(0.0), tensor(5.0), tensor(0.0), 3)
    lifted = [loss.scale * (margin + loss.offset) for margin in margins[1:]]
    size = 1 + max(map(abs, lifted))
    others = log_sum(loss, list(margins[1:]), None)
    level = loss.level(outputs, labels, exactly)
    assert above(level, others, HUNDREDS * size, 1 + loss.scale / 2)
    own = torch.tensor([[True, False, False]])
    exact = arb(loss.slope) / arb(loss.scale) * log_sum(loss, list(margins), 0)
    assert above(loss.above(outputs, own), exact, HUNDREDS * (loss.slope / loss.scale + float(exact)), 1.5)
    share = 1 - 1 / (1 + others.exp())
    error = loss.error(outputs, own)
    assert above(error, share, MANY * float(share), 1.2) or error == 1
    assert float(loss.values(outputs, labels)) == near(float(exact), rel=1e-12, abs=1e-15)


def test_a_sum_near_1_is_rounded_up_as_much_as_its_weight() -> None:
    """ln(1 + e⁻³⁷) is lost beside 1, and counts a million times."""
    loss, own = Softmax(1.0, 1e-6, 1e-6), torch.tensor([[True, False]])
    margins = [0.0, -37e6]
    exact = arb(loss.slope) / arb(loss.scale) * log_sum(loss, margins, 0)
    assert 1e-11 < float(exact) < float(loss.above(torch.tensor([margins], dtype=torch.float64), own))


def test_many_classes_round_by_more() -> None:
    count = 3000
    outputs, own = torch.zeros(1, count, dtype=torch.float64), torch.arange(count).unsqueeze(0) == 0
    exactly = Rounding(tensor(0.0), tensor(0.0), tensor(0.0), tensor(0.0), count)
    exact = arb(count).log()
    assert above(Softmax().above(outputs, own), exact, slack(count) * (1 + float(exact)), 1.5)
    level = Softmax().level(outputs, torch.tensor([0]), exactly)
    assert above(level, arb(count - 1).log(), slack(count), 1.5)


def test_a_smoothed_level_is_the_loss() -> None:
    loss, outputs, labels = SOFTMAX[1], torch.tensor([[0.3, -2.0, 1.0]]).double(), torch.tensor([1])
    value = float(loss.values(outputs, labels))
    assert float(loss.level(outputs, labels, rounding())) == near(value + 2e-3, abs=1e-9)
    mixed = torch.log_softmax(outputs, 1)[0]
    assert value == near(-0.8 * float(mixed[1]) - 0.2 * float(mixed.mean()))


@pytest.mark.parametrize("outputs", [(3.0, -1.0), (1e6, -1e6)])
def test_levels_and_slopes_of_a_squared_error(outputs: tuple[float, float]) -> None:
    """‖F − y‖, each entry off by 10⁻³ and by the rounding of the difference."""
    targets = torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    given = torch.tensor([outputs], dtype=torch.float64)
    away = sum(((arb(a) - arb(b)) ** 2 for a, b in zip(outputs, (0.5, 0.25), strict=True)), arb(0)).sqrt()
    exactly = Rounding(tensor(2.0), tensor(0.0), tensor(5.0), tensor(1e-2), 2)
    size = math.hypot(*outputs)
    margin = slack(2) * float(away) + math.sqrt(2) * FEW * size
    assert above(SquaredError().level(given, targets, exactly), away, margin, 1.2)
    assert float(SquaredError().level(given, targets, rounding(2))) == near(
        float(away) + math.sqrt(2) * 1e-3, rel=1e-14
    )
    losses = tensor(4.0)
    row = 2 * math.sqrt(float(losses + SquaredError().slack(losses, rounding(2))))
    error = math.sqrt(2) * (2 * 1e-3 + slack(8) * 2.5)
    slopes = (row + error) * 1e-2 + error * 5
    assert float(SquaredError().slope_error(losses, targets, rounding(2))) == near(
        slopes * (1 + MANY), rel=1e-12
    )
    exact = math.sqrt(2) * slack(8) * 2.5  # of exact outputs
    row = 2 * math.sqrt(float(losses + SquaredError().slack(losses, exactly)))
    assert float(SquaredError().slope_error(losses, targets, exactly)) == near(
        ((row + exact) * 1e-2 + exact * 5) * (1 + MANY), rel=1e-14
    )


def profile(left: float, right: float, slope: float, root: float = 0.0, clip: float | None = None) -> Profile:
    """One ring from 0.5 to 1.5, behind one without a bound, around one sample of loss 0.5; g = 0.7."""
    edges = tensor(0.0, 0.5, 1.5)
    low, high = (torch.tensor([[[math.inf, end]]], dtype=torch.float64) for end in (left, right))
    score = Score(Form.POSITIVE, tensor(9.0), tensor(9.0))
    return Profile(
        edges, low, high, tensor(0.5), tensor(slope), tensor(root), score, tensor(math.inf), 0.7, clip
    )


@pytest.mark.parametrize(("left", "right"), [(1.0, 1.1), (1.0, 3.0), (0.1, 9.0), (0.0, 0.0)])
@pytest.mark.parametrize("gamma", [0.01, 1.0, 30.0])
def test_margins_on_a_ring(left: float, right: float, gamma: float) -> None:
    price = arb(gamma) * arb(0.7)
    slope = arb(right) - arb(left)
    peak = slope / (2 * price)
    at = arb(0.5) if peak < 0.5 else arb(1.5) if peak > 1.5 else peak
    height, cost = arb(left) + slope * (at - 0.5), price * at**2
    bound = profile(left, right, 1.0).rings(gamma)[0, 1]
    assert above(bound, height - cost, MANY * float(height) + SOME * (1 + float(cost)), 1.1)


@pytest.mark.parametrize("slope", [0.1, 40.0])
@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_margins_beyond_the_last_ring(slope: float, gamma: float) -> None:
    price = arb(gamma) * arb(0.7)
    peak = arb(slope) / (2 * price)
    at = arb(1.5) if peak < 1.5 else peak
    height, cost = arb(0.5) + arb(slope) * at, price * at**2
    bound = profile(0.6, 0.7, slope).rings(gamma)[0, 2]
    assert above(bound, height - cost, MANY * float(height) + SOME * float(cost), 1.1)
    root = arb(0.4)
    far = root * arb(0.5).sqrt() / (price - root**2)
    if price > root**2:
        at = arb(1.5) if far < 1.5 else far
        height, cost = (arb(0.5).sqrt() + root * at) ** 2, price * at**2
        bound = profile(0.6, 0.7, slope, 0.4).rings(gamma)[0, 2]
        assert above(bound, height - cost, MANY * float(height) + SOME * float(cost), 4)
    clipped = profile(0.6, 0.7, slope, clip=0.9).rings(gamma)[0, 2]
    assert above(clipped, arb(0.9) - price * arb(1.5) ** 2, SOME * float(price) * 2.25, 1.5)


@pytest.mark.parametrize("gamma", [0.3, 30.0])
def test_margins_of_the_lipschitz_rule(gamma: float) -> None:
    exact = arb(0.5) + arb(1.3) ** 2 / (4 * arb(gamma) * arb(0.7))
    bound = profile(0.6, 0.7, 1.3).lipschitz(gamma)
    assert above(bound, exact, SOME * (float(exact) - 0.5), 1.5)


def test_constants_of_losses() -> None:
    """G at most g times the largest slope of a margin, rounded up; α of squares, and 0 for others."""
    slope, curvature, most = tensor(9.0, 0.1), tensor(7.0, 7.0), tensor(0.3, 0.3)
    least, same, root = Softmax(2.0, 4.0, 2.0).constants(slope, curvature, most)
    assert above(least[0], arb(2) * arb(0.3), MANY * 0.6, 1.1)
    assert float(least[1]) == 0.1
    assert (same.tolist(), root.tolist()) == ([7.0, 7.0], [0.0, 0.0])
    assert Softmax(smoothing=0.1).constants(slope, curvature, most)[0].tolist() == slope.tolist()
    own = [each.tolist() for each in SquaredError().constants(slope, curvature, most)]
    assert own == [slope.tolist(), curvature.tolist(), most.tolist()]
    endless = [math.inf, math.inf]
    own = [each.tolist() for each in Hinge(1).constants(slope, curvature, most)]
    assert own == [most.tolist(), endless, [0.0, 0.0]]
    own = [each.tolist() for each in Hinge(2).constants(slope, curvature, most)]
    assert own == [endless, endless, most.tolist()]
    for power in (1, 2):
        assert Hinge(power).slope_error(most, torch.tensor([0, 1]), rounding()).tolist() == endless


def test_losses_unless_other_constants_are_given() -> None:
    assert Softmax() == Softmax(1.0, 1.0, 1.0, 0.0, 0.0, logistic=False)
    assert Hinge() == Hinge(1)
    assert Score(Form.POSITIVE, tensor(0.0), tensor(0.0)).weight == 1
    assert [loss.labelled for loss in (Softmax(), Hinge(), SquaredError())] == [True, True, False]
    assert [loss.logistic for loss in (Softmax(), Hinge(), SquaredError())] == [False, True, False]
