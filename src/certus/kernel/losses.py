"""Losses as functions of the outputs of a network, and of one number: the Lipschitz rule.

The softmax family: with margins m_k = F_k − F_y, p the softmax of s(m + offset) and q = 1 − p_y,

    ∇ℓ = g·Σ_{k≠y} p_k ∇m_k,      ∇²ℓ = g·Σ_{k≠y} p_k ∇²m_k + h·Cov_p(∇m)     [eqn:softmax]

so that λ_max(∇²ℓ) ≤ g·q·κ + h·v(q)·D²: κ bounds the curvature of the margins, D the slope of every difference
F_i − F_j, and v(q) is the largest variance on an interval of length 1 with mass 1 − q at one point: q(1 − q)
for q ≤ ½, else ¼.

| loss | g | h | s |
|---|---|---|---|
| cross-entropy at temperature τ | 1/τ | 1/τ² | 1/τ |
| smooth margin, sharpness b | 1 | b | b |
| logistic: two classes, with outputs 0 and F | 1 | 1 | 1 |

Label smoothing leaves the covariance alone, but the first sum becomes Σ (p_k − t_k)∇²F_k ≤ TV(p, t)·κ with κ
over *all* differences and TV(p, t) ≤ min(q + ε(1 − 1/K), 1 − ε/K): it does not vanish with q.

A squared error ‖F − y‖² has ∇²ℓ = 2JᵀJ + 2Σ_k (F_k − y_k)∇²F_k instead, and no constants: without a bound on
the residuals only affine networks have one.

*The Lipschitz rule.* Losses are functions of one number, which moves by at most L per unit of distance. Let
ℓ(x) ≤ w·h(v + L‖x − x₀‖) for all x, h nondecreasing, and c ≥ g‖x − x₀‖². Then, with t = Lr,

    φ_γ(x₀) ≤ w·sup_{t ≥ 0} h(v + t) − κt²,       κ = γg/wL²,                              [eqn:inner-sup]

with equality for an affine score and c = g‖x − x₀‖², where a direction moves the score by exactly L‖δ‖.

| h(v) | losses | v | supremum |
|---|---|---|---|
| (v)₊ | any that is Lipschitz; hinge | ℓ(x₀); 1 + m(x₀) | (v + 1/4κ)₊ |
| (v)₊² | squared error; squared hinge | ‖F(x₀) − y‖; 1 + m(x₀) | (v)₊²(1 + 1/(κ − 1)) for κ > 1 |
| ln(1 + eᵛ) | softmax family, not smoothed | logsumexp_{k≠y} s(m_k(x₀) + offset) | below |

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
from typing import ClassVar

import torch
from torch import Tensor

from certus.kernel.passes import Refused, norm, times
from certus.kernel.rounding import FEW, HUNDREDS, SOME, TENS, TINY, down, slack, up

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
            spare = stiffness - 1
            square = up(level.clamp_min(0) ** 2, SOME) * up(1 + 1 / spare, SOME)
            return self.weight * torch.where(spare > 0, square, math.inf)
        if roots is None:
            return torch.full_like(level, math.inf)
        root = roots.clamp_min(_LEAST)
        slope = up(torch.tanh(root / 2) / (4 * root), SOME)
        spare = stiffness - slope
        # At most 2·sizes where κ ≥ 2λ; nearer to λ the rounding of κ and λ counts more than its own.
        rise = (0.5 + 2 * slope * level) ** 2 / (4 * spare)
        height = (level + root) / 2 + torch.log1p(torch.exp(-root)) + slope * (level - root) * (level + root)
        sizes = 1 + level.abs() + root + slope * (level**2 + root**2)
        total = height + rise + SOME * sizes
        return self.weight * torch.where(spare > 0, total, math.inf).nan_to_num(math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Rounding:
    """Error bounds at each of n points; every entry is (n,).

    Attributes:
        outputs: largest absolute computed output; values: bound on |computed − true| of every output.
        rows: bound on the L2 norm of the gradient of Σ rₖFₖ, for every ‖r‖ ≤ 1.
        slopes: bound on the L2 error of such a gradient, if r itself is exact.
        width: number of outputs, each with an error.
    """

    outputs: Tensor
    values: Tensor
    rows: Tensor
    slopes: Tensor
    width: int

    def gradient(self, row: Tensor, error: Tensor) -> Tensor:
        """(n,) error of gradients for rows with ‖r‖ ≤ ``row`` and ‖r̂ − r‖ ≤ ``error``, both (n,)."""
        return up((row + error) * self.slopes + error * self.rows)

    def difference(self) -> Tensor:
        """(n,) error of the difference of the gradients of two outputs."""
        return 2 * (self.slopes + FEW * self.rows)


def margins_above(outputs: Tensor, labels: Tensor, rounding: Rounding) -> Tensor:
    """(n, width) F_k − F_y, rounded up, and 0 for k = y."""
    margins = outputs - outputs.gather(1, labels.unsqueeze(1))
    raised = margins + 2 * rounding.values.unsqueeze(1) + TENS * margins.abs()
    return raised.scatter(1, labels.unsqueeze(1), 0.0)


def _squared(losses: Tensor, rounding: Rounding) -> Tensor:
    """(n,) bound on |v̂² − v²| for v̂² = ``losses``, v a length of outputs."""
    error = rounding.values * math.sqrt(rounding.width)
    return 2 * losses.clamp_min(0).sqrt() * error + error**2 + SOME * (1 + losses.abs())


@dataclass(frozen=True)
class Softmax:
    """A loss of the softmax family, g/s·lse_k s(m_k + offset·1{k ≠ y}), mixed over labels if smoothed.

    Attributes:
        slope, spread, scale: g, h and s; offset: added to the margins.
        smoothing: ε of label smoothing.
        logistic: whether there is one output, beside which an output 0 stands.
        labelled: whether targets are labels, (n,), or else numbers, (n, outputs).
    """

    slope: float = 1.0
    spread: float = 1.0
    scale: float = 1.0
    offset: float = 0.0
    smoothing: float = 0.0
    logistic: bool = False
    labelled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        constants = (self.slope, self.spread, self.scale)
        valid = all(0 < each < math.inf for each in constants) and math.isfinite(self.offset)
        if not (valid and 0 <= self.smoothing < 1 and self.spread >= self.slope * self.scale):
            raise Refused(f"the constants of the loss do not fit together: {self}")

    def weight(self, error: Tensor, classes: int) -> Tensor:
        """g times the mass of the first-order sum, where q ≤ ``error``."""
        if self.smoothing == 0:
            return self.slope * error
        mass = error + self.smoothing * (1 - 1 / classes)
        return self.slope * mass.clamp_max(1 - self.smoothing / classes)

    def variance(self, error: Tensor) -> Tensor:
        """h·v(q), where q ≤ ``error``."""
        return self.spread * torch.where(error <= 0.5, error * (1 - error), 0.25)

    def combine(self, curvature: Tensor, spread: Tensor, error: Tensor, classes: int) -> Tensor:
        """The bound on λ_max(∇²ℓ) from κ and D, where q ≤ ``error``."""
        square = self.spread * spread**2
        total = times(self.weight(error, classes), curvature) + self.variance(error) * spread**2
        if classes != 2 or self.smoothing:
            return total
        # Two classes: the same q stands in both terms, max_q g·κ·q + h·D²·q(1 − q).
        sharp = self.slope * curvature
        best = ((sharp + square) / (2 * square).clamp_min(TINY)).nan_to_num(1.0).clamp(max=1.0)
        best = torch.minimum(best, error)
        return torch.minimum(total, times(sharp, best) + square * best * (1 - best))

    def corrected(self, curvature: Tensor, lipschitz: Tensor) -> Tensor:
        """max_{0 ≤ u ≤ ½} g√(2 − u)β + h·u·α², u = λ_max(diag p − ppᵀ): the corollary, as
        ‖p − t‖² ≤ 2 − u."""
        steep, flat = self.slope * curvature, self.spread * lipschitz**2
        best = (2 - (steep / (2 * flat).clamp_min(TINY)) ** 2).clamp(0, 0.5)
        return (2 - best).sqrt() * steep + best * flat

    def error(self, margins: Tensor, own: Tensor) -> Tensor:
        """q where the margins are at most these. (n, classes) and the bool mask of y → (n,)."""
        lifted = torch.where(own, -math.inf, self.scale * (margins + self.offset))
        return up(torch.sigmoid(torch.logsumexp(lifted, 1))).clamp_max(1)

    @property
    def form(self) -> Form:
        """h of ℓ as a function w·h(v) of one number (``Score``)."""
        return Form.POSITIVE if self.smoothing else Form.SOFTPLUS

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """(n,) ℓ for (n, classes) outputs, as computed."""
        labels = targets.unsqueeze(1)
        lifted = (outputs + self.offset).scatter(1, labels, outputs.gather(1, labels))
        logs = torch.log_softmax(self.scale * lifted, 1)
        heights = -(1 - self.smoothing) * logs.gather(1, labels)[:, 0] - self.smoothing * logs.mean(1)
        return self.slope / self.scale * heights

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(n,) bound on |computed − true| of these losses."""
        return 2 * self.slope * rounding.values + self._own_slack(rounding) + SOME * (1 + losses.abs())

    def _own_slack(self, rounding: Rounding) -> Tensor:
        """(n,) the rounding of ℓ for exact outputs, relative to the terms that cancel."""
        sizes = 1 + self.scale * (rounding.outputs + abs(self.offset))
        return self.slope / self.scale * slack(rounding.width + 17) * sizes

    def slope_error(self, losses: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        """(n,) L2 bound on the rounding of ∇ℓ. A softmax is ½-Lipschitz from the sup-norm of its arguments to
        each of its entries, and ‖p − t‖² ≤ 2."""
        off = self.slope * self.scale / 2 * rounding.values + self.scale * self._own_slack(rounding)
        return rounding.gradient(torch.full_like(losses, 1.5 * self.slope), math.sqrt(rounding.width) * off)

    def level(self, outputs: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        """(n,) v at the sample, rounded up."""
        if self.smoothing:
            losses = self.values(outputs, targets)
            return losses + self.slack(losses, rounding)
        lifted = self.scale * (margins_above(outputs, targets, rounding) + self.offset)
        sizes = 1 + lifted.scatter(1, targets.unsqueeze(1), 0.0).abs().amax(1)
        total = torch.logsumexp(lifted.scatter(1, targets.unsqueeze(1), -math.inf), 1)
        return total + max(HUNDREDS, slack(outputs.shape[1])) * sizes

    def constants(self, slope: Tensor, curvature: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(n,) G and L⁺ of ℓ, and α with √ℓ ≤ √ℓ(x₀) + α‖x − x₀‖, or 0: from G and L⁺ by the rules for the
        softmax, or the squared error, and from the largest Lipschitz constant of a margin, or that of F."""
        least = slope if self.smoothing else torch.minimum(slope, up(self.slope * most))
        return least, curvature, torch.zeros_like(slope)

    def above(self, margins: Tensor, own: Tensor) -> Tensor:
        """(n, …) ℓ without smoothing where (n, classes, …) margins are at most these, rounded up."""
        rounding = max(HUNDREDS, slack(margins.shape[1]))
        lifted = torch.where(own, 0.0, self.scale * (margins + self.offset))
        # Rounding is absolute where the sum is near 1, and g/s may be large.
        return up(self.slope / self.scale * (up(torch.logsumexp(lifted, 1), rounding) + rounding), FEW)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 + m)^power for one output F beside an output 0, m its margin, and power 1 or 2."""

    power: int = 1
    logistic: ClassVar[bool] = True
    labelled: ClassVar[bool] = True

    @property
    def form(self) -> Form:
        return Form.POSITIVE if self.power == 1 else Form.SQUARE

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = targets.unsqueeze(1)
        margins = outputs.gather(1, 1 - labels) - outputs.gather(1, labels)
        return (1 + margins[:, 0]).clamp_min(0) ** self.power

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        return 2 * rounding.values + SOME * (1 + losses) if self.power == 1 else _squared(losses, rounding)

    def slope_error(self, losses: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        return torch.full_like(losses, math.inf)  # for the kink

    def level(self, outputs: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        margins = margins_above(outputs, targets, rounding).sum(1)
        return (1 + margins) + FEW * (1 + margins.abs())

    def constants(self, slope: Tensor, curvature: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        unbounded = torch.full_like(slope, math.inf)
        return (most, unbounded, torch.zeros_like(most)) if self.power == 1 else (unbounded, unbounded, most)


@dataclass(frozen=True)
class SquaredError:
    """‖F − y‖²."""

    form: ClassVar[Form] = Form.SQUARE
    logistic: ClassVar[bool] = False
    labelled: ClassVar[bool] = False

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs - targets.reshape(outputs.shape)) ** 2).sum(1)

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        return _squared(losses, rounding)

    def slope_error(self, losses: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        away = 2 * (losses + self.slack(losses, rounding)).clamp_min(0).sqrt()
        sizes = rounding.outputs + targets.abs().reshape(len(losses), -1).amax(1)
        row_error = math.sqrt(rounding.width) * (2 * rounding.values + slack(8) * sizes)
        return rounding.gradient(away, row_error)

    def level(self, outputs: Tensor, targets: Tensor, rounding: Rounding) -> Tensor:
        away, width = norm(outputs - targets.reshape(outputs.shape)), outputs.shape[1]
        return up(away, slack(width)) + math.sqrt(width) * (rounding.values + FEW * norm(outputs))

    def constants(self, slope: Tensor, curvature: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return slope, curvature, most


Loss = Softmax | Hinge | SquaredError
"""Each method is documented in ``Softmax``."""
