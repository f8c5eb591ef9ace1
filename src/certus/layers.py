"""Additional layers with smoothness rules: sums of branches, scalings, smooth absolute values."""

from __future__ import annotations

import copy
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


class Orthogonal(nn.Module):
    """x ↦ Qx + b along the last axis, where Q has orthonormal columns, or rows if it has more columns.

    Q is a Cayley transform of free weights (Trockman and Kolter 2021): with M = [U; V], A = U − Uᵀ + VᵀV,
    and R = (I + A)⁻¹, Q = [R(I − A); −2VR]. Then QᵀQ = I, whatever M is. In eval mode Q is computed in
    float64 and rounded to float32 once; ``plain`` turns the layer into a linear one with these weights.

    >>> layer = Orthogonal(3, 2).eval()
    >>> bool(torch.allclose(layer.weight @ layer.weight.T, torch.eye(2), atol=1e-6))
    True
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        for name, count in (("inputs", inputs), ("outputs", outputs)):
            require(count >= 1, name, "be at least 1", count)
        self.inputs, self.outputs = inputs, outputs
        free = torch.randn(max(inputs, outputs), min(inputs, outputs)) / math.sqrt(max(inputs, outputs))
        self.free = nn.Parameter(free)
        self.bias = nn.Parameter(torch.zeros(outputs))

    @property
    def weight(self) -> Tensor:
        """(outputs, inputs) Q."""
        columns = (
            _cayley(self.free) if self.training else _rounded_once(_cayley(self.free.double()), self.free)
        )
        return columns if self.outputs >= self.inputs else columns.T

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.weight, self.bias)


def _rounded_once(weight: Tensor, like: Tensor) -> Tensor:
    """Weights in float32, whatever the precision of the model: a copy in float64 has the same."""
    return weight.float().to(like.dtype)


def _cayley(free: Tensor) -> Tensor:
    """(n, k) orthonormal columns from (n, k) free weights, n ≥ k."""
    upper, lower = free.split([free.shape[1], len(free) - free.shape[1]])
    # In bfloat16 the columns would be orthonormal to two digits only.
    with torch.autocast(free.device.type, enabled=False):
        skew = upper - upper.T + lower.T @ lower
        identity = torch.eye(len(skew), dtype=free.dtype, device=free.device)
        # R(I − A) = 2R − I, since R(I + A) = I.
        twice: Tensor = 2 * torch.linalg.inv(identity + skew)
        return torch.cat([twice - identity, -lower @ twice])


class Offset(nn.Module):
    """x ↦ x + b, with a number for every coordinate: it tells places apart where shifts wrap around."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.bias


class UnitRows(nn.Linear):
    """A linear layer whose rows are divided by their norms: every output is 1-Lipschitz."""

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(inputs, self.rows, self.bias)

    @property
    def rows(self) -> Tensor:
        """(outputs, inputs) weights of norm 1."""
        if self.training:
            return functional.normalize(self.weight, dim=1)
        return _rounded_once(functional.normalize(self.weight.double(), dim=1), self.weight)


class MaxMin(nn.Module):
    """Larger and smaller of units i and i + n/2 of the last axis, in their places: norms and gradients keep
    their lengths.

    >>> MaxMin()(torch.tensor([[1.0, 5.0, 3.0, 4.0]]))
    tensor([[3., 5., 1., 4.]])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        require(inputs.shape[-1] % 2 == 0, "inputs", "have an even last axis", tuple(inputs.shape))
        first, second = inputs.chunk(2, -1)
        return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], -1)


class Absolute(nn.Module):
    """Absolute value, ``|x|``."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.abs()


class ChannelsLast(nn.Module):
    """(batch, channels, height, width) → (batch, height, width, channels)."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1)


class Unshuffle(nn.Module):
    """Squares of size × size pixels become the channels of one pixel; (batch, height, width, channels)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        require(size >= 1, "size", "be at least 1", size)
        self.size = size

    def forward(self, images: Tensor) -> Tensor:
        size, (batch, height, width, channels) = self.size, images.shape
        fits = height % size == 0 and width % size == 0
        require(fits, "images", f"have sides that {size} divides", (height, width))
        squares = images.reshape(batch, height // size, size, width // size, size, channels)
        return squares.movedim(2, 3).reshape(batch, height // size, width // size, size * size * channels)


class Shift(nn.Module):
    """An eighth of the channels moves by one pixel to each side, around the border; half stay.

    (batch, height, width, channels): how pixels meet in a network whose products are all within a pixel.
    """

    def forward(self, images: Tensor) -> Tensor:
        part = images.shape[-1] // 8
        *moved, rest = images.split([part] * 4 + [images.shape[-1] - 4 * part], -1)
        ways = ((1, 1), (-1, 1), (1, 2), (-1, 2))
        parts = [torch.roll(each, *way) for each, way in zip(moved, ways, strict=True)]
        return torch.cat([*parts, rest], -1)


class LengthPool(nn.Module):
    """Length of each channel over all pixels: (batch, height, width, channels) → (batch, channels)."""

    def forward(self, images: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(images, dim=(1, 2))
        return lengths


def plain(model: nn.Module) -> nn.Module:
    """Return a copy of a model whose orthogonal and normalised layers are linear ones with plain weights."""
    model = copy.deepcopy(model).eval()
    if isinstance(model, Orthogonal | UnitRows):
        weight = model.weight if isinstance(model, Orthogonal) else model.rows
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.weight = nn.Parameter(weight.detach())
        linear.bias = nn.Parameter(model.bias.detach())
        return linear
    for name, child in model.named_children():
        setattr(model, name, plain(child))
    return model
