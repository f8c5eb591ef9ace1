"""The radial rule: majorants of the loss as functions of the distance from a sample, and φ_γ for every γ.

With c(x, x₀) ≥ g‖x − x₀‖², any majorant u with ℓ(x) ≤ u(‖x − x₀‖) gives

    φ_γ(x₀) ≤ sup_{r ≥ 0} u(r) − γ g r²

for every γ. On each ring r_j ≤ r ≤ r_{j+1} two majorants that are convex in r are used, each below its
chord, so
that the supremum over the ring of (chord − γgr²) has a closed form:

- margins (softmax family): lse_k(e_k(r)), e_k = m_k(x₀) + min(Lip_k·r, ‖∇m_k(x₀)‖r + κ_k r²/2, parabolas of
  ``certus.certificates.proven.majorants``), e_y = 0;
- the loss itself: ℓ(x₀) + min(G·r, ‖∇ℓ(x₀)‖r + L⁺r²/2).

Constants are those of the smallest ball with constants that contains the ring, or those of the whole space.
Beyond the last ring ℓ ≤ ℓ(x₀) + Gr, or (√ℓ(x₀) + αr)² for squared errors. Networks with kinks have κ = L⁺ =
∞ and
use the Lipschitz parts only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.rounding import SOME, TINY, down, up


@dataclass(frozen=True, eq=False)
class Profile:
    """Majorants of the loss around each of n samples, on rings with common edges.

    Attributes:
        edges: (rings + 1,) 0 = r_0 < r_1 < ….
        left, right: (majorants, n, rings) values at both ends of a ring, of functions convex in between.
        origin: (n,) ℓ(x₀), rounded up.
        slope: (n,) G beyond the last edge; root: √(growth of the squared error), or 0.
        reach: (n,) no point of Z is beyond this distance.
        unit_cost: g.
        clip: B, if min(ℓ, B) is bounded.
    """

    edges: Tensor
    left: Tensor
    right: Tensor
    origin: Tensor
    slope: Tensor
    root: float
    reach: Tensor
    unit_cost: float
    clip: float | None = None

    def rings(self, gamma: float) -> Tensor:
        """(n, rings + 1) upper bounds on sup ℓ − γc over each ring, the last one for everything beyond."""
        price = gamma * self.unit_cost
        inner, outer = self.edges[:-1], self.edges[1:]
        slopes = (self.right - self.left) / (outer - inner)
        best = (slopes / (2 * price)).clamp(inner, outer)
        if self.clip is not None:
            # min(chord, B) − price·r² is concave: its maximum is at most where the chord meets B.
            crossing = inner + (self.clip - self.left) / slopes.clamp_min(TINY)
            best = torch.minimum(best, crossing.clamp(inner, outer))
        heights = up(self.left + slopes * (best - inner)) + SOME
        if self.clip is not None:
            heights = heights.clamp_max(self.clip)
        values = (heights - down(price * best**2, SOME)).nan_to_num(math.inf, math.inf, -math.inf)
        suprema = torch.cat([values.amin(0), self._beyond(price).unsqueeze(1)], 1)
        return torch.where(self.edges <= self.reach.unsqueeze(1), suprema, -math.inf)

    def bound(self, gamma: float) -> Tensor:
        """(n,) upper bounds on φ_γ."""
        return torch.maximum(self.rings(gamma).amax(1), self._at_origin())

    def lipschitz(self, gamma: float) -> Tensor:
        """(n,) the Lipschitz rule: φ_γ ≤ ℓ(x₀) + G²/(4γg), or γgℓ(x₀)/(γg − α²) for squared errors."""
        price = gamma * self.unit_cost
        if self.root > 0:
            excess = price - self.root**2
            bound = up(self.origin * price / excess) if excess > 0 else torch.full_like(self.origin, math.inf)
        else:
            bound = self.origin + up(self.slope**2 / (4 * price))
        return bound if self.clip is None else bound.clamp_max(self.clip)

    def _at_origin(self) -> Tensor:
        return self.origin if self.clip is None else self.origin.clamp_max(self.clip)

    def _beyond(self, price: float) -> Tensor:
        """(n,) supremum over all r beyond the last edge."""
        last = float(self.edges[-1])
        if self.root > 0:
            excess, start = price - self.root**2, up(self.origin.sqrt())
            best = torch.full_like(start, math.inf)
            if excess > 0:
                best = (self.root * start / excess).clamp_min(last)
            heights = up((start + self.root * best) ** 2)
        else:
            best = (self.slope / (2 * price)).clamp_min(last)
            heights = up(self.origin + self.slope * best)
        if self.clip is not None:
            return torch.full_like(heights, self.clip - down(price * last**2, SOME))
        return (heights - down(price * best**2, SOME)).nan_to_num(math.inf, math.inf)
