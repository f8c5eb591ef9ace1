"""Arithmetic on batches: axis 0 counts the samples, the remaining axes form one point."""

from __future__ import annotations

import torch
from torch import Tensor

from certus.errors import require


def inner(left: Tensor, right: Tensor) -> Tensor:
    """⟨left, right⟩ for each sample. Shapes (batch, …) → (batch,)."""
    return (left * right).flatten(1).sum(1)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape (batch,) to (batch, 1, …, 1), so that it multiplies ``like`` sample by sample."""
    return values.reshape(-1, *([1] * (like.dim() - 1)))


def all_finite(values: Tensor) -> Tensor:
    """Whether every entry of each sample is finite. Shapes (batch, …) → (batch,) bool. The sum decides: it is
    much cheaper than a mask, and where it overflows, the sample is of no use to an ascent either."""
    return torch.isfinite(values.flatten(1).sum(1))


def differentiable(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy that autograd accepts if it was created in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


def as_float64(values: object) -> Tensor:
    """A number or a tensor in float64 on the CPU: some devices, such as MPS, have no float64.

    >>> as_float64(0.1), as_float64(torch.tensor([0.5]))
    (tensor(0.1000, dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    return torch.as_tensor(values.cpu() if isinstance(values, Tensor) else values, dtype=torch.float64)


def format_point(point: Tensor) -> str:
    """Format the first few entries of a point for a message.

    >>> format_point(torch.arange(6.0)), format_point(torch.tensor([[0.5]]))
    ('(0, 1, 2, 3, …)', '(0.5)')
    """
    numbers = ", ".join(f"{number:.6g}" for number in point.flatten()[:4].tolist())
    return f"({numbers}{', …' if point.numel() > 4 else ''})"


def check_broadcast(name: str, value: Tensor, points: Tensor) -> None:
    """Raise ``ArgumentError`` unless ``value`` broadcasts to one point without enlarging it."""
    shape = tuple(points.shape[1:])
    try:
        fits = torch.broadcast_shapes(value.shape, shape) == shape
    except RuntimeError:
        fits = False
    require(fits, name, f"broadcast to the shape {shape} of one input", f"shape {tuple(value.shape)}")
