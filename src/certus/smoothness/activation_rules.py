"""Rules of the activations that have settings of their own."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from certus.errors import ArgumentError, UnsupportedError
from certus.layers import LogCosh, SmoothAbs
from certus.smoothness import activations as table
from certus.smoothness.activation import Activation
from certus.smoothness.rules import double, rule
from certus.smoothness.stage import Shape, Stage


def _sharpened(activation: Activation, sharpness: float | Tensor) -> Activation:
    values = torch.as_tensor(sharpness, dtype=torch.float64)
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise UnsupportedError(f"a sharpness of {sharpness}; it must be positive and finite")
    return replace(activation, sharpness=sharpness)


@rule(nn.Softplus)
def softplus(module: nn.Softplus, shape: Shape) -> Stage:
    """The true softplus; torch puts z in its place where bz exceeds the threshold t, and jumps down there by
    ln(1 + e⁻ᵗ)/b, which is 2·10⁻⁹/b for t = 20, the default."""
    if not module.threshold >= 20:
        raise UnsupportedError(
            f"threshold={module.threshold}, below which softplus jumps; it must be at least 20"
        )
    jumping = replace(table.SOFTPLUS, jump=math.exp(-float(module.threshold)))
    return _sharpened(jumping, float(module.beta))


@rule(nn.ELU)
def elu(module: nn.ELU, shape: Shape) -> Stage:
    return table.ELU if module.alpha == 1 else table.kinked_elu(f"ELU({module.alpha:g})", module.alpha)


@rule(nn.CELU)
def celu(module: nn.CELU, shape: Shape) -> Stage:
    if module.alpha <= 0:
        raise UnsupportedError(f"alpha={module.alpha}; it must be positive")
    return _sharpened(table.ELU, 1 / module.alpha)


@rule(nn.GELU)
def gelu(module: nn.GELU, shape: Shape) -> Stage:
    return table.GELU if module.approximate == "none" else table.GELU_TANH


@rule(nn.LeakyReLU)
def leaky_relu(module: nn.LeakyReLU, shape: Shape) -> Stage:
    slope = module.negative_slope
    return table.piecewise_linear("LeakyReLU", slope, 1.0, lambda z: functional.leaky_relu(z, slope))


@rule(nn.Hardtanh)
def hardtanh(module: nn.Hardtanh, shape: Shape) -> Stage:
    return table.clamp("Hardtanh", module.min_val, module.max_val)


@rule(LogCosh)
def log_cosh(module: LogCosh, shape: Shape) -> Stage:
    return _sharpened(table.LOG_COSH, _per_unit(module.sharpness, shape))


@rule(SmoothAbs)
def smooth_abs(module: SmoothAbs, shape: Shape) -> Stage:
    return _sharpened(table.SMOOTH_ABS, _per_unit(module.sharpness, shape))


def _per_unit(sharpness: Tensor, shape: Shape) -> float | Tensor:
    values = double(sharpness)
    if values.dim() > len(shape) or torch.broadcast_shapes(values.shape, shape) != torch.Size(shape):
        raise ArgumentError(f"`sharpness` must fit units of shape {shape}; got shape {tuple(values.shape)}.")
    return float(values) if values.dim() == 0 else values
