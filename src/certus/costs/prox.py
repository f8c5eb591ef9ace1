"""Proximal steps of the squared sup-norm and the squared L1 norm, by sorting (prop:prox).

For a weight a > 0, and with or without bounds that z₀ keeps,

    prox(w) = argmin_z (a/2)‖z − z₀‖² + ½‖z − w‖₂²

moves from z₀ towards w, coordinate by coordinate. The sizes |zᵢ − z₀ᵢ| depend on the distances
vᵢ = |wᵢ − z₀ᵢ|, on the room rᵢ up to the bound on that side, and on one scalar:

    sup-norm:  min(vᵢ, rᵢ, t)                  a t = Σ (vᵢ − t) over min(vᵢ, rᵢ) > t
    L1:        min((vᵢ − s)₊, rᵢ)              s/a = Σ min((vᵢ − s)₊, rᵢ)

Points are (batch, m), weights (batch,), bounds a pair that broadcasts to the points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus._tensor import as_float64

Bounds = tuple[Tensor, Tensor]


def prox_sup(point: Tensor, origin: Tensor, weight: Tensor, bounds: Bounds | None = None) -> Tensor:
    """argmin_z (a/2)‖z − z₀‖_∞² + ½‖z − w‖₂² within the bounds (eqn:prox-actual).

    >>> prox_sup(torch.tensor([[3.0, -1.0]]), torch.zeros(1, 2), torch.tensor([0.5]))
    tensor([[ 2., -1.]])
    """
    move = point - origin
    distance = move.abs()
    if bounds is None:
        return origin + torch.minimum(distance, _sup_length(distance, distance, weight)).copysign(move)
    reach = torch.minimum(distance, _room(move, origin, bounds))
    sizes = torch.minimum(reach, _sup_length(distance, reach, weight))
    return (origin + sizes.copysign(move)).clamp(*bounds)  # the last bit of rounding


def prox_l1(point: Tensor, origin: Tensor, weight: Tensor, bounds: Bounds | None = None) -> Tensor:
    """argmin_z (a/2)‖z − z₀‖₁² + ½‖z − w‖₂² within the bounds.

    Without bounds by the Moreau decomposition: what the sup-norm's step of weight 1/a leaves over
    (eqn:prox-l1-norm-squared).

    >>> prox_l1(torch.tensor([[3.0, -1.0]]), torch.zeros(1, 2), torch.tensor([0.5]))
    tensor([[2., 0.]])
    """
    move = point - origin
    # In float64 on the CPU: the sizes are small differences of large distances when the weight is large.
    distance, inverse = as_float64(move.abs()), 1 / as_float64(weight)
    if bounds is None:
        sizes = distance - torch.minimum(distance, _sup_length(distance, distance, inverse))
        return origin + sizes.to(move).copysign(move)
    room = as_float64(_room(move, origin, bounds))
    sizes = torch.minimum((distance - _threshold(distance, room, inverse)).clamp_min(0), room)
    return (origin + sizes.to(move).copysign(move)).clamp(*bounds)


def _room(move: Tensor, origin: Tensor, bounds: Bounds) -> Tensor:
    """(batch, m) distance of each coordinate to the bound in the direction of its move."""
    lower, upper = bounds
    return torch.where(move > 0, upper - origin, origin - lower).clamp_min(0)


def _sup_length(distance: Tensor, reach: Tensor, weight: Tensor) -> Tensor:
    """(batch, 1) the root t of a t = Σ (vᵢ − t) over reachᵢ > t, with reach ≤ v (lemma:prox, eqn:prox-scale).

    If the j farthest-reaching coordinates are cut off, t = Σ_{i≤j} vᵢ/(a + j). The paper prints
    1/(1 + aj), right only at a = 1; the last display of its proof has a + j. A candidate that exceeds
    reach_j cuts off too many to be met, and the largest of min(candidate, reach_j) is the root: each is at
    most t, and the one that belongs to t equals it.
    """
    ordered, index = reach.sort(1, descending=True)
    sums = (ordered if reach is distance else distance.gather(1, index)).cumsum(1)
    counts = torch.arange(1, reach.shape[1] + 1, dtype=reach.dtype, device=reach.device)
    return torch.minimum(sums / (weight.unsqueeze(1) + counts), ordered).amax(1, keepdim=True)


def _threshold(distance: Tensor, room: Tensor, inverse: Tensor) -> Tensor:
    """(batch, 1) the root s of s/a = Σ min((vᵢ − s)₊, rᵢ): the right side is decreasing and piecewise linear.

    It has convex breakpoints at s = vᵢ and concave ones at s = vᵢ − rᵢ. With those above s counted +1 and
    −1, it is Σ ±(breakpoint − s); so those above the root are those at which that is less than breakpoint/a.
    """
    breakpoints = torch.cat([distance, (distance - room).clamp_min(0)], 1)
    # Stable: among equals the start of a piece comes before its end, and no count is ever negative.
    breakpoints, index = breakpoints.sort(dim=1, descending=True, stable=True)
    signs = torch.where(index < distance.shape[1], 1.0, -1.0).to(breakpoints)
    counts, sums = signs.cumsum(1), (signs * breakpoints).cumsum(1)
    slopes = counts + inverse.unsqueeze(1)
    above = (sums < slopes * breakpoints).sum(1, keepdim=True)
    last = (above - 1).clamp_min(0)  # none is above 0 where nothing moves
    return sums.gather(1, last) / slopes.gather(1, last)
