"""The table of activations: base σ, σ' and σ'', with the places where they are extreme.

ELU(1) and CELU are C¹ with a Lipschitz derivative: their σ'' exists almost everywhere, and the bounds hold.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from certus.outward import TINY
from certus.smoothness.activation import Activation, Function
from certus.smoothness.bending import Joint

_FAR = 1e3  # beyond it, all these functions but the algebraic ones equal their limits in float64


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
    """The larger of z and a limit, or the smaller."""
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
