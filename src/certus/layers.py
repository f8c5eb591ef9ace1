"""Additional layers with smoothness rules: sums of branches, scalings, smooth absolute values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from certus.errors import require


class Residual(nn.Module):
    """x ↦ branch(x) + shortcut(x); the shortcut is the identity unless given.

    >>> Residual(nn.Linear(3, 3))(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        summed: Tensor = self.branch(inputs) + self.shortcut(inputs)
        return summed


class Normalize(nn.Module):
    """x ↦ (x − mean)/std for each channel (axis 1): input normalisation as part of the model.

    Distances then stay in the units of the raw inputs.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        equal = len(mean) == len(std) >= 1
        require(equal, "mean", "have as many entries as `std`", f"{len(mean)} and {len(std)}")
        require(all(math.isfinite(value) for value in mean), "mean", "be finite", list(mean))
        require(all(0 < value < math.inf for value in std), "std", "be positive and finite", list(std))
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, inputs: Tensor) -> Tensor:
        shape = (-1, *([1] * (inputs.dim() - 2)))
        return (inputs - self.mean.to(inputs).reshape(shape)) / self.std.to(inputs).reshape(shape)


class Scale(nn.Module):
    """x ↦ factor·x for a constant factor."""

    factor: Tensor

    def __init__(self, factor: float) -> None:
        super().__init__()
        require(math.isfinite(factor), "factor", "be finite", factor)
        self.register_buffer("factor", torch.tensor(float(factor)))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs * self.factor.to(inputs)


class _Sharp(nn.Module):
    """σ_b(z) = σ(bz)/b, with one sharpness b > 0 for all units, or one for each."""

    sharpness: Tensor

    def __init__(self, sharpness: float | Tensor = 1.0) -> None:
        super().__init__()
        values = torch.as_tensor(sharpness, dtype=torch.get_default_dtype()).detach().clone()
        valid = bool((torch.isfinite(values) & (values > 0)).all())
        require(valid, "sharpness", "be positive and finite", sharpness)
        self.register_buffer("sharpness", values)


class LogCosh(_Sharp):
    """log cosh(bz)/b, for which σ'' = b(1 − σ'²): the activation with the tightest max rule.

    >>> LogCosh(2.0)(torch.tensor([0.0]))
    tensor([0.])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        sharpness = self.sharpness.to(inputs)
        scaled = sharpness * inputs
        # By softplus: of |z| autograd would lose the curvature at 0, and of logaddexp that of large z.
        return (functional.softplus(2 * scaled, threshold=40.0) - scaled - math.log(2)) / sharpness


class SmoothAbs(_Sharp):
    """√(z² + b⁻²) − b⁻¹: approximates the absolute value and preserves gradient norms; 0 < σ'' ≤ b."""

    def forward(self, inputs: Tensor) -> Tensor:
        corner = 1 / self.sharpness.to(inputs)
        return torch.hypot(inputs, corner) - corner
