"""The inner objective f(z) = ℓ(θ; z) − γ c(z, z₀) of a batch, and its solutions (eqn:inner-sup)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from certus._tensor import all_finite, per_sample
from certus.costs import Cost, Support
from certus.costs.claims import cost_assumptions, domain_assumptions
from certus.domains import Domain
from certus.kernel.evidence import Evidence
from certus.losses import AnyLoss, autocast_type, loss_and_slope, selected_targets


class Status(IntEnum):
    """Outcome of the ascent of one sample."""

    CONVERGED = 0
    """The gap is at most the tolerance. Where the gap is only estimated this is a *local* statement: a
    better maximum may lie beyond a flat stretch, as around the data of an over-confident network."""

    MAX_STEPS = 1
    """The budget of gradients was used up first."""

    STALLED = 2
    """No step raises f any more in this floating-point type; use float64 or a larger tolerance."""

    NONFINITE = 3
    """The loss or its gradient was NaN or infinite on the way; the best finite point is returned."""

    HEURISTIC = 4
    """Converged, but cost and domain go together only heuristically: perhaps short of the maximum."""


@dataclass(frozen=True)
class ObjectiveValue:
    """Objective at a batch of points, for one gradient per sample.

    Attributes:
        point: (batch, …).
        value: (batch,) f; cost: (batch,) c, its part in it.
        slope: (batch, …) ∇ℓ, of the loss alone.
        target: (batch, …) the target of an ascent step, by the cost.
        gain: (batch,) the increase of f that the linearised loss predicts; 0 at a stationary point.
        finite: (batch,) bool: value and slope are finite.
    """

    point: Tensor
    value: Tensor
    cost: Tensor
    slope: Tensor
    target: Tensor
    gain: Tensor
    finite: Tensor

    def select(self, index: Tensor) -> ObjectiveValue:
        """Return the values of some samples only."""
        return ObjectiveValue(**{name: values[index] for name, values in vars(self).items()})

    def replaced_by(self, other: ObjectiveValue, where: Tensor) -> ObjectiveValue:
        """``other`` for the samples of the (batch,) bool mask, ``self`` for the rest."""
        return ObjectiveValue(**_mixed(self, other, where))


@dataclass(frozen=True)
class Objective:
    """The problem sup_{z ∈ Z} f(z), f(z) = ℓ(θ; z) − γ c(z, z₀), for each sample of a batch.

    Attributes:
        origin: (batch, …) z₀; targets: its targets, or None.
        gamma: (batch,) γ, a penalty for each sample.
        curvature_bound: a claimed upper bound L⁺ on the curvature of ℓ in the cost's norm,
            ℓ(z') ≤ ℓ(z) + ⟨∇ℓ(z), z' − z⟩ + (L⁺/2)‖z' − z‖². With it f has the modulus μ = sγ − L⁺
            (eqn:trivial-concavity), and gaps are bounds instead of estimates.
    """

    loss: AnyLoss
    origin: Tensor
    targets: Tensor | None
    gamma: Tensor
    cost: Cost
    domain: Domain
    curvature_bound: float | None = None

    @property
    def converged_status(self) -> Status:
        """Status of a sample that met the stopping rule."""
        exact = self.cost.support(self.domain) is Support.EXACT
        return Status.CONVERGED if exact else Status.HEURISTIC

    @property
    def noise(self) -> float:
        """Relative rounding error of a loss that is computed in 16 bits; 0 for wider types."""
        dtype = getattr(self.loss, "autocast", None) or autocast_type(self.origin.device.type)
        return 0.0 if dtype is None else torch.finfo(dtype).eps / 2

    @property
    def gap_evidence(self) -> Evidence:
        return Evidence.ESTIMATED if self.curvature_bound is None else Evidence.ASSUMED

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of the assumptions of a gap that is a bound; empty where it is an estimate."""
        if self.curvature_bound is None:
            return ()
        given = f"the curvature bound {self.curvature_bound!r}"
        return (given, *cost_assumptions(self.cost), *domain_assumptions(self.domain))

    def evaluate(self, point: Tensor) -> ObjectiveValue:
        """Evaluate f, ∇ℓ, target and gain: one forward and one backward pass, to the inputs only."""
        at = self.measure(point)
        way = self.cost.respond(at.slope, at.point, self.origin, self.gamma, self.domain)
        return replace(at, target=way.target, gain=way.gain)

    def measure(self, point: Tensor) -> ObjectiveValue:
        """Return f and ∇ℓ alone, at the same cost; the target is the point itself."""
        leaf = point.detach().requires_grad_()
        losses, slope = loss_and_slope(self.loss, leaf, self.targets)
        point = leaf.detach()
        cost = self.cost.value(point, self.origin)
        value = losses.detach().to(cost.dtype) - self.gamma * cost
        finite = torch.isfinite(value) & all_finite(slope)
        return ObjectiveValue(point, value, cost, slope, point, torch.zeros_like(value), finite)

    def gap(self, at: ObjectiveValue) -> Tensor:
        """(batch,) bound or estimate of sup f − f at the evaluated points.

        Without a curvature bound it is estimated as if L⁺ were half of the cost's own curvature. For
        c = ‖·‖₂² on all of space this is ‖∇f‖²/2γ.
        """
        if self.curvature_bound is None:
            return self.cost.estimated_gap(at.gain, at.slope, at.point, self.origin, self.gamma, self.domain)
        # In float64 on the CPU, and rounded down: near the threshold the difference has few digits.
        modulus = self.cost.strong_convexity * self.gamma.cpu().double() - self.curvature_bound
        modulus = modulus.to(self.gamma) * (1 - 4 * torch.finfo(self.gamma.dtype).eps)
        if not (modulus > 0).any():
            return torch.full_like(at.value, torch.inf)
        weight = per_sample(self.gamma, at.point)
        gradient = at.slope - weight * self.cost.gradient(at.point, self.origin)
        return self.cost.gap(gradient, at.point, modulus, self.domain)

    def gradient_norm(self, at: ObjectiveValue) -> Tensor:
        """(batch,) distance to the target in units of a gradient, sγ‖target − point‖, s the cost's growth."""
        length: Tensor = self.cost.norm(at.target - at.point)
        return self.cost.growth * self.gamma * length

    def select(self, index: Tensor) -> Objective:
        """The objective of some samples only; ``index`` is (k,) integers or (batch,) bool."""
        targets = None if self.targets is None else selected_targets(self.targets, index)
        return replace(self, origin=self.origin[index], targets=targets, gamma=self.gamma[index])


@dataclass(frozen=True)
class InnerSolution:
    """Approximate maximisers of f(z) = ℓ(θ; z) − γ c(z, z₀), one for each sample.

    ``value`` is attained, so it never exceeds φ_γ (beyond rounding); ``value + gap`` bounds φ_γ from above
    exactly as far as ``gap_evidence`` says.

    Attributes:
        inputs: (batch, …) T̂_γ(z₀), the point reached. Detached: no gradient flows through it.
        onward: (batch, …) one step beyond it, along the last gradient. f is usually higher there, but is not
            evaluated. Training uses this point (``WRM.__call__``).
        targets: its targets; they differ from the given ones only under a finite label cost.
        value: (batch,) f there.
        transport_cost: (batch,) c(T̂_γ(z₀), z₀). Its mean over the data is ρ̂ (eqn:tol-n).
        gradient_norm: (batch,) the length of the step that the cost proposes, in units of a gradient; for the
            L2 cost ‖∇f‖₂, where Z does not bind.
        gap: (batch,) sup f − f: a bound if a curvature bound was given, else an estimate; for L2 ‖∇f‖²/2γ.
        gradients: (batch,) number of gradients of the loss.
        status: (batch,) ``Status`` codes.
        gap_evidence: the evidence of ``gap``.
        assumptions: names of the assumptions of ``gap``, where it is assumed.
    """

    inputs: Tensor
    onward: Tensor
    targets: Tensor | None
    value: Tensor
    transport_cost: Tensor
    gradient_norm: Tensor
    gap: Tensor
    gradients: Tensor
    status: Tensor
    gap_evidence: Evidence
    assumptions: tuple[str, ...] = ()

    @property
    def converged(self) -> Tensor:
        """(batch,) bool: the stopping rule was met."""
        return (self.status == Status.CONVERGED) | (self.status == Status.HEURISTIC)

    def better(self, other: InnerSolution) -> InnerSolution:
        """Return the solution of the larger value for each sample: the maximum over two problems.

        The gradients of both are counted. The gap is that to the larger supremum, and the status is the worse
        one. A value that is not finite never replaces a finite one.
        """
        switch = (other.value > self.value) | (torch.isnan(self.value) & ~torch.isnan(other.value))
        mixed: dict[str, Any] = _mixed(self, other, switch)
        ceiling = torch.maximum(self.value + self.gap, other.value + other.gap)  # NaN if either is
        mixed["gap"] = (ceiling - mixed["value"]).nan_to_num(torch.inf, torch.inf)
        mixed["gradients"] = self.gradients + other.gradients
        first, second = self.converged, other.converged
        rest = torch.maximum(self.status * ~first, other.status * ~second)
        mixed["status"] = torch.where(first & second, mixed["status"], rest)
        return replace(self, **mixed)


def assemble(parts: list[tuple[Tensor, InnerSolution]]) -> InnerSolution:
    """Join solutions of parts, each with the places of its samples in the batch."""
    order = torch.cat([places for places, _ in parts]).argsort()
    first = parts[0][1]
    names = [name for name, value in vars(first).items() if isinstance(value, Tensor)]
    whole: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for _, part in parts])[order] for name in names
    }
    return replace(first, **whole)


def _mixed(mine: object, other: object, switch: Tensor) -> dict[str, Tensor]:
    """Return the tensors of ``other`` where the (batch,) mask holds, else those of ``mine``, by name."""
    tensors = {name: value for name, value in vars(mine).items() if isinstance(value, Tensor)}
    return {name: torch.where(per_sample(switch, x), vars(other)[name], x) for name, x in tensors.items()}
