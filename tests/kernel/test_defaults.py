"""Functions and constants that are defined outside of any function: derivatives, extrema, and defaults."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from certus.kernel import binomial, check, files, graph, norms, operators, pointwise, rules, smoothing
from certus.kernel.costs import Domain, Lp
from certus.kernel.losses import Hinge, Softmax, SquaredError
from certus.kernel.passes import Place, Precision, Totals
from certus.kernel.pointwise import scalar
from certus.kernel.rounding import FARTHEST
from certus.kernel.rules import DualBounds, Rule, SampleBounds
from certus.kernel.smoothing import GammaDesign
from certus.kernel.smoothness import _MOST_AMPLIFICATION
from certus.kernel.statement import ChangeBounds, PopulationBounds, Statement
from certus.kernel.transport import TransportBounds
from certus.kernel.trees import Prices

POINTS = torch.tensor([-3.7, -1.3, -0.4, 0.3, 0.9, 2.6], dtype=torch.float64)
ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    "tanh": math.tanh,
    "softplus": lambda z: math.log1p(math.exp(z)),
    "elu": lambda z: z if z > 0 else math.expm1(z),
    "gelu": lambda z: z * math.erfc(-z / math.sqrt(2)) / 2,
    "gelu_tanh": lambda z: z / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + math.exp(-z)),
    "mish": lambda z: z * math.tanh(math.log1p(math.exp(z))),
    "log_cosh": lambda z: math.log(math.cosh(z)),
    "smooth_abs": lambda z: math.sqrt(1 + z * z) - 1,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_derivatives(name: str) -> None:
    units, exact, step = scalar(name), ACTIVATIONS[name], 1e-5
    assert units.value(POINTS).tolist() == pytest.approx([exact(z) for z in POINTS.tolist()], rel=1e-12)
    for function, derivative in ((units.value, units.slope), (units.slope, units.curvature)):
        rise = (function(POINTS + step) - function(POINTS - step)) / (2 * step)
        assert torch.allclose(derivative(POINTS), rise, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_no_slope_or_curvature_is_beyond_the_listed_extrema(name: str) -> None:
    """Over the whole line, where the ends are limits."""
    units, near = scalar(name), torch.linspace(-12, 12, 24_001, dtype=torch.float64)
    line = torch.cat([near, near.sinh()])
    for function, peaks, limits in (
        (units.slope, units.slope_peaks, units.slope_limits),
        (units.curvature, units.curvature_peaks, (0.0, 0.0)),
    ):
        listed = [*function(torch.tensor([*peaks], dtype=torch.float64)).tolist(), *limits]
        values = function(line)
        assert min(listed) - 1e-12 <= float(values.min()) <= min(listed) + 1e-6
        assert max(listed) - 1e-6 <= float(values.max()) <= max(listed) + 1e-12


def test_the_jump_of_a_softplus() -> None:
    units = scalar("softplus_threshold", 3.0)
    assert units.jump == pytest.approx(math.exp(-3), rel=1e-15)
    assert units.value(POINTS).tolist() == scalar("softplus").value(POINTS).tolist()
    assert scalar("softplus").jump == 0


def test_defaults_of_losses_and_costs() -> None:
    loss = Softmax()
    assert (loss.slope, loss.spread, loss.scale, loss.offset, loss.smoothing) == (1, 1, 1, 0, 0)
    assert (loss.logistic, loss.labelled) == (False, True)
    assert (Hinge().power, Hinge.logistic, Hinge.labelled) == (1, True, True)
    assert (SquaredError.logistic, SquaredError.labelled) == (False, False)
    cost = Lp(shape=(2,))
    assert (cost.p, cost.growth, cost.strong_convexity, cost.floor, cost.length, cost.unit) == (
        2,
        2,
        2,
        1,
        1,
        1,
    )
    assert (cost.label_price, cost.free, cost.scales) == (math.inf, None, None)
    domain = Domain()
    limits = float(domain.lower), float(domain.upper), domain.radius
    assert limits == (-math.inf, math.inf, math.inf)
    prices = Prices(torch.ones(1), torch.ones(1), torch.zeros(1).bool())
    assert (prices.largest, prices.label_price) == (False, math.inf)


def test_defaults_of_passes() -> None:
    assert Place(3) == (3, False, False)
    assert Precision(float).least == 0
    totals = Totals(torch.ones(1, 1), torch.ones(1))
    assert (totals.sides, totals.convex, totals.concave, totals.input_curvature) == (2, {}, {}, None)


def test_defaults_of_results_state_nothing() -> None:
    one = torch.ones(1).double()
    statement = Statement(1, 2.0)
    assert (statement.clean_loss, statement.means, statement.assumptions) == (math.inf, {}, ())
    parts = statement.error_costs, statement.weights, statement.clip, statement.population, statement.by_class
    assert parts == (None,) * 5
    people = PopulationBounds(0.9, 0, 1.0, "betting", {})
    assert (people.error_means, people.error_margin, people.assumptions, people.samples) == (
        {},
        None,
        (),
        None,
    )
    assert ChangeBounds(1.0, None).assumptions == ()
    transport = TransportBounds(one, None, 0.0)
    assert (transport.high, transport.moved, transport.relabelled) == (math.inf, math.inf, None)
    dual = DualBounds(1.0, one, one.long())
    assert (dual.clip, dual.assumptions, dual.problem, len(dual.about)) == (None, (), None, 0)
    assert not any(each.marked for each in (statement, people, transport, dual, SampleBounds(one, None, 1.0)))
    design = GammaDesign(1.0, one.numpy())
    assert (design.share, design.slope, [len(grid) for grid in design.grids]) == (1, 0, [0, 0, 0])


def test_constants() -> None:
    peak = math.exp(-0.5) / math.sqrt(2 * math.pi)
    assert peak <= smoothing._STEEPEST <= peak * (1 + 1e-15)
    assert (smoothing.UPPER_SHARE, smoothing.LARGEST_COEFFICIENT) == (0.8, 1e3)
    assert smoothing._SIGMAS == (2.0**-100, 2.0**100)
    assert (check.TOLERANCE, FARTHEST, _MOST_AMPLIFICATION, files._MOST) == (1e-9, 1e30, 1e60, 1e100)
    assert list(Rule) == [0, 1, 2, 3, 4, 5]
    assert all(0 < share < 1 for share in rules.SHARES)
    assert 0 < rules._SHARE < 1e-5
    assert rules.NO_TRAITS.shape == (0, 3)
    assert (norms._COMPLEX, norms._UNDERFLOW, operators._LOST) == (8, 2.0**-1000, 2.0**-510)
    assert (pointwise._ULP, pointwise._BESIDE, pointwise._FAR) == (2.0**-52, 1e-9, 1e3)
    assert (graph._LARGEST, graph._APART, binomial._NEVER) == (1e100, 1e3, -1e4)
