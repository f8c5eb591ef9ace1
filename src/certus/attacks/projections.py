"""Lp balls {δ : ‖δ‖_p ≤ ε} with one radius per sample, p = 1, 2, ∞: steepest directions, exact projections
and uniform draws. Attacks of different norms differ in these functions alone (eqn:fgsm, eqn:madry).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus._names import NORMS
from certus._tensor import per_sample
from certus.errors import require
from certus.norms import L2


def check_norm(norm: float) -> None:
    """Raise ``ArgumentError`` unless attacks support this p."""
    require(norm in NORMS.values(), "norm", "be 1, 2 or inf", repr(norm))


def steepest(gradient: Tensor, p: float) -> Tensor:
    """Return argmax {⟨g, v⟩ : ‖v‖_p ≤ 1}, and 0 where g is 0. Shapes (batch, …) → (batch, …).

    >>> steepest(torch.tensor([[3.0, -4.0]]), 2.0), steepest(torch.tensor([[3.0, -4.0]]), 1.0)
    (tensor([[ 0.6000, -0.8000]]), tensor([[ 0., -1.]]))
    """
    if p == math.inf:
        return gradient.sign()
    flat = gradient.flatten(1)
    if p == 2:
        flat = flat / _largest(flat)
        return (flat / _safe(L2(flat)).unsqueeze(1)).reshape(gradient.shape)
    first = flat.abs().argmax(1, keepdim=True)
    signs = flat.gather(1, first).sign()
    return torch.zeros_like(flat).scatter(1, first, signs).reshape(gradient.shape)


def steepest_step(point: Tensor, slope: Tensor, length: Tensor, p: float) -> Tensor:
    """Take a step of this length along the steepest direction; slopes that are not finite count as 0.

    >>> steepest_step(torch.zeros(1, 2), torch.tensor([[3.0, -4.0]]), torch.tensor([0.5]), 2.0)
    tensor([[ 0.3000, -0.4000]])
    """
    if p == 2:
        size = L2(slope)
        scale = length / size
        if _ordinary(size) and bool(torch.isfinite(scale.sum())):  # no need of the direction itself
            return torch.addcmul(point, slope, per_sample(scale, point))
    if not bool(torch.isfinite(slope.sum())):
        slope = slope.nan_to_num(0.0, 0.0, 0.0)
    return torch.addcmul(point, per_sample(length, point), steepest(slope, p))


def project(point: Tensor, origin: Tensor, radius: Tensor, p: float) -> Tensor:
    """Return the nearest point, in L2, of the ball around ``origin``. Shapes (batch, …) → (batch, …).

    >>> project(torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2), torch.tensor([2.0]), 1.0)
    tensor([[ 0.5000, -1.5000]])
    """
    offset = point - origin
    if p == 2:
        return torch.addcmul(origin, offset, per_sample(_shrinkage(offset, radius), offset), out=offset)
    if p == math.inf:
        limit = per_sample(radius, offset)
        return offset.maximum(-limit).minimum(limit).add_(origin)  # much faster than a clamp between tensors
    return _project_l1(offset.flatten(1), radius.unsqueeze(1)).reshape(offset.shape).add_(origin)


def uniform(like: Tensor, radius: Tensor, p: float) -> Tensor:
    """Draw points uniformly from the balls, by torch's own generator. Shapes (batch, …) → (batch, …)."""
    if p == math.inf:
        return per_sample(radius, like) * (2 * torch.rand_like(like) - 1)
    flat = like.flatten(1)
    if p == 2:
        direction = torch.randn_like(flat)
        direction = direction / _safe(L2(direction).unsqueeze(1))
    else:
        sizes = torch.empty_like(flat).exponential_()
        direction = sizes / sizes.sum(1, keepdim=True) * (2 * torch.randint_like(flat, 2) - 1)
    depth = torch.rand_like(flat[:, :1]) ** (1 / flat.shape[1])
    return per_sample(radius, like) * (depth * direction).reshape(like.shape)


def _project_l1(offset: Tensor, radius: Tensor) -> Tensor:
    """Soft-threshold at the level t for which the sizes sum to the radius; sorting finds it."""
    sizes = offset.abs()
    ordered = sizes.sort(1, descending=True).values
    count = torch.arange(1, sizes.shape[1] + 1, dtype=sizes.dtype, device=sizes.device)
    levels = (ordered.cumsum(1) - radius) / count
    last = (ordered > levels).sum(1, keepdim=True).clamp_min(1) - 1  # levels rise as long as this holds
    level = levels.gather(1, last).clamp_min(0)
    shrunk = (sizes - level).clamp_min(0)
    # The level of a far point has few digits of a small radius: the rest is scaled away.
    total = shrunk.sum(1, keepdim=True)
    return offset.sign() * torch.where(total > radius, shrunk * (radius / _safe(total)), shrunk)


def _shrinkage(offset: Tensor, radius: Tensor) -> Tensor:
    """Return (batch,) the factor that projects onto the L2 ball, min(1, ε/‖δ‖₂)."""
    length = L2(offset)
    if _ordinary(radius) and bool(torch.isfinite(length.max())):
        return (radius / _safe(length)).clamp_max(1)
    largest = _largest(offset.flatten(1))
    length = L2(offset.flatten(1) / largest)
    return (radius / largest.squeeze(1) / _safe(length)).clamp_max(1)


def _ordinary(lengths: Tensor) -> bool:
    """Whether entries whose squares underflow or overflow are negligible for vectors of these lengths."""
    smallest = torch.finfo(lengths.dtype).tiny ** 0.4
    low, high = torch.aminmax(lengths)
    return bool(low > smallest) and bool(high < 1 / smallest)


def _largest(flat: Tensor) -> Tensor:
    """Return (batch, 1) the largest entry; dividing by it first keeps squares from under- or overflowing."""
    return _safe(flat.abs().amax(1, keepdim=True))


def _safe(lengths: Tensor) -> Tensor:
    """Return lengths that are safe to divide by: never 0."""
    return lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
