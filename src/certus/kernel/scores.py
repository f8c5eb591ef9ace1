"""The Lipschitz rule: losses as a function of one number, which moves by at most L per unit of distance.

*Theorem.* Let ℓ(x) ≤ w·h(v + L‖x − x₀‖) for all x, h nondecreasing, and c ≥ g‖x − x₀‖². Then, with t = Lr,

    φ_γ(x₀) ≤ w·sup_{t ≥ 0} h(v + t) − κt²,       κ = γg/wL²,                              [eqn:inner-sup]

with equality for an affine score and c = g‖x − x₀‖², where a direction moves the score by exactly L‖δ‖.

| h(v) | losses | v | supremum |
|---|---|---|---|
| (v)₊ | any that is Lipschitz; hinge | ℓ(x₀); 1 + m(x₀) | (v + 1/4κ)₊ |
| (v)₊² | squared error; squared hinge | ‖F(x₀) − y‖; 1 + m(x₀) | (v)₊²(1 + 1/(κ − 1)) for κ > 1 |
| ln(1 + eᵛ) | softmax family | logsumexp_{k≠y} s(m_k(x₀) + offset) | below |

*Softplus.* ln(1 + eᵘ) = u/2 + ln 2cosh(u/2), and ln 2cosh(√s/2) is concave in s (Jaakkola and Jordan). For
every ξ > 0, with λ = tanh(ξ/2)/4ξ, ln(1 + eᵘ) ≤ u/2 + ln 2cosh(ξ/2) + λ(u² − ξ²), and if κ > λ,

    sup_t ln(1 + e^(v+t)) − κt² ≤ v/2 + ln 2cosh(ξ/2) + λ(v² − ξ²) + (½ + 2λv)²/4(κ − λ).

No ξ is wrong. The left side is concave in u², too, once u has the sign of ½ + 2κv, so that the smallest right
side equals it: ξ = |u| at the maximiser. For several classes L is the largest of theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from certus.kernel.rounding import FEW, SOME, down, up

_LEAST = 1e-8  # least ξ; the bound holds for any


class Form(Enum):
    """h."""

    POSITIVE = "(v)₊"
    SQUARE = "(v)₊²"
    SOFTPLUS = "ln(1 + eᵛ)"


@dataclass(frozen=True, eq=False)
class Score:
    """ℓ ≤ weight·h(level + steepness·r) at the distance r from each of n samples; both (n,), rounded up."""

    form: Form
    level: Tensor
    steepness: Tensor
    weight: float = 1.0

    def stiffness(self, price: float) -> Tensor:
        """(n,) κ for price = γg, rounded down; ∞ where nothing moves."""
        return down(price / (self.weight * self.steepness**2), SOME).nan_to_num(math.inf, math.inf)

    def bound(self, price: float, roots: Tensor | None = None) -> Tensor:
        """(n,) upper bounds on φ_γ for price = γg. ``roots`` are (n,) proposals for ξ; ∞ without them."""
        level, stiffness = self.level, self.stiffness(price)
        if self.form is Form.POSITIVE:
            rise = 1 / (4 * stiffness)
            return self.weight * (level + rise + SOME * (level.abs() + rise)).clamp_min(0)
        if self.form is Form.SQUARE:
            spare = down(stiffness, FEW) - 1
            square = up(level.clamp_min(0) ** 2, SOME) * up(1 + 1 / spare, SOME)
            return self.weight * torch.where(spare > 0, square, math.inf)
        if roots is None:
            return torch.full_like(level, math.inf)
        root = roots.clamp_min(_LEAST)
        slope = up(torch.tanh(root / 2) / (4 * root), SOME)
        spare = down(stiffness, FEW) - slope
        push = (0.5 + 2 * slope * level).abs() + FEW * (0.5 + 2 * slope * level.abs())
        rise = push**2 / (4 * spare)
        height = (level + root) / 2 + torch.log1p(torch.exp(-root)) + slope * (level - root) * (level + root)
        sizes = 1 + level.abs() + root + slope * (level**2 + root**2)
        total = height + up(rise, SOME) + SOME * sizes
        return self.weight * torch.where(spare > 0, total, math.inf).nan_to_num(math.inf, math.inf)
