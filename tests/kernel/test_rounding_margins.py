"""Upper bounds exceed exact values by the rounding that the theory allows, not only by what occurs here.

Another machine adds in another order, and its libm is off by other digits. The exact values are those of
rational or ball arithmetic; the margins are the worst cases of ``certus.kernel.rounding``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from flint import arb, ctx

from certus.kernel import binomial, concentration
from certus.kernel.error_rates import dual_bound, error_gains
from certus.kernel.norms import checked_norm, checked_quadratic
from certus.kernel.passes import Refused
from certus.kernel.rounding import (
    FEW,
    HUNDREDS,
    MANY,
    SOME,
    TENS,
    THOUSANDS,
    down,
    mean_down,
    mean_up,
    slack,
    up,
)
from tests.kernel.margins import near

ctx.prec = 200
UNIT = Fraction(1, 2**53)


def excess(bound: float, exact: arb) -> float:
    """bound/exact − 1."""
    return float(arb(bound) / exact - 1)


def test_constants_cover_their_operations_twice() -> None:
    for constant, operations in zip(
        (FEW, TENS, HUNDREDS, SOME, THOUSANDS, MANY), (4, 40, 400, 4_000, 40_000, 4_000_000), strict=True
    ):
        assert 2 * operations * UNIT < Fraction(constant) < 20 * 2 * operations * UNIT
    for terms in (0, 1, 10, 12345):
        assert Fraction(slack(terms)) == 2 * (terms + 8) * UNIT


def test_numbers_are_raised_and_lowered_by_a_fraction() -> None:
    for by in (FEW, SOME, MANY):
        assert up(3.0, by) / 3 - 1 == near(by, rel=0.3)
        assert 1 - down(3.0, by) / 3 == near(by, rel=0.3)
    assert up(3.0) == up(3.0, MANY)
    assert down(3.0) == down(3.0, MANY)


@pytest.mark.parametrize("count", [3, 1000, 9_000])
def test_means_keep_a_distance_that_is_relative_to_their_terms(count: int) -> None:
    """Also where these cancel; for many numbers by more than ``SOME``."""
    values = torch.arange(count, dtype=torch.float64) / 2**12 - 1
    weights = torch.arange(count, dtype=torch.float64) / 2**10
    for weight in (None, weights):
        terms = [Fraction(float(value)) for value in values]
        if weight is not None:
            terms = [term * Fraction(float(each)) for term, each in zip(terms, weight, strict=True)]
        mean, size = sum(terms) / count, sum(map(abs, terms)) / count
        margin = size * max(Fraction(SOME), 2 * (count + 2) * UNIT) * Fraction(9, 10)
        assert Fraction(mean_up(values, weight)) - mean >= margin
        assert mean - Fraction(mean_down(values, weight)) >= margin
        assert Fraction(mean_up(values, weight)) - mean <= 3 * margin


def test_a_number_of_weight_0_does_not_count_even_if_it_is_infinite() -> None:
    values = torch.tensor([math.inf, 1.0], dtype=torch.float64)
    assert mean_up(values, torch.tensor([0.0, 2.0])) == near(1.0)
    assert mean_up(values) == math.inf
    assert mean_down(values) == math.inf


def normal(point: float) -> arb:
    return (arb(point) / -arb(2).sqrt()).erfc() / 2


@pytest.mark.parametrize("point", [-30.0, -8.0, -0.7, 0.0, 0.3, 2.0])
def test_normal_probabilities(point: float) -> None:
    exact, points = normal(point), np.array([point])
    assert excess(float(binomial.normal_up(points)[0]), exact) >= 0.8 * SOME
    assert -excess(float(binomial.normal_down(points)[0]), exact) >= 0.8 * SOME


def probability(hits: int, count: int, chance: float) -> arb:
    ways = arb(math.comb(count, hits))
    return ways * arb(chance) ** hits * (1 - arb(chance)) ** (count - hits)


@pytest.mark.parametrize(("hits", "count"), [(1, 1), (3, 8), (60, 90), (5, 400)])
def test_binomial_tails_and_modes(hits: int, count: int) -> None:
    sizes = 2 * count * math.log(count) + 750  # of the terms in the exponent
    for chance in (0.01, 0.3, 0.5):
        tail = sum((probability(k, count, chance) for k in range(hits, count + 1)), arb(0))
        bound = float(binomial.binomial_tail(hits, count, np.array([chance]))[0])
        assert bound == 1.0 or excess(bound, tail) >= 12 * sizes * 2.0**-52
    if 0 < hits < count:
        share = arb(hits) / count
        largest = arb(math.comb(count, hits)) * share**hits * (1 - share) ** (count - hits)
        assert excess(binomial.largest_probability(hits, count), largest) >= 24 * sizes * 2.0**-52


def test_relative_errors_of_probabilities_cover_their_terms() -> None:
    for count in (1, 10, 1000, 10_000):
        sizes = 2 * count * math.log(count) + 750
        assert 2 * 8 * sizes * 2.0**-52 <= binomial.relative_error(count) <= 3 * 8 * sizes * 2.0**-52 + 1e-11
    assert binomial.relative_error(10_000) < 1e-9


@pytest.mark.parametrize("failure", [0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_widths_of_confidence(count: int, failure: float) -> None:
    """Each of the sum, the logarithm and the mean may be off by its own rounding."""
    values = torch.linspace(0.01, 0.9, count, dtype=torch.float64)
    ceiling = 1e3  # no bound is cut off
    mean = arb(0)
    for value in values.tolist():
        mean += arb(value) / count
    log = -arb(failure).log()
    wide = ceiling * (log / (2 * count)).sqrt()
    # ½ SOME from the logarithm, and SOME of everything.
    assert concentration.hoeffding(values, ceiling, failure) == ceiling or float(
        arb(concentration.hoeffding(values, ceiling, failure)) - mean - wide
    ) >= 0.95 * SOME * float(1.5 * wide + 2 * mean)
    if failure <= 0.5:
        assert excess(concentration.dkw(count, failure), (log / (2 * count)).sqrt()) >= 1.45 * SOME
    if count < 2:
        assert concentration.empirical_bernstein(values, ceiling, failure) == ceiling
        return
    times = 3000 // count  # so few that a mean rounds by SOME
    values, ceiling = values.repeat(times), 1.0
    total = len(values)
    variance, log = arb(0), (2 / arb(failure)).log()
    for value in values[:count].tolist():
        variance += (arb(value) - mean) ** 2 / (total - 1) * times
    parts = (2 * variance * log / total).sqrt(), 7 * log / (3 * (total - 1))
    bound = concentration.empirical_bernstein(values, ceiling, failure)
    assert bound < ceiling
    # The variance has the rounding of a mean, and the logarithm SOME.
    margin = SOME * (2 * float(parts[0]) + 2 * float(parts[1]) + 2 * float(mean))
    assert float(arb(bound) - mean - parts[0] - parts[1]) >= 0.95 * margin


def wealth(values: list[float], failure: float, claim: float) -> tuple[arb, arb]:
    """The largest logarithm of the wealth with the bets of float64, and the sum of |ln| up to there."""
    total, sizes, best = arb(0), arb(0), (arb(-1e9), arb(0))
    cumulated, squares, before = 0.0, 0.0, 0.25
    target = math.log(1 / failure) * (1 + SOME)
    for index, value in enumerate(values):
        bet = min(math.sqrt(2 * target / (len(values) * before)), 0.9)
        step = (1 + bet * (arb(claim) - arb(value))).log()
        total, sizes = total + step, sizes + abs(step)
        if total > best[0]:
            best = total, sizes
        cumulated += 1 - value
        squares += (1 - value - (cumulated + 0.5) / (index + 2)) ** 2
        before = (squares + 0.25) / (index + 2)
    return best


@pytest.mark.parametrize("count", [1, 40, 400])
def test_the_wealth_of_a_bettor_is_rounded_down(count: int) -> None:
    values = (torch.linspace(0, 1, count, dtype=torch.float64) ** 5).flip(0).tolist()
    tensor = torch.tensor(values, dtype=torch.float64)
    for claim in (0.2, 0.5, 0.8):
        best, size = wealth(values, 0.05, claim)
        found = concentration.log_wealth(tensor, 1.0, 0.05, claim)
        assert float(best) - found >= 0.5 * slack(count) * float(size)
        assert float(best) - found <= 1e-10 * (1 + float(size))


def test_a_claim_needs_all_of_its_wealth() -> None:
    """A claim whose wealth is the logarithm of 1/δ to within its rounding proves nothing."""
    values = torch.zeros(3, dtype=torch.float64)
    for claim in (0.4, 0.7, 0.9):
        exact = concentration.log_wealth(values, 1.0, 0.2, claim)
        failure = 0.2
        for _ in range(60):  # the bets depend on δ, so look for the δ that is the limit
            failure = math.exp(-concentration.log_wealth(values, 1.0, failure, claim))
        assert exact > 0
        with pytest.raises(Refused):
            concentration.betting(values, 1.0, failure, claim)
        assert concentration.betting(values, 1.0, failure * (1 + 1e-9), claim) == claim


@pytest.mark.parametrize("gamma", [0.1, 0.7, 3.0])
def test_gains_of_errors_and_dual_bounds(gamma: float) -> None:
    costs = torch.tensor([0.0, 0.1, 0.25, 0.3, 5.0, math.inf], dtype=torch.float64)
    gains = error_gains(costs, gamma).tolist()
    for gain, cost in zip(gains, costs.tolist(), strict=True):
        exact = max(Fraction(0), 1 - Fraction(gamma) * Fraction(cost)) if cost < math.inf else Fraction(0)
        assert gain == 1 if cost == 0 else Fraction(gain) - exact >= 4 * UNIT or gain == exact == 0
    for mean, rho in ((0.3, 0.1), (-0.3, 0.1), (0.0, 2.0), (0.3, 0.0)):
        exact = Fraction(gamma) * Fraction(rho) + Fraction(mean)
        size = Fraction(gamma) * Fraction(rho) + abs(Fraction(mean))
        assert Fraction(dual_bound({gamma: mean}, rho)) - exact >= Fraction(SOME) * size * 9 / 10


@pytest.mark.parametrize(("side", "terms"), [(1, 1), (1, 4000), (40, 40), (3, 500)])
@pytest.mark.parametrize("kind", [torch.float64, torch.complex128])
def test_norms_cover_the_gram_matrix_the_shift_and_the_factorisation(
    side: int, terms: int, kind: torch.dtype
) -> None:
    """The worst cases of the theorem: γ_terms ‖A‖²_F, u(s² + ‖A‖²), and γ_{side + 1} tr(s²I − AAᵀ)."""
    generator = torch.Generator().manual_seed(side)
    matrix = torch.randn(1, side, terms, dtype=kind, generator=generator)
    frobenius = float(torch.linalg.matrix_norm(matrix) ** 2)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    operations = 4 if kind.is_complex else 1
    for claim in (exact * (1 + 1e-9), exact * 2):
        lost = operations * (terms * frobenius + (side + 1) * (side * claim**2 - frobenius)) * float(UNIT)
        lost += float(UNIT) * (claim**2 + exact**2)
        bound = checked_norm(matrix, claim)
        assert bound**2 - claim**2 >= 1.8 * lost
        assert bound**2 - claim**2 <= 100 * lost + 1e-12 * claim**2
        assert checked_norm(matrix, claim, 0.125) - bound == near(0.125)


@pytest.mark.parametrize(("rows", "columns"), [(1, 3000), (3000, 1), (40, 40), (4, 500), (500, 4)])
def test_quadratic_forms_cover_the_gram_matrix_and_the_factorisation(rows: int, columns: int) -> None:
    matrix = torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
    weights = torch.linspace(0.5, 2, rows, dtype=torch.float64)
    side, terms = min(rows, columns), max(rows, columns)
    scaled = weights.sqrt()[:, None] * matrix
    frobenius = float(torch.linalg.matrix_norm(scaled) ** 2)
    largest = float(torch.linalg.matrix_norm(scaled, 2)) ** 2
    bound = float(checked_quadratic(matrix, weights))
    lost = (terms + 2 if side == columns else columns + 4) * frobenius
    lost += (side + 1) * max(0.0, side * largest - frobenius) + largest + frobenius
    assert bound - largest >= 1.8 * lost * float(UNIT)
    assert bound - largest <= 1e-9 * frobenius
    claimed = float(checked_quadratic(matrix, weights, torch.tensor(1.5 * largest, dtype=torch.float64)))
    lost = (side + 1) * (side * 1.5 * largest - frobenius) + (
        columns if side < columns else terms
    ) * frobenius
    assert claimed == near(frobenius, rel=1e-9) or claimed - 1.5 * largest >= 1.8 * lost * float(UNIT)


def test_tails_and_wealth_are_monotone() -> None:
    """P(Bin(n, h) ≥ k) in h and k."""
    chances = np.linspace(0, 1, 40)
    tails = [binomial.binomial_tail(least, 12, chances) for least in range(14)]
    assert all((one >= two).all() for one, two in pairwise(tails))
    assert all((np.diff(tail) >= 0).all() for tail in tails)
    assert (tails[0] == 1).all()
    assert (tails[13] <= 1e-290).all()


@pytest.mark.parametrize("chance", [0.6, 0.99, 1 - 1e-7])
def test_a_radius_leaves_room_for_the_rounding_of_its_probability(chance: float) -> None:
    """Φ(−r/σ) exceeds 1 − p by at least its rounding, for the largest r that is proven, to few digits."""
    sigma, low, high = 0.7, 0.0, 7.0
    for _ in range(60):
        middle = (low + high) / 2
        try:
            low = binomial.gaussian_radius(sigma, chance, middle)
        except Refused:
            high = middle
    room = excess(1.0, (1 - arb(chance)) / normal(-float(low) / sigma))
    assert 0.8 * SOME <= room <= 3 * SOME


def test_radii_of_certain_labels_and_of_none() -> None:
    assert binomial.gaussian_radius(0.5, 1.0, 2.0) == 2.0
    assert binomial.gaussian_radius(0.5, 0.0, 0.0) == 0.0
    for sigma, chance, claim in (
        *((math.inf, 0.9, 1.0), (0.0, 0.9, 1.0), (0.5, 1.1, 1.0), (0.5, -0.1, 0.0), (0.5, 1.0, math.inf)),
        *((math.nan, 0.9, 1.0), (0.5, math.nan, 1.0), (0.5, 0.9, math.nan), (0.5, 0.9, -1.0)),
    ):
        with pytest.raises(Refused):
            binomial.gaussian_radius(sigma, chance, claim)


def test_certain_successes_and_tails_of_one() -> None:
    """A claim of 1 needs a tail that is at most δ, which none is; at δ itself a tail is small enough."""
    with pytest.raises(Refused):
        binomial.clopper_pearson(4, 4, 0.05, 1.0)
    tail = float(binomial.binomial_tail(3, 5, np.array([0.2]))[0])
    assert binomial.clopper_pearson(3, 5, tail, 0.2) == 0.2
    assert binomial.clopper_pearson(0, 5, 0.05, 0.0) == 0.0
    assert binomial.largest_probability(0, 0) >= 1.0
    assert binomial.largest_probability(-1, 4) == binomial.largest_probability(5, 4) == 0.0
    assert binomial.largest_probability(0, 4) == 1.0


def test_inequalities_by_name() -> None:
    values = torch.linspace(0, 1, 200, dtype=torch.float64)
    by_name = {
        name: concentration.mean_at_most(name, values, 1.0, 0.1, 0.9)
        for name in ("betting", "bernstein", "hoeffding")
    }
    assert by_name["betting"] == 0.9
    assert by_name["hoeffding"] == concentration.hoeffding(values, 1.0, 0.1)
    assert by_name["bernstein"] == concentration.empirical_bernstein(values, 1.0, 0.1)
    assert len(set(by_name.values())) == 3
    with pytest.raises(Refused):
        concentration.mean_at_most("guess", values, 1.0, 0.1, 0.9)


def test_two_values_have_a_variance() -> None:
    values = torch.zeros(2, dtype=torch.float64)
    log = math.log(2 / 0.999)
    assert concentration.empirical_bernstein(values, 0.5, 0.999) == 0.5  # 7/3·ln 2 exceeds 1
    many = torch.zeros(60, dtype=torch.float64)
    assert concentration.empirical_bernstein(many, 0.5, 0.999) == near(7 * 0.5 * log / (3 * 59))


def test_probabilities_that_vanish_are_counted() -> None:
    """P(Bin(12, 10⁻⁴⁰) ≥ 10) = 66·10⁻⁴⁰⁰ is no number of float64, but is not 0."""
    assert float(binomial.binomial_tail(10, 12, np.array([1e-40]))[0]) >= 1e-300
    assert float(binomial.normal_up(np.array([-60.0]))[0]) >= 1e-300
    assert float(binomial.normal_down(np.array([-60.0]))[0]) == 0


def test_logarithms_near_0_cover_the_rounding_of_their_argument() -> None:
    for failure in (1 - 2.0**-53, 1 - 2.0**-52, 1 - 2.0**-40, 0.5):
        exact = -arb(failure).log()
        assert float(arb(concentration._log(1 / failure)) - exact) >= 0.7 * FEW + 0.9 * SOME * float(exact)
