"""Nonlinear layers: activations with the ranges of σ' and σ'', max pooling, and a final log-softmax.

An activation is a function σ of each unit (assumption:activation) with a sharpness b, one number or one for
each unit:

    σ_b(z) = σ(bz)/b,     σ_b'(z) = σ'(bz),     σ_b''(z) = b σ''(bz)

On an interval a smooth function is extreme at an end, or at one of its few critical points, which are listed.
Ranges are widened by 10⁻¹³, far above the rounding of these bounded functions. At a kink σ'' = ±∞. ELU(1) and
CELU are C¹ with a Lipschitz derivative: their σ'' exists almost everywhere, and the bounds hold.

A layer may compute σ_b + d(z) instead, with 0 ≤ |d| ≤ j/b, as torch's softplus does above its threshold. At
each x the network is then G(x) for a network G whose layer adds the constant d = d(z(x)): the same slopes and
curvatures, and values at every other point that are off by at most j/b. So j/b is treated as rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.nn import functional

from certus._tensor import per_sample
from certus.bounds.curvature_rules import (
    Joint,
    Range,
    Site,
    exact_curvature,
    max_rule_curvature,
    sum_rule_curvature,
)
from certus.bounds.passes import Position, Reach, Rounded, Rows, Saved, Shape, Stage, Totals, size, times
from certus.bounds.smoothness import LayerBound
from certus.errors import UnsupportedError
from certus.rounding import FEW, HUNDREDS, SOME, TINY, slack, up

Function = Callable[[Tensor], Tensor]

_WIDENING = HUNDREDS  # absolute: σ' and σ'' of the base functions are of size 1
_BESIDE = 1e-9  # distance at which a peak outside an interval counts as inside


class Extremes(NamedTuple):
    """Ranges of σ' and σ'' over all units."""

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
class Activation(Stage):
    """A function of each unit.

    Attributes:
        value, slope, curvature: base σ, σ' and σ''.
        slope_peaks, curvature_peaks: local extrema of σ' and σ''.
        slope_limits: σ' at −∞ and ∞; σ'' vanishes there.
        kinks: points where σ' jumps; empty for a smooth activation.
        joint: relation of σ'' to σ'.
        sharpness: b.
        jump: j, the largest |d| of the layer for b = 1.
        paper_curvature: sup|σ''| as printed in the paper, if that differs.
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
    sharpness: float | Tensor = 1.0
    jump: float = 0.0
    paper_curvature: float | None = None

    @property
    def smooth(self) -> bool:
        return not self.kinks

    @property
    def depth(self) -> int:
        return 1

    def apply(self, inputs: Tensor) -> Tensor:
        """σ_b."""
        return self.value(inputs * self.sharpness) / self.sharpness

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """Range of σ_b' on [low, high], elementwise; the ends may be infinite."""
        low, high = low * self.sharpness, high * self.sharpness
        return _range(self.slope, self.slope_peaks, self.slope_limits, low, high)

    def curvature_range(self, low: Tensor, high: Tensor) -> Range:
        """Range of σ_b'' on [low, high]; infinite if it contains a kink."""
        low, high = low * self.sharpness, high * self.sharpness
        least, most = _range(self.curvature, self.curvature_peaks, (0.0, 0.0), low, high)
        for kink in self.kinks:
            inside = _contains(low, high, kink)
            least = torch.where(inside, -math.inf, least)
            most = torch.where(inside, math.inf, most)
        return least * self.sharpness, most * self.sharpness

    @cached_property
    def extremes(self) -> Extremes:
        """Ranges over the whole line and all units."""
        line = torch.tensor([-math.inf], dtype=torch.float64), torch.tensor([math.inf], dtype=torch.float64)
        slopes, curvatures = self.slope_range(*line), self.curvature_range(*line)
        return Extremes(
            *(float(slopes[0].min()), float(slopes[1].max())),
            *(float(curvatures[0].min()), float(curvatures[1].max())),
        )

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        site = self._meet(before, radius)
        steep = site.steepest
        unit = before.unit * steep
        length = torch.minimum(before.length * steep.flatten(1).amax(1), size(unit))
        sharpest = torch.maximum(site.curvature[0].abs(), site.curvature[1].abs()).flatten(1).amax(1)
        curvature = times(sharpest, before.length**2) + times(steep.flatten(1).amax(1), before.curvature)
        center = error = None
        if before.center is not None and before.error is not None:
            center = self.apply(before.center)
            error = before.error * steep + self._inexact(before.center, center)
        return Reach(length, unit, curvature, center, error), site

    def _meet(self, before: Reach, radius: Tensor | None) -> Site:
        """On a ball units stay within unit·radius of their value at the sample."""
        if before.center is None or before.error is None or radius is None:
            ends = (torch.full_like(before.unit, -math.inf), torch.full_like(before.unit, math.inf))
        else:
            room = up(before.unit * per_sample(radius, before.unit), SOME) + before.error
            ends = (before.center - room, before.center + room)
        fits = before.matrix is not None and len(before.matrix) == before.unit[0].numel()
        return Site(
            *(before.length, before.unit, self.slope_range(*ends), self.curvature_range(*ends)),
            *(self.joint, self.sharpness, before.matrix if fits else None),
        )

    def _inexact(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """Bound |computed layer − σ_b|: rounding is relative to z and 1/b as well, since σ(bz)/b may cancel
        from either; plus j/b.
        """
        sharpness = torch.as_tensor(self.sharpness, dtype=torch.float64)
        return slack(8) * (outputs.abs() + inputs.abs() + 1 / sharpness) + up(self.jump / sharpness)

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        site: Site = saved
        low, high = rows.low, rows.high
        corners = [times(v, c.unsqueeze(1)) for v in (low, high) for c in site.curvature]
        most, opposite = _largest(corners), _largest([-corner for corner in corners])
        totals.add(position.path, sum_rule_curvature(site, most), sum_rule_curvature(site, opposite))
        slopes = [v * s.unsqueeze(1) for v in (low, high) for s in site.slope]
        low = torch.minimum(torch.minimum(slopes[0], slopes[1]), torch.minimum(slopes[2], slopes[3]))
        high = torch.maximum(torch.maximum(slopes[0], slopes[1]), torch.maximum(slopes[2], slopes[3]))
        steepest = site.steepest.flatten(1).amax(1)
        after: Tensor | None = None
        if rows.curvature is not None:
            units = max_rule_curvature(site, rows, most)
            after = units.flatten(2).amax(2)
            totals.ending = None if position.inside else exact_curvature(site, units)
        result = Rows(low, high, rows.length * steepest.unsqueeze(1), after).capped()
        largest = result.largest
        totals.gain = totals.gain * steepest
        if not position.inside:
            cut = result.length * site.length.unsqueeze(1)
            single = (largest * site.unit.unsqueeze(1)).flatten(2).sum(2)
            totals.lipschitz = torch.minimum(totals.lipschitz, torch.minimum(cut, single))
        return result

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        after = self.apply(value)
        off = self.extremes.steepest * error + self._inexact(value, after)
        return Rounded(after, off, (value, error))

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        value, off = saved
        low, high = self.slope_range(value - off, value + off)
        unsure = high - low + slack(8) * (1 + (value * self.sharpness).abs())
        steep = torch.maximum(low.abs(), high.abs()).flatten(1).amax(1)
        error = steep * error + (size + error) * unsure.flatten(1).amax(1)
        return steep * size, error

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        slope = self.extremes.steepest
        curved = self.paper_curvature or self.extremes.sharpest
        return slope * length, slope * curvature + (curved * length * length if length else 0.0)

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        own = float(added[path][0]) if path in added else 0.0
        return [LayerBound(path, kind, self.extremes.steepest, self.extremes.sharpest, behind, own)]


def _largest(parts: list[Tensor]) -> Tensor:
    """The largest of four tensors and 0."""
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
    return least - _WIDENING, most + _WIDENING


_FAR = 1e3  # beyond it, all these functions but the algebraic ones equal their limits in float64


def _near(function: Function) -> Function:
    """Restrict the argument to the region where the function differs from its limits."""
    return lambda z: function(z.clamp(-_FAR, _FAR))


def _normal(z: Tensor) -> Tensor:
    return torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _bump(z: Tensor) -> Tensor:
    """s(1 − s) for the logistic function s, without cancellation."""
    return torch.sigmoid(z) * torch.sigmoid(-z)


def _gelu_parts(z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tanh u, u' and u'' for the argument u in the tanh form of GELU."""
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
    t = torch.tanh(functional.softplus(z))
    return t + z * (1 - t**2) * torch.sigmoid(z)


def _mish_curvature(z: Tensor) -> Tensor:
    t, s = torch.tanh(functional.softplus(z)), torch.sigmoid(z)
    first = (1 - t**2) * s
    return 2 * first + z * (first * (1 - s) - 2 * t * s * first)


SIGMOID = Activation(
    *("sigmoid", torch.sigmoid, _bump, lambda z: _bump(z) * torch.tanh(-z / 2)),
    slope_peaks=(0.0,),
    curvature_peaks=(-math.log(2 + math.sqrt(3)), math.log(2 + math.sqrt(3))),
    slope_limits=(0.0, 0.0),
    paper_curvature=0.1,
)
TANH = Activation(
    *("tanh", torch.tanh, lambda z: 4 * _bump(2 * z), lambda z: -8 * torch.tanh(z) * _bump(2 * z)),
    slope_peaks=(0.0,),
    curvature_peaks=(-math.atanh(1 / math.sqrt(3)), math.atanh(1 / math.sqrt(3))),
    slope_limits=(0.0, 0.0),
)
SOFTPLUS = Activation(
    *("softplus", lambda z: torch.logaddexp(z, torch.zeros_like(z)), torch.sigmoid, _bump),
    curvature_peaks=(0.0,),
    joint=Joint.LOGISTIC,
)
# The jump of σ'' at 0 is met by its values just left of 0 and right of it.
ELU = Activation(
    *(
        "ELU",
        functional.elu,
        lambda z: torch.exp(z.clamp_max(0)),
        lambda z: torch.exp(z.clamp_max(0)) * (z < 0),
    ),
    curvature_peaks=(-TINY, 0.0),
)
GELU = Activation(
    "GELU",
    functional.gelu,
    _near(lambda z: torch.special.ndtr(z) + z * _normal(z)),
    _near(lambda z: _normal(z) * (2 - z**2)),
    slope_peaks=(-math.sqrt(2), math.sqrt(2)),
    curvature_peaks=(-2.0, 0.0, 2.0),
)
GELU_TANH = Activation(
    "GELU (tanh)",
    lambda z: functional.gelu(z, approximate="tanh"),
    _near(_gelu_tanh_slope),
    _near(_gelu_tanh_curvature),
    slope_peaks=(-1.4185040087908284, 1.4185040087908284),
    curvature_peaks=(-2.0134807246242579, 0.0, 2.0134807246242579),
)
SILU = Activation(
    "SiLU",
    functional.silu,
    _near(lambda z: torch.sigmoid(z) + z * _bump(z)),
    _near(lambda z: _bump(z) * (2 + z * torch.tanh(-z / 2))),
    slope_peaks=(-2.3993572805154677, 2.3993572805154677),
    curvature_peaks=(-3.4358409935351107, 0.0, 3.4358409935351107),
)
MISH = Activation(
    *("Mish", functional.mish, _near(_mish_slope), _near(_mish_curvature)),
    slope_peaks=(-2.2563763963607931, 1.4905711794854285),
    curvature_peaks=(-3.2673378465204046, -0.087934431314914211, 2.1148425630208771),
)
LOG_COSH = Activation(
    "log cosh",
    lambda z: z.abs() + torch.log1p(torch.exp(-2 * z.abs())) - math.log(2),
    torch.tanh,
    lambda z: 4 * _bump(2 * z),
    curvature_peaks=(0.0,),
    slope_limits=(-1.0, 1.0),
    joint=Joint.ARC,
)
SMOOTH_ABS = Activation(
    "smooth absolute value",
    lambda z: torch.hypot(z, torch.ones_like(z)) - 1,
    lambda z: z / torch.hypot(z, torch.ones_like(z)),
    lambda z: torch.hypot(z, torch.ones_like(z)) ** -3,
    curvature_peaks=(0.0,),
    slope_limits=(-1.0, 1.0),
    joint=Joint.ARC,
)


def piecewise_linear(name: str, left: float, right: float, value: Function) -> Activation:
    """Slope ``left`` below 0 and ``right`` above, such as ReLU and LeakyReLU."""
    return Activation(
        *(name, value, lambda z: left + (right - left) * (z >= 0).to(z), torch.zeros_like),
        slope_peaks=(-TINY, 0.0),
        slope_limits=(left, right),
        kinks=(0.0,),
    )


def clamp(name: str, low: float, high: float) -> Activation:
    """Slope 1 on [low, high] and 0 outside, such as Hardtanh and ReLU6."""
    return Activation(
        name,
        lambda z: z.clamp(low, high),
        lambda z: ((z >= low) & (z <= high)).to(z),
        torch.zeros_like,
        slope_peaks=(math.nextafter(low, -math.inf), low, high, math.nextafter(high, math.inf)),
        slope_limits=(0.0, 0.0),
        kinks=(low, high),
    )


def one_sided(name: str, limit: float, *, above: bool) -> Activation:
    """max(z, limit), or min(z, limit)."""
    steps = (math.nextafter(limit, -math.inf), limit, math.nextafter(limit, math.inf))
    return Activation(
        name,
        lambda z: z.clamp_min(limit) if above else z.clamp_max(limit),
        lambda z: (z >= limit if above else z <= limit).to(z),
        torch.zeros_like,
        slope_peaks=steps,
        slope_limits=(0.0, 1.0) if above else (1.0, 0.0),
        kinks=(limit,),
    )


def kinked_elu(name: str, alpha: float, scale: float = 1.0) -> Activation:
    """scale·z above 0, scale·α(eᶻ − 1) below: ELU with α ≠ 1, and SELU."""
    return Activation(
        name,
        lambda z: scale * functional.elu(z, alpha),
        lambda z: scale * torch.where(z < 0, alpha * torch.exp(z.clamp_max(0)), 1.0),
        lambda z: scale * alpha * torch.exp(z.clamp_max(0)) * (z < 0),
        slope_peaks=(-TINY, 0.0),
        slope_limits=(0.0, scale),
        kinks=(0.0,),
    )


@dataclass(frozen=True, eq=False)
class MaxPool(Stage):
    """The maximum of each window, which is not smooth.

    Attributes:
        maximum: (batch, *in) → (batch, *out).
        spread: the transpose of summing each window: (batch, *out) → (batch, *in).
        overlap: largest number of windows that share an entry; its root is the Lipschitz constant.
    """

    in_shape: Shape
    out_shape: Shape
    maximum: Callable[[Tensor], Tensor]
    spread: Callable[[Tensor], Tensor]
    overlap: int

    @property
    def gain(self) -> float:
        return up(math.sqrt(self.overlap), FEW)

    def output_shape(self, shape: Shape) -> Shape:
        return self.out_shape

    @property
    def smooth(self) -> bool:
        return False

    def apply(self, points: Tensor) -> Tensor:
        return self.maximum(points)

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        unit = self.maximum(before.unit)
        length = torch.minimum(before.length * self.gain, size(unit))
        center = None if before.center is None else self.maximum(before.center)
        error = None if before.error is None else self.maximum(before.error)
        return Reach(length, unit, torch.full_like(before.curvature, math.inf), center, error), None

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        form = (*rows.low.shape[:2], *self.in_shape)
        low, high = (
            self.spread(part.flatten(0, 1)).reshape(form) * (1 + slack(self.overlap))
            for part in (rows.low.clamp_max(0), rows.high.clamp_min(0))
        )
        kinked = torch.where(rows.length > 0, math.inf, torch.zeros_like(rows.length))
        totals.add(position.path, kinked, kinked)
        totals.gain = totals.gain * self.gain
        curvature = None if rows.curvature is None else rows.curvature + kinked
        return Rows(low, high, rows.length * self.gain, curvature).capped()

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        return Rounded(self.maximum(value), self.maximum(error), None)

    @property
    def depth(self) -> int:
        return 1

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        """The error of a gradient is as large as the gradient: another entry may have been the maximum."""
        return self.gain * size, self.gain * (error + 2 * size)

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        return math.sqrt(self.overlap) * length, math.inf

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        own = float(added[path][0]) if path in added else 0.0
        return [LayerBound(path, kind, math.sqrt(self.overlap), math.inf, behind, own)]


class LogSoftmax(Stage):
    """Log-softmax as the last layer, F ↦ F − log Σ exp F over the only axis of a sample.

    It subtracts one number from all outputs, and classification losses depend on differences of outputs only.
    So the loss is the same without it, and the bounds omit it. Anywhere else it has no rule.
    """

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def apply(self, points: Tensor) -> Tensor:
        return torch.log_softmax(points, 1)

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        refuse_log_softmax()

    forward = backward = forward_rounding = backward_rounding = paper_constants = table_rows = _refuse


def log_softmax_over(axis: int | None, shape: Shape) -> Stage:
    """The stage for a given axis, counting the batch."""
    if len(shape) != 1 or axis not in (1, -1):
        raise UnsupportedError(f"dim={axis} for inputs of shape {shape}; it must be the axis of the classes")
    return LogSoftmax()


def refuse_log_softmax() -> NoReturn:
    """Raise ``UnsupportedError``: no bound passes through a log-softmax."""
    raise UnsupportedError(
        "log_softmax has a rule as the last layer only, before CrossEntropy or SmoothMargin."
    )
