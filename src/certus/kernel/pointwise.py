"""Activations: a function σ of each unit alone (assumption:activation).

Each is a base function with a sharpness b, one number or one for each unit:

    σ_b(z) = σ(bz)/b,     σ_b'(z) = σ'(bz),     σ_b''(z) = b σ''(bz)

On an interval a smooth function is extreme at an end, or at one of its few critical points, which are listed.
Ranges are widened by 10⁻¹³, far above the rounding of these bounded functions. At a kink σ'' = ±∞.

A layer may compute σ_b + d(z) instead, with 0 ≤ |d| ≤ j/b, as torch's softplus does above its threshold. At
each x the network is then G(x) for a network G whose layer adds the constant d = d(z(x)): the same slopes and
curvatures, and values at every other point that are off by at most j/b. So j/b counts as rounding does.

*Curvature.* A *row* is a function m of a layer's units; its gradient v lies in an interval for each unit. The
network's part of the second derivative is a sum over all activations (sum rule), in which only the sizes of
single entries of v count:

    ∇²m = Σ_l A_lᵀ diag(v_l ∘ σ''(z_l)) A_l
        ≤ Σ_l min(max_n c_n·lipschitz_l², Σ_n c_n·unit_n², λ_max(A_lᵀ diag(c) A_l)),

with c_n the largest value of (v_n σ''_n)⁺; the last form where A_l is a matrix. Where m itself has curvature,
∇²m ⪯ M·I in the units of a layer, an activation makes of it (max rule)

    M ← max_n sup_z M σ'(z)² + v_n σ''(z)          ( = max(M, max_n b_n e_n) for log cosh, e_n = sup v_n⁺)

and a linear layer multiplies by ‖W‖².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.norms import checked_quadratic
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Memory,
    Place,
    Precision,
    Primitive,
    Range,
    Refused,
    Rounded,
    Shape,
    Totals,
    norm,
    times,
)
from certus.kernel.rounding import HUNDREDS, TINY, slack, up

_EIGENVALUE_WORK = 2e9  # multiplications to spend on exact eigenvalues


class Joint(Enum):
    """A relation between σ'' and σ', for the max rule."""

    NOTHING = "nothing"
    ARC = "σ'' ≤ b(1 − σ'²)"
    LOGISTIC = "σ'' = bσ'(1 − σ')"


@dataclass(frozen=True, eq=False)
class Site:
    """The pre-activations of an activation.

    Attributes:
        lipschitz, unit, matrix: those of the ``ForwardBound``.
        slope, curvature: (batch, *shape) ranges of σ' and σ''.
        joint, sharpness: of the activation.
    """

    lipschitz: Tensor
    unit: Tensor
    matrix: Tensor | None
    slope: Range
    curvature: Range
    joint: Joint
    sharpness: float | Tensor

    @property
    def steepest(self) -> Tensor:
        """(batch, *shape) largest |σ'|."""
        return torch.maximum(-self.slope[0], self.slope[1])


def sum_rule(site: Site, weights: Tensor) -> Tensor:
    """sup λ_max(Aᵀ diag(c) A) for c = ``weights`` ≥ 0. Shapes (batch, rows, *shape) → (batch, rows)."""
    whole = times(weights.flatten(2).amax(2), (site.lipschitz**2).unsqueeze(1))
    single = times(weights, (site.unit**2).unsqueeze(1)).flatten(2).sum(2)
    return torch.minimum(torch.minimum(whole, single), exact_curvature(site, weights))


def exact_curvature(site: Site, weights: Tensor) -> Tensor:
    """The eigenvalue for each row, or one for all rows of a sample, or ∞, as far as it is affordable."""
    flat = weights.flatten(2)
    # Row by row: a kink near one sample says nothing of the others, whose bounds must not depend on it.
    finite = torch.isfinite(flat).all(2)
    if site.matrix is None or not bool(finite.any()):
        return flat.new_full(flat.shape[:2], math.inf)
    flat = torch.where(finite.unsqueeze(2), flat, 0.0)
    work = min(site.matrix.shape) ** 2 * max(site.matrix.shape) + 1e4
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        flat = flat.amax(1, keepdim=True)
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        return weights.new_full(weights.shape[:2], math.inf)
    return torch.where(finite, checked_quadratic(site.matrix, flat), math.inf)


def max_rule(site: Site, rows: GradientBound, most: Tensor) -> Tensor:
    """The max rule before its maximum over the units, (batch, rows, *shape). ``most`` is (vσ'')⁺."""
    assert rows.curvature is not None
    before = rows.curvature.reshape(*most.shape[:2], *([1] * (most.dim() - 2)))
    steep = (site.steepest**2).unsqueeze(1)
    bound = times(before, steep) + most
    push = rows.high.clamp_min(0) * site.sharpness
    if site.joint is Joint.ARC:  # linear in σ'², so largest at an end of its range
        crossing = (site.slope[0] < 0) & (site.slope[1] > 0)
        flat = torch.where(crossing, 0.0, torch.minimum(site.slope[0].abs(), site.slope[1].abs()) ** 2)
        squares = flat.unsqueeze(1), steep.clamp_max(1)
        ends = [times(before, square) + push * (1 - square) for square in squares]
        bound = torch.minimum(bound, torch.maximum(*ends))
    if site.joint is Joint.LOGISTIC:  # quadratic in σ', so largest at an end or at its peak
        ends = [p.clamp(0, 1).unsqueeze(1) for p in site.slope]
        values = [times(before, p**2) + push * p * (1 - p) for p in ends]
        inner = push / (2 * (push - before)).clamp_min(TINY)
        within = (push > before) & (inner >= ends[0]) & (inner <= ends[1])
        peak = torch.where(within, push**2 / (4 * (push - before)).clamp_min(TINY), 0.0)
        bound = torch.minimum(bound, torch.maximum(torch.maximum(*values), peak))
    return bound


Function = Callable[[Tensor], Tensor]

_WIDER = HUNDREDS  # absolute: σ' and σ'' of the base functions are of size 1
_ULP = 2.0**-52  # to the next number of either side of a kink, at least
_BESIDE = 1e-9  # a peak this near counts as inside, whatever its last digits
_FAR = 1e3  # beyond it, all these functions but the algebraic ones equal their limits in float64


@dataclass(frozen=True, eq=False)
class Scalar:
    """A function of one number, with its first two derivatives.

    Attributes:
        name, settings: by which ``scalar`` builds it; a user's own function has a name that is not listed.
        slope_peaks, curvature_peaks: where σ' and σ'' have their local extrema, beside the kinks.
        slope_limits: σ' at −∞ and ∞; σ'' vanishes there.
        kinks: where σ' jumps; empty for a smooth function.
        joint: the relation between σ'' and σ'.
        jump: j, the largest |d| of the layer for b = 1.
    """

    name: str
    value: Function
    slope: Function
    curvature: Function
    slope_peaks: tuple[float, ...] = ()
    curvature_peaks: tuple[float, ...] = ()
    slope_limits: tuple[float, float] = (0.0, 1.0)
    kinks: tuple[float, ...] = ()
    joint: Joint = Joint.NOTHING
    jump: float = 0.0
    settings: tuple[float, ...] = ()


class Pointwise(Primitive):
    """An activation of units of one shape; ``sharpness`` is b."""

    def __init__(self, scalar: Scalar, in_shape: Shape, sharpness: float | Tensor = 1.0) -> None:
        self.scalar, self.sharpness = scalar, sharpness
        self.in_shape = self.out_shape = in_shape
        values = torch.as_tensor(sharpness, dtype=torch.float64)
        if not bool((torch.isfinite(values) & (values > 0)).all()):
            raise Refused(f"a sharpness must be positive and finite; got {sharpness}")

    def apply(self, points: Tensor) -> Tensor:
        return self.scalar.value(points * self.sharpness) / self.sharpness

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """The range of σ_b' on [low, high], elementwise; the ends may be infinite."""
        base = self.scalar
        beside = (kink + side * max(TINY, abs(kink) * _ULP) for kink in base.kinks for side in (-1, 0, 1))
        low, high = low * self.sharpness, high * self.sharpness
        return _range(base.slope, (*base.slope_peaks, *beside), base.slope_limits, low, high)

    def curvature_range(self, low: Tensor, high: Tensor) -> Range:
        """The range of σ_b'' on [low, high]; infinite where a kink lies inside."""
        low, high = low * self.sharpness, high * self.sharpness
        least, most = _range(self.scalar.curvature, self.scalar.curvature_peaks, (0.0, 0.0), low, high)
        for kink in self.scalar.kinks:
            inside = _contains(low, high, kink)
            least = torch.where(inside, -math.inf, least)
            most = torch.where(inside, math.inf, most)
        return least * self.sharpness, most * self.sharpness

    @cached_property
    def extremes(self) -> tuple[float, float, float, float]:
        """The least and the largest σ', then σ'', over the whole line and all units."""
        line = torch.tensor([-math.inf], dtype=torch.float64), torch.tensor([math.inf], dtype=torch.float64)
        slopes, curvatures = self.slope_range(*line), self.curvature_range(*line)
        ends = slopes[0].min(), slopes[1].max(), curvatures[0].min(), curvatures[1].max()
        least, most, flattest, sharpest = map(float, ends)
        return least, most, flattest, sharpest

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """e ← sup|σ'|·e, and the rounding of the layer: relative to z and 1/b as well, since σ(bz)/b may
        cancel down from either; and j/b."""
        outputs, sharpness = self.apply(value), torch.as_tensor(self.sharpness, dtype=torch.float64)
        own = slack(8) * (outputs.abs() + value.abs() + 1 / sharpness) + up(self.scalar.jump / sharpness)
        return Rounded(outputs, _largest(*self.slope_range(value - error, value + error)) * error + own)

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        """A factor for each side of 0 rounds, and so does its product; 0, 1 and −1 do not at all."""
        plain = isinstance(self.sharpness, float) and self.sharpness == 1
        if not plain or self.scalar.name != "piecewise_linear" or self.scalar.jump:
            return super().length_error(size, error, precision)
        steepest = max(map(abs, self.scalar.settings))
        exact = set(self.scalar.settings) <= {-1.0, 0.0, 1.0}
        lost = math.sqrt(math.prod(self.in_shape)) * precision.least
        return steepest * error + (0.0 if exact else precision.relative(2) * steepest * size + lost)

    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        """The chain rule: σ' multiplies, and σ'' adds σ''·(Aδ)² to the second derivative."""
        anywhere = torch.full_like(before.unit, math.inf)
        low, high = (-anywhere, anywhere) if within is None else within
        fits = before.matrix is not None and len(before.matrix) == before.unit[0].numel()
        site = Site(
            *(before.lipschitz, before.unit, before.matrix if fits else None),
            *(self.slope_range(low, high), self.curvature_range(low, high)),
            *(self.scalar.joint, self.sharpness),
        )
        unit, steepest = before.unit * site.steepest, site.steepest.flatten(1).amax(1)
        sharpest = _largest(*site.curvature).flatten(1).amax(1)
        lipschitz = torch.minimum(before.lipschitz * steepest, norm(unit))
        curvature = times(sharpest, before.lipschitz**2) + times(steepest, before.curvature)
        return ForwardBound(lipschitz, unit, curvature), site

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """σ' multiplies the gradient; the sum rule adds to the totals, the max rule updates M."""
        site: Site = memory
        corners = [times(v, c.unsqueeze(1)) for v in (rows.low, rows.high) for c in site.curvature]
        convex = _most(corners).clamp_min(0)  # (vσ'')⁺
        totals.add(
            place.node,
            lambda side: sum_rule(site, (-_least(corners)).clamp_min(0) if side else convex),
        )
        corners = [v * s.unsqueeze(1) for v in (rows.low, rows.high) for s in site.slope]
        steepest = site.steepest.flatten(1).amax(1)
        curvature: Tensor | None = None
        if rows.curvature is not None:
            units = max_rule(site, rows, convex)
            curvature = units.flatten(2).amax(2)
            totals.input_curvature = None if place.branch else exact_curvature(site, units)
        length = rows.norm * steepest.unsqueeze(1)
        bound = GradientBound(_least(corners), _most(corners), length, curvature).tightened()
        totals.gain = totals.gain * steepest
        if not place.branch:
            cut = bound.norm * site.lipschitz.unsqueeze(1)
            single = (bound.largest * site.unit.unsqueeze(1)).flatten(2).sum(2)
            totals.lipschitz = torch.minimum(totals.lipschitz, torch.minimum(cut, single))
        return bound

    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        """The slope may be any on the interval around a computed input."""
        low, high = self.slope_range(at.value - at.error, at.value + at.error)
        unsure = high - low + slack(8) * (1 + (at.value * self.sharpness).abs())
        steepest = _largest(low, high).flatten(1).amax(1)
        return steepest * size, steepest * error + (size + error) * unsure.flatten(1).amax(1)

    def amplify(self, size: float) -> float:
        least, most, *_ = self.extremes
        return size * max(1.0, -least, most)


def _least(parts: list[Tensor]) -> Tensor:
    return torch.minimum(torch.minimum(parts[0], parts[1]), torch.minimum(parts[2], parts[3]))


def _most(parts: list[Tensor]) -> Tensor:
    return torch.maximum(torch.maximum(parts[0], parts[1]), torch.maximum(parts[2], parts[3]))


def _largest(low: Tensor, high: Tensor) -> Tensor:
    """The largest absolute value in a range."""
    return torch.maximum(-low, high)


def _contains(low: Tensor, high: Tensor, point: float) -> Tensor:
    return (low <= point + _BESIDE) & (high >= point - _BESIDE)


def _range(
    function: Function, peaks: tuple[float, ...], limits: tuple[float, float], low: Tensor, high: Tensor
) -> Range:
    """The range of a function on [low, high] from its values at both ends and at the peaks between them."""
    at_low, at_high = (
        torch.where(z == -math.inf, limits[0], torch.where(z == math.inf, limits[1], function(z)))
        for z in (low, high)
    )
    least, most = torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)
    for peak in peaks:
        value = function(low.new_tensor([peak]))
        inside = _contains(low, high, peak)
        least = torch.where(inside, torch.minimum(least, value), least)
        most = torch.where(inside, torch.maximum(most, value), most)
    return least - _WIDER, most + _WIDER


# The table of activations. ELU(1) and CELU are C¹ with a Lipschitz derivative: their σ'' exists almost
# everywhere, and the bounds hold.


def _bump(z: Tensor) -> Tensor:
    """s(1 − s) for the logistic s, without cancellation."""
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _softplus(z: Tensor) -> Tensor:
    return torch.logaddexp(z, torch.zeros_like(z))


def _root(z: Tensor) -> Tensor:
    return torch.hypot(z, torch.ones_like(z))


def _both(peak: float, *middle: float) -> tuple[float, ...]:
    return (-peak, *middle, peak)


def _gated(
    name: str,
    value: Function,
    gate: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    slope_peaks: tuple[float, ...],
    curvature_peaks: tuple[float, ...],
) -> Scalar:
    """z·g(z) with derivatives from g, g' and g''."""

    def slope(z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        own, first, _ = gate(z)
        return own + z * first

    def curvature(z: Tensor) -> Tensor:
        z = z.clamp(-_FAR, _FAR)
        _, first, second = gate(z)
        return 2 * first + z * second

    return Scalar(name, value, slope, curvature, slope_peaks, curvature_peaks)


def _gelu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The normal distribution function."""
    density = torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return torch.special.ndtr(z), density, -z * density


def _gelu_tanh(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(1 + tanh u)/2 for a cubic u."""
    scale = math.sqrt(2 / math.pi)
    first, second = scale * (1 + 3 * 0.044715 * z**2), scale * 6 * 0.044715 * z
    t = torch.tanh(scale * (z + 0.044715 * z**3))
    return (1 + t) / 2, (1 - t**2) * first / 2, (1 - t**2) * (second - 2 * t * first**2) / 2


def _silu(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.sigmoid(z), _bump(z), _bump(z) * torch.tanh(-z / 2)


def _mish(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tanh of softplus."""
    t, s = torch.tanh(_softplus(z)), torch.sigmoid(z)
    first = (1 - t**2) * s
    return t, first, first * (1 - s - 2 * t * s)


_SIGMOID_PEAK, _TANH_PEAK = math.log(2 + math.sqrt(3)), math.atanh(1 / math.sqrt(3))
_SMOOTH = (
    Scalar(
        *("sigmoid", torch.sigmoid, _bump, lambda z: _bump(z) * torch.tanh(-z / 2)),
        *((0.0,), _both(_SIGMOID_PEAK), (0.0, 0.0)),
    ),
    Scalar(
        *("tanh", torch.tanh, lambda z: 4 * _bump(2 * z), lambda z: -8 * torch.tanh(z) * _bump(2 * z)),
        *((0.0,), _both(_TANH_PEAK), (0.0, 0.0)),
    ),
    Scalar("softplus", _softplus, torch.sigmoid, _bump, (), (0.0,), joint=Joint.LOGISTIC),
    # The jump of σ'' at 0 is met by its values just left of 0 and right of it.
    Scalar(
        *("elu", torch.celu, lambda z: torch.exp(z.clamp_max(0))),
        *(lambda z: torch.exp(z.clamp_max(0)) * (z < 0), (), (-TINY, 0.0)),
    ),
    _gated("gelu", lambda z: z * torch.special.ndtr(z), _gelu, _both(math.sqrt(2)), _both(2.0, 0.0)),
    _gated(
        *("gelu_tanh", lambda z: z * _gelu_tanh(z)[0], _gelu_tanh),
        *(_both(1.4185040087908284), _both(2.0134807246242579, 0.0)),
    ),
    _gated(
        *("silu", lambda z: z * torch.sigmoid(z), _silu),
        *(_both(2.3993572805154677), _both(3.4358409935351107, 0.0)),
    ),
    _gated(
        *("mish", lambda z: z * torch.tanh(_softplus(z)), _mish, (-2.2563763963607931, 1.4905711794854285)),
        (-3.2673378465204046, -0.087934431314914211, 2.1148425630208771),
    ),
    Scalar(
        *("log_cosh", lambda z: z.abs() + torch.log1p(torch.exp(-2 * z.abs())) - math.log(2), torch.tanh),
        lambda z: 4 * _bump(2 * z),
        *((), (0.0,), (-1.0, 1.0)),
        joint=Joint.ARC,
    ),
    Scalar(
        *("smooth_abs", lambda z: _root(z) - 1, lambda z: z / _root(z), lambda z: _root(z) ** -3),
        *((), (0.0,), (-1.0, 1.0)),
        joint=Joint.ARC,
    ),
)


def _piecewise_linear(left: float, right: float) -> Scalar:
    """Slope ``left`` below 0 and ``right`` above: ReLU, LeakyReLU, |z|."""
    return Scalar(
        "piecewise_linear",
        torch.relu if (left, right) == (0, 1) else lambda z: torch.where(z >= 0, right * z, left * z),
        lambda z: left + (right - left) * (z >= 0).to(z),
        torch.zeros_like,
        slope_limits=(left, right),
        kinks=(0.0,),
    )


def _clamp(low: float, high: float) -> Scalar:
    """Slope 1 on [low, high] and 0 outside; one of the ends may be infinite."""
    if not low < high:
        raise Refused(f"limits {low} and {high} leave nothing between them")
    ends = [end for end in (low, high) if math.isfinite(end)]
    return Scalar(
        "clamp",
        lambda z: z.clamp(low, high),
        lambda z: ((z >= low) & (z <= high)).to(z),
        torch.zeros_like,
        slope_limits=(float(math.isinf(low)), float(math.isinf(high))),
        kinks=tuple(ends),
    )


def _kinked_elu(alpha: float, scale: float) -> Scalar:
    """scale·z above 0, scale·α(eᶻ − 1) below: ELU with α ≠ 1, and SELU."""
    return Scalar(
        "kinked_elu",
        lambda z: scale * torch.where(z > 0, z, alpha * torch.expm1(z.clamp_max(0))),
        lambda z: scale * torch.where(z < 0, alpha * torch.exp(z.clamp_max(0)), 1.0),
        lambda z: scale * alpha * torch.exp(z.clamp_max(0)) * (z < 0),
        slope_limits=(0.0, scale),
        kinks=(0.0,),
    )


_PLAIN = {each.name: each for each in _SMOOTH}
_FAMILIES: dict[str, Callable[..., Scalar]] = {
    "piecewise_linear": _piecewise_linear,
    "clamp": _clamp,
    "kinked_elu": _kinked_elu,
    # ln(1 + e⁻ᵗ), by which torch's softplus jumps at its threshold t, is at most e⁻ᵗ.
    "softplus_threshold": lambda threshold: replace(
        _PLAIN["softplus"], name="softplus_threshold", jump=math.exp(-threshold)
    ),
}


def scalar(name: str, *settings: float) -> Scalar:
    """Return the activation of a name and its settings.

    >>> scalar("tanh").slope_peaks, scalar("piecewise_linear", 0.0, 1.0).kinks
    ((0.0,), (0.0,))
    """
    if name in _PLAIN and not settings:
        return _PLAIN[name]
    if name not in _FAMILIES:
        raise Refused(f"the activation {name!r} is not known")
    return replace(_FAMILIES[name](*settings), settings=settings)
