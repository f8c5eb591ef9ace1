"""The largest curvature and slope that an ascent finds: lower bounds, to be set against proven upper ones.

q(x, v) = vᵀ∇²ℓ(x)v is climbed in both arguments: v by shifted power iteration, x along ∇_x q with steps that
shrink when they fail. Every value met is attained, whatever the ascent does. Sampling finds far less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.losses import CrossEntropy
from tests.bounds.margins import by_margins

Values = Callable[[Tensor], Tensor]
"""One value per sample: (batch, …) → (batch,)."""


def margin_loss(model: nn.Module, targets: Tensor) -> Values:
    """Cross-entropy by its margins, which does not cancel where p_y is nearly 1."""
    loss = by_margins(CrossEntropy())
    return lambda points: loss(model(points), targets)


@dataclass(frozen=True)
class Attained:
    """(batch,) the largest vᵀ∇²ℓv for ‖v‖ ≤ 1, with x and v, (batch, …); and the largest ‖∇ℓ‖, met on the
    way."""

    curvature: Tensor
    point: Tensor
    direction: Tensor
    slope: Tensor


def margin(model: nn.Module, above: int, below: int) -> Values:
    """F_above − F_below."""

    def value(points: Tensor) -> Tensor:
        outputs: Tensor = model(points)
        return outputs[:, above] - outputs[:, below]

    return value


def climb(value: Values, start: Tensor, *, steps: int, radius: float | None = None) -> Attained:
    """Climb q from (batch, …) points, within ``radius`` of each in L2, or anywhere."""
    generator = torch.Generator().manual_seed(0)
    points = start.clone()
    direction = _unit(torch.randn(start.shape, generator=generator, dtype=torch.float64))
    best_point, best_direction = points, direction
    best = torch.full((len(start),), -torch.inf, dtype=torch.float64)
    steepest = torch.zeros_like(best)
    size = _flat(start).norm(dim=1) * 0.1 + 0.1
    for _ in range(steps):
        curvature, push, image, slope = _look(value, points, direction)
        steepest = torch.maximum(steepest, slope)
        better = curvature > best
        best = torch.where(better, curvature, best)
        best_point = torch.where(_wide(better, points), points, best_point)
        best_direction = torch.where(_wide(better, points), direction, best_direction)
        size = torch.where(better, size * 1.3, size * 0.5)
        # Where the last step failed: back, and on with the direction alone.
        shift = _wide(_flat(image).norm(dim=1), image)
        direction = _unit(torch.where(_wide(better, image), image + shift * direction, best_direction))
        points = torch.where(
            _wide(better, points), points + _wide(size, points) * _unit(push), (points + best_point) / 2
        )
        if radius is not None:
            move = points - start
            length = _flat(move).norm(dim=1).clamp_min(1e-300)
            points = start + move * _wide((radius * (1 - 1e-12) / length).clamp_max(1.0), move)
    return Attained(best, best_point, best_direction, steepest)


def _look(value: Values, points: Tensor, direction: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, ∇_x q, ∇²ℓ·v and ‖∇ℓ‖ at some points; NaN counts as nothing found."""
    leaf = points.detach().requires_grad_()
    (slope,) = torch.autograd.grad(value(leaf).sum(), leaf, create_graph=True)
    length = _flat(slope.detach()).norm(dim=1)
    if not slope.requires_grad:  # a linear function
        nothing = torch.zeros_like(points)
        return torch.zeros_like(length), nothing, nothing, length
    (image,) = torch.autograd.grad((slope * direction).sum(), leaf, create_graph=True)
    curvature = _flat(image * direction).sum(1)
    push = torch.zeros_like(points)
    if curvature.requires_grad:
        (push,) = torch.autograd.grad(curvature.sum(), leaf, allow_unused=True, materialize_grads=True)
    return (
        curvature.detach().nan_to_num(-torch.inf, -torch.inf),
        push.detach().nan_to_num(0.0, 0.0, 0.0),
        image.detach().nan_to_num(0.0, 0.0, 0.0),
        length.nan_to_num(0.0, 0.0),
    )


def _flat(vectors: Tensor) -> Tensor:
    return vectors.flatten(1)


def _wide(numbers: Tensor, like: Tensor) -> Tensor:
    return numbers.reshape(-1, *([1] * (like.dim() - 1)))


def _unit(vectors: Tensor) -> Tensor:
    """Of length 1, or shorter: first by the largest entry, since squares of tiny ones vanish."""
    vectors = vectors / _wide(_flat(vectors).abs().amax(1).clamp_min(1e-300), vectors)
    return vectors / _wide(_flat(vectors).norm(dim=1).clamp_min(1.0), vectors)
