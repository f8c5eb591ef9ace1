"""Activations: a function σ of each unit alone (assumption:activation).

Each is a base function with a sharpness b, one number or one for each unit:

    σ_b(z) = σ(bz)/b,     σ_b'(z) = σ'(bz),     σ_b''(z) = b σ''(bz)

On an interval a smooth function is extreme at an end, or at one of its few critical points, which are listed.
Ranges are widened by 10⁻¹³, far above the rounding of these bounded functions. At a kink σ'' = ±∞.

A layer may compute σ_b + d(z) instead, with 0 ≤ |d| ≤ j/b, as torch's softplus does above its threshold. At
each x the network is then G(x) for a network G whose layer adds the constant d = d(z(x)): the same slopes and
curvatures, and values at every other point that are off by at most j/b. So j/b counts as rounding does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from certus.kernel.curvature import Joint, Range, Site, exact_curvature, max_rule, sum_rule
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Place,
    Refused,
    Totals,
    norm,
    per_sample,
    times,
)
from certus.kernel.primitive import Memory, Primitive, Rounded, Shape
from certus.kernel.rounding import HUNDREDS, SOME, TINY, slack, up

Function = Callable[[Tensor], Tensor]

_WIDER = HUNDREDS  # absolute: σ' and σ'' of the base functions are of size 1
_BESIDE = 1e-9  # a peak this near counts as inside, whatever its last digits
_FAR = 1e3  # beyond it, all these functions but the algebraic ones equal their limits in float64


@dataclass(frozen=True, eq=False)
class Scalar:
    """A function of one number, with its first two derivatives.

    Attributes:
        name, settings: by which ``scalar`` builds it; a user's own function has a name that is not listed.
        slope_peaks, curvature_peaks: where σ' and σ'' have their local extrema.
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


class Extremes(NamedTuple):
    """The ranges of σ' and σ'' over the whole line and all units."""

    least_slope: float
    most_slope: float
    least_curvature: float
    most_curvature: float

    @property
    def steepest(self) -> float:
        """sup |σ'|."""
        return max(-self.least_slope, self.most_slope)

    @property
    def sharpest(self) -> float:
        """sup |σ''|."""
        return max(-self.least_curvature, self.most_curvature)


@dataclass(frozen=True, eq=False)
class Pointwise(Primitive):
    """An activation of units of one shape; ``sharpness`` is b."""

    scalar: Scalar
    in_shape: Shape
    sharpness: float | Tensor = 1.0
    out_shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "out_shape", self.in_shape)
        values = torch.as_tensor(self.sharpness, dtype=torch.float64)
        if not bool((torch.isfinite(values) & (values > 0)).all()):
            raise Refused(f"a sharpness must be positive and finite; got {self.sharpness}")

    @property
    def smooth(self) -> bool:
        return not self.scalar.kinks

    def apply(self, points: Tensor) -> Tensor:
        return self.scalar.value(points * self.sharpness) / self.sharpness

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """The range of σ_b' on [low, high], elementwise; the ends may be infinite."""
        low, high = low * self.sharpness, high * self.sharpness
        return _range(self.scalar.slope, self.scalar.slope_peaks, self.scalar.slope_limits, low, high)

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
    def extremes(self) -> Extremes:
        line = torch.tensor([-math.inf], dtype=torch.float64), torch.tensor([math.inf], dtype=torch.float64)
        slopes, curvatures = self.slope_range(*line), self.curvature_range(*line)
        return Extremes(
            *(float(slopes[0].min()), float(slopes[1].max())),
            *(float(curvatures[0].min()), float(curvatures[1].max())),
        )

    def forward(
        self, before: ForwardBound, radius: Tensor | None, values: Primitive
    ) -> tuple[ForwardBound, Memory]:
        """The chain rule: σ' multiplies, and σ'' adds σ''·(Aδ)² to the second derivative."""
        site = self._site(before, radius)
        steep = site.steepest
        unit = before.unit * steep
        lipschitz = torch.minimum(before.lipschitz * steep.flatten(1).amax(1), norm(unit))
        sharp = torch.maximum(site.curvature[0].abs(), site.curvature[1].abs()).flatten(1).amax(1)
        curvature = times(sharp, before.lipschitz**2) + times(steep.flatten(1).amax(1), before.curvature)
        center = error = None
        if before.center is not None and before.error is not None:
            center = self.apply(before.center)
            error = before.error * steep + self._inexact(before.center, center)
        return ForwardBound(lipschitz, unit, curvature, center, error), site

    def _site(self, before: ForwardBound, radius: Tensor | None) -> Site:
        """On a ball units stay within unit·radius of their value at the sample."""
        if before.center is None or before.error is None or radius is None:
            ends = (torch.full_like(before.unit, -math.inf), torch.full_like(before.unit, math.inf))
        else:
            room = up(before.unit * per_sample(radius, before.unit), SOME) + before.error
            ends = (before.center - room, before.center + room)
        fits = before.matrix is not None and len(before.matrix) == before.unit[0].numel()
        return Site(
            *(before.lipschitz, before.unit, self.slope_range(*ends), self.curvature_range(*ends)),
            *(self.scalar.joint, self.sharpness, before.matrix if fits else None),
        )

    def _inexact(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The most by which the layer's own outputs differ from the computed σ_b: rounding is relative to z
        and 1/b as well, since σ(bz)/b may cancel down from either; and j/b."""
        sharpness = torch.as_tensor(self.sharpness, dtype=torch.float64)
        return slack(8) * (outputs.abs() + inputs.abs() + 1 / sharpness) + up(self.scalar.jump / sharpness)

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """σ' multiplies the gradient; the sum rule adds to the totals, the max rule updates M."""
        site: Site = memory
        low, high = rows.low, rows.high
        corners = [times(v, c.unsqueeze(1)) for v in (low, high) for c in site.curvature]
        most = _largest(corners)
        totals.add(
            place.node,
            lambda side: sum_rule(site, _largest([-corner for corner in corners]) if side else most),
        )
        slopes = [v * s.unsqueeze(1) for v in (low, high) for s in site.slope]
        low = torch.minimum(torch.minimum(slopes[0], slopes[1]), torch.minimum(slopes[2], slopes[3]))
        high = torch.maximum(torch.maximum(slopes[0], slopes[1]), torch.maximum(slopes[2], slopes[3]))
        steepest = site.steepest.flatten(1).amax(1)
        curvature: Tensor | None = None
        if rows.curvature is not None:
            units = max_rule(site, rows, most)
            curvature = units.flatten(2).amax(2)
            totals.input_curvature = None if place.branch else exact_curvature(site, units)
        bound = GradientBound(low, high, rows.norm * steepest.unsqueeze(1), curvature)
        largest = bound.largest
        bound = replace(bound, norm=torch.minimum(bound.norm, norm(largest, 2)))
        totals.gain = totals.gain * steepest
        if not place.branch:
            cut = bound.norm * site.lipschitz.unsqueeze(1)
            single = (largest * site.unit.unsqueeze(1)).flatten(2).sum(2)
            totals.lipschitz = torch.minimum(totals.lipschitz, torch.minimum(cut, single))
        return bound

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        outputs = self.apply(value)
        off = self.extremes.steepest * error + self._inexact(value, outputs)
        return Rounded(outputs, off, (value, error))

    def backward_error(self, size: Tensor, error: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        value, off = memory
        low, high = self.slope_range(value - off, value + off)
        unsure = high - low + slack(8) * (1 + (value * self.sharpness).abs())
        steep = torch.maximum(low.abs(), high.abs()).flatten(1).amax(1)
        error = steep * error + (size + error) * unsure.flatten(1).amax(1)
        return steep * size, error

    def amplify(self, size: float) -> float:
        return size * max(1.0, self.extremes.steepest)


def _largest(parts: list[Tensor]) -> Tensor:
    """The largest of four and of 0."""
    return torch.maximum(torch.maximum(parts[0], parts[1]), torch.maximum(parts[2], parts[3])).clamp_min(0)


def _contains(low: Tensor, high: Tensor, point: float) -> Tensor:
    return (low <= point + _BESIDE) & (high >= point - _BESIDE)


def _range(
    function: Function, peaks: tuple[float, ...], limits: tuple[float, float], low: Tensor, high: Tensor
) -> Range:
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


def _near(function: Function) -> Function:
    """The function at arguments clamped to where it has not yet become its limit."""
    return lambda z: function(z.clamp(-_FAR, _FAR))


def _normal(z: Tensor) -> Tensor:
    return torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _bump(z: Tensor) -> Tensor:
    """s(1 − s) for the logistic s, without cancellation."""
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _softplus(z: Tensor) -> Tensor:
    return torch.logaddexp(z, torch.zeros_like(z))


def _exponential(z: Tensor, alpha: float) -> Tensor:
    """z above 0, α(eᶻ − 1) below."""
    return torch.where(z > 0, z, alpha * torch.expm1(z.clamp_max(0)))


def _gelu_parts(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tanh u, u' and u'' for the argument u of the tanh form of GELU."""
    scale = math.sqrt(2 / math.pi)
    inner = scale * (z + 0.044715 * z**3)
    return torch.tanh(inner), scale * (1 + 3 * 0.044715 * z**2), scale * 6 * 0.044715 * z


def _gelu_tanh_slope(z: Tensor) -> Tensor:
    t, first, _ = _gelu_parts(z)
    return (1 + t) / 2 + z / 2 * (1 - t**2) * first


def _gelu_tanh_curvature(z: Tensor) -> Tensor:
    t, first, second = _gelu_parts(z)
    return (1 - t**2) * (first + z / 2 * (second - 2 * t * first**2))


def _mish_slope(z: Tensor) -> Tensor:
    t = torch.tanh(_softplus(z))
    return t + z * (1 - t**2) * torch.sigmoid(z)


def _mish_curvature(z: Tensor) -> Tensor:
    t, s = torch.tanh(_softplus(z)), torch.sigmoid(z)
    first = (1 - t**2) * s
    return 2 * first + z * (first * (1 - s) - 2 * t * s * first)


_SMOOTH = (
    Scalar(
        *("sigmoid", torch.sigmoid, _bump, lambda z: _bump(z) * torch.tanh(-z / 2)),
        slope_peaks=(0.0,),
        curvature_peaks=(-math.log(2 + math.sqrt(3)), math.log(2 + math.sqrt(3))),
        slope_limits=(0.0, 0.0),
    ),
    Scalar(
        *("tanh", torch.tanh, lambda z: 4 * _bump(2 * z), lambda z: -8 * torch.tanh(z) * _bump(2 * z)),
        slope_peaks=(0.0,),
        curvature_peaks=(-math.atanh(1 / math.sqrt(3)), math.atanh(1 / math.sqrt(3))),
        slope_limits=(0.0, 0.0),
    ),
    Scalar(*("softplus", _softplus, torch.sigmoid, _bump), curvature_peaks=(0.0,), joint=Joint.LOGISTIC),
    # The jump of σ'' at 0 is met by its values just left of 0 and right of it.
    Scalar(
        "elu",
        torch.celu,
        lambda z: torch.exp(z.clamp_max(0)),
        lambda z: torch.exp(z.clamp_max(0)) * (z < 0),
        curvature_peaks=(-TINY, 0.0),
    ),
    Scalar(
        "gelu",
        lambda z: z * torch.special.ndtr(z),
        _near(lambda z: torch.special.ndtr(z) + z * _normal(z)),
        _near(lambda z: _normal(z) * (2 - z**2)),
        slope_peaks=(-math.sqrt(2), math.sqrt(2)),
        curvature_peaks=(-2.0, 0.0, 2.0),
    ),
    Scalar(
        "gelu_tanh",
        lambda z: z / 2 * (1 + _gelu_parts(z)[0]),
        _near(_gelu_tanh_slope),
        _near(_gelu_tanh_curvature),
        slope_peaks=(-1.4185040087908284, 1.4185040087908284),
        curvature_peaks=(-2.0134807246242579, 0.0, 2.0134807246242579),
    ),
    Scalar(
        "silu",
        lambda z: z * torch.sigmoid(z),
        _near(lambda z: torch.sigmoid(z) + z * _bump(z)),
        _near(lambda z: _bump(z) * (2 + z * torch.tanh(-z / 2))),
        slope_peaks=(-2.3993572805154677, 2.3993572805154677),
        curvature_peaks=(-3.4358409935351107, 0.0, 3.4358409935351107),
    ),
    Scalar(
        *("mish", lambda z: z * torch.tanh(_softplus(z)), _near(_mish_slope), _near(_mish_curvature)),
        slope_peaks=(-2.2563763963607931, 1.4905711794854285),
        curvature_peaks=(-3.2673378465204046, -0.087934431314914211, 2.1148425630208771),
    ),
    Scalar(
        "log_cosh",
        lambda z: z.abs() + torch.log1p(torch.exp(-2 * z.abs())) - math.log(2),
        torch.tanh,
        lambda z: 4 * _bump(2 * z),
        curvature_peaks=(0.0,),
        slope_limits=(-1.0, 1.0),
        joint=Joint.ARC,
    ),
    Scalar(
        "smooth_abs",
        lambda z: torch.hypot(z, torch.ones_like(z)) - 1,
        lambda z: z / torch.hypot(z, torch.ones_like(z)),
        lambda z: torch.hypot(z, torch.ones_like(z)) ** -3,
        curvature_peaks=(0.0,),
        slope_limits=(-1.0, 1.0),
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
        slope_peaks=(-TINY, 0.0),
        slope_limits=(left, right),
        kinks=(0.0,),
    )


def _clamp(low: float, high: float) -> Scalar:
    """Slope 1 on [low, high] and 0 outside; one of the ends may be infinite."""
    ends = [end for end in (low, high) if math.isfinite(end)]
    if not low < high:
        raise Refused(f"limits {low} and {high} leave nothing between them")
    return Scalar(
        "clamp",
        lambda z: z.clamp(low, high),
        lambda z: ((z >= low) & (z <= high)).to(z),
        torch.zeros_like,
        slope_peaks=tuple(
            peak
            for end in ends
            for peak in (math.nextafter(end, -math.inf), end, math.nextafter(end, math.inf))
        ),
        slope_limits=(0.0 if math.isfinite(low) else 1.0, 0.0 if math.isfinite(high) else 1.0),
        kinks=tuple(ends),
    )


def _kinked_elu(alpha: float, scale: float) -> Scalar:
    """scale·z above 0, scale·α(eᶻ − 1) below: ELU with α ≠ 1, and SELU."""
    return Scalar(
        "kinked_elu",
        lambda z: scale * _exponential(z, alpha),
        lambda z: scale * torch.where(z < 0, alpha * torch.exp(z.clamp_max(0)), 1.0),
        lambda z: scale * alpha * torch.exp(z.clamp_max(0)) * (z < 0),
        slope_peaks=(-TINY, 0.0),
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
