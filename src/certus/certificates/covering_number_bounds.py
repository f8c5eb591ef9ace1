"""The paper's own statistical terms, with every constant an explicit input (theorem:robustness,
theorem:dist-concentration).

They hold for all θ of a class at once, which a fixed network does not need: through covering numbers they are
far too large for deep networks to say anything. They are included for completeness; certificates use
``population``. The paper does not give the numerical constants b₁ and b₂, so results with them are *assumed*;
``softmax_uniform_error`` has explicit constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from certus.errors import CertusError, require, require_count

LogCover = Callable[[float], float]
"""ε ↦ log N(·, ε), the logarithm of a covering number."""


_PIECES = 4096  # of the integral


def uniform_error(
    count: int, ceiling: float, t: float, log_cover: LogCover, *, b1: float, b2: float
) -> float:
    """ε_n(t) = b₁M n^(−1/2) ∫₀¹ √log N(ℱ, Mε) dε + b₂M√(t/n), with probability 1 − e^(−t)
    [theorem:robustness]

    The paper prints γ b₁√(M/n) in the first term; a bound for losses in [−M, M] scales as M, and γ has no
    place in it.

    The integral is a sum over a grid that is finer near 0, with the value at the left of each piece: it is
    rounded up, since √log N falls in ε. The piece [0, 10⁻¹²] is left out, where that value is infinite for
    most classes.

    >>> round(uniform_error(10_000, 1.0, 3.0, lipschitz_cover(2, 1.0, 1.0), b1=1.0, b2=1.0), 4)
    0.0335
    """
    _check(count, t, ceiling=ceiling, b1=b1, b2=b2)
    edges = [10 ** (-12 * (1 - index / _PIECES)) for index in range(_PIECES + 1)]
    total = 0.0
    for left, right in pairwise(edges):
        value = log_cover(ceiling * left)
        require(value >= 0, "log_cover", "not be negative", value)
        total += (right - left) * math.sqrt(value)
    return b1 * ceiling * total / math.sqrt(count) + b2 * ceiling * math.sqrt(t / count)


def lipschitz_error(
    count: int,
    dimension: int,
    t: float,
    *,
    lipschitz: float,
    diameter: float,
    start_bound: float,
    b1: float,
    b2: float,
) -> float:
    """ε_n(t) = b₁M√(d/n) + b₂M√(t/n), M = L diam Θ + M_θ₀; the paper prints √M in the first term
    [eqn:lipschitz-bound]

    >>> lipschitz_error(10_000, 4, 1.0, lipschitz=2.0, diameter=0.5, start_bound=1.0, b1=1.0, b2=1.0)
    0.06
    """
    require_count("dimension", dimension)
    _check(count, t, lipschitz=lipschitz, diameter=diameter, start_bound=start_bound, b1=b1, b2=b2)
    size = lipschitz * diameter + start_bound
    return b1 * size * math.sqrt(dimension / count) + b2 * size * math.sqrt(t / count)


def lipschitz_cover(dimension: int, lipschitz: float, diameter: float) -> LogCover:
    """log N(ℱ, ε) ≤ d log(1 + L diam Θ/ε), for losses L-Lipschitz in θ."""
    return lambda width: dimension * math.log1p(lipschitz * diameter / width)


def softmax_uniform_error(
    count: int, failure: float, *, classes: int, inputs: int, norm: float, radius: float, gamma: float
) -> float:
    """Δ of a bound for all linear softmax classifiers of a ball at once, without an open constant: with
    probability 1 − δ over n independent samples with ‖x‖ ≤ R₀,

        sup_{W_c(P, P₀) ≤ ρ} E_P ℓ(W; Z) ≤ γρ + E_n φ_γ(W; Z) + Δ    for all ‖W‖_F ≤ b and all ρ ≥ 0,

    for one γ, fixed beforehand, and c = ‖x − x₀‖₂². φ_γ lies in [0, M] with M = ln K + √2·b·R₀ + b²/2γ, and
    is √2·R-Lipschitz in W with R = R₀ + √2·b/2γ, since |ℓ(W; z) − ℓ(W'; z)| ≤ √2‖x‖·‖W − W'‖_F wherever T_γ
    goes. A net of width η has at most (1 + 2b/η)^d points, d = K·(number of inputs). Hoeffding's inequality
    at all of them gives, for the best η of a fixed grid,

        Δ = M √((ln(1/δ) + d ln(1 + 2b/η))/2n) + 2√2·R·η                               [theorem:robustness]

    It is computed without directed rounding. Where Δ ≥ M it says nothing.

    Args:
        failure: δ; norm: b; radius: R₀.

    >>> ring = dict(classes=2, inputs=2, norm=1.0, radius=4.0, gamma=2.0)
    >>> round(softmax_uniform_error(30_000, 0.05, **ring), 3)
    0.168
    """
    require_count("classes", classes, least=2)
    require_count("inputs", inputs)
    _check(count, 1.0, norm=norm, radius=radius, gamma=gamma)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    ceiling = math.log(classes) + math.sqrt(2) * norm * radius + norm**2 / (2 * gamma)
    slope = math.sqrt(2) * (radius + math.sqrt(2) * norm / (2 * gamma))

    def error(width: float) -> float:
        cover = classes * inputs * math.log1p(2 * norm / width)
        return ceiling * math.sqrt((math.log(1 / failure) + cover) / (2 * count)) + 2 * slope * width

    return min(error(norm * 2.0**-power) for power in range(60))


def attained_budget_error(
    count: int,
    failure: float,
    log_cover: LogCover,
    *,
    ceiling: float,
    slope: float,
    cross_smoothness: float,
    modulus: float,
) -> float:
    """Largest deviation of ρ̂_n from its population value over all θ, with probability 1 − δ
    [theorem:dist-concentration]

    The least t with t ≥ B√(2(ln(2/δ) + log N(Θ, μt/(4 L_c L_zθ)))/n): the paper uses one letter t for the
    accuracy and for the confidence. B is the range of the cost, 2 L_c M_z, or M_ℓ/γ if the loss is bounded.
    μ = sγ − L⁺ stands for its γ − L_zz.

    Args:
        log_cover: LogCover of Θ in the norm of L_zθ.
        ceiling: B; slope: L_c; cross_smoothness: L_zθ; modulus: μ.
    """
    _check(count, 1.0, ceiling=ceiling, slope=slope, cross_smoothness=cross_smoothness, modulus=modulus)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)

    def enough(t: float) -> bool:
        cover = log_cover(modulus * t / (4 * slope * cross_smoothness))
        return t >= ceiling * math.sqrt(2 * (math.log(2 / failure) + cover) / count)

    high = ceiling
    while not enough(high):
        high *= 2
        if high > 1e12 * ceiling:
            raise CertusError(
                "The covering numbers grow too fast: no accuracy satisfies theorem:dist-concentration."
            )
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(count: int, t: float, **constants: float) -> None:
    require_count("count", count)
    require(0 < t < math.inf, "t", "be positive and finite", t)
    for name, value in constants.items():
        require(0 < value < math.inf, name, "be positive and finite", value)
