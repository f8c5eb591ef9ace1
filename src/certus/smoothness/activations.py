"""The activation table: exact ranges of σ' and σ'', on the whole line or on intervals
(assumption:activation).

Each activation is a base σ with a sharpness b, one number or one for each unit:

    σ_b(z) = σ(bz)/b,     σ_b'(z) = σ'(bz),     σ_b''(z) = b σ''(bz)

On an interval a smooth function is extreme at an end, or at one of its few critical points, which are listed.
Ranges are widened by 10⁻¹³, far above the rounding of these bounded functions. ELU(1) and CELU are C¹ with a
Lipschitz derivative: their σ'' exists almost everywhere, and the bounds hold. At a kink σ'' = ±∞.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

Function = Callable[[Tensor], Tensor]
Range = tuple[Tensor, Tensor]

_WIDER = 1e-13
_FAR = 1e3  # beyond it, all these functions but the algebraic ones equal their limits in float64


class Joint(Enum):
    """What is known of σ'' as a function of σ', for the max rule."""

    NOTHING = "nothing"
    ARC = "σ'' ≤ b(1 − σ'²)"
    LOGISTIC = "σ'' = bσ'(1 − σ')"


@dataclass(frozen=True, eq=False)
class Activation:
    """A function of each unit alone.

    Attributes:
        value, slope, curvature: base σ, σ' and σ''.
        slope_peaks, curvature_peaks: where σ' and σ'' have their local extrema.
        slope_limits: σ' at −∞ and ∞; σ'' vanishes there.
        kinks: where σ' jumps; empty for a smooth activation.
        joint: how σ'' is tied to σ'.
        sharpness: b.
        printed_curvature: sup|σ''| as the paper prints it, where that differs.
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
    printed_curvature: float | None = None

    @property
    def smooth(self) -> bool:
        return not self.kinks

    def apply(self, inputs: Tensor) -> Tensor:
        """σ_b."""
        return self.value(inputs * self.sharpness) / self.sharpness

    def slope_range(self, low: Tensor, high: Tensor) -> Range:
        """The range of σ_b' on [low, high], elementwise; the ends may be infinite."""
        low, high = low * self.sharpness, high * self.sharpness
        return _range(self.slope, self.slope_peaks, self.slope_limits, low, high)

    def curvature_range(self, low: Tensor, high: Tensor) -> Range:
        """The range of σ_b'' on [low, high]; infinite where a kink lies inside."""
        low, high = low * self.sharpness, high * self.sharpness
        least, most = _range(self.curvature, self.curvature_peaks, (0.0, 0.0), low, high)
        for kink in self.kinks:
            inside = _contains(low, high, kink)
            least = torch.where(inside, -math.inf, least)
            most = torch.where(inside, math.inf, most)
        return least * self.sharpness, most * self.sharpness

    def extremes(self) -> tuple[float, float, float, float]:
        """(inf σ', sup σ', inf σ'', sup σ'') over the whole line and all units."""
        return self._extremes

    @cached_property
    def _extremes(self) -> tuple[float, float, float, float]:
        line = torch.tensor([-math.inf], dtype=torch.float64), torch.tensor([math.inf], dtype=torch.float64)
        slopes, curvatures = self.slope_range(*line), self.curvature_range(*line)
        return (
            *(float(slopes[0].min()), float(slopes[1].max())),
            *(float(curvatures[0].min()), float(curvatures[1].max())),
        )


def _contains(low: Tensor, high: Tensor, point: float) -> Tensor:
    return (low <= point + 1e-9) & (high >= point - 1e-9)


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


def _near(function: Function) -> Function:
    """The function at arguments clamped to where it has not yet become its limit."""
    return lambda z: function(z.clamp(-_FAR, _FAR))


def _normal(z: Tensor) -> Tensor:
    return torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def _bump(z: Tensor) -> Tensor:
    """s(1 − s) for the logistic s, without cancellation."""
    return torch.sigmoid(z) * torch.sigmoid(-z)


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
    printed_curvature=0.1,
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
    curvature_peaks=(-1e-300, 0.0),
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
        slope_peaks=(-1e-300, 0.0),
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


def kinked_elu(name: str, alpha: float, scale: float = 1.0) -> Activation:
    """scale·z above 0, scale·α(eᶻ − 1) below: ELU with α ≠ 1, and SELU."""
    return Activation(
        name,
        lambda z: scale * functional.elu(z, alpha),
        lambda z: scale * torch.where(z < 0, alpha * torch.exp(z.clamp_max(0)), 1.0),
        lambda z: scale * alpha * torch.exp(z.clamp_max(0)) * (z < 0),
        slope_peaks=(-1e-300, 0.0),
        slope_limits=(0.0, scale),
        kinks=(0.0,),
    )
