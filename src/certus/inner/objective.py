"""The inner objective f(z) = ℓ(θ; z) − γ c(z, z₀) of a batch, and its derivatives (eqn:inner-sup)."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from certus._tensor import all_finite, per_sample
from certus.costs import Cost, Support
from certus.costs.claims import cost_assumptions, domain_assumptions
from certus.domains import Domain
from certus.evidence import Evidence
from certus.losses import AnyLoss, loss_and_slope


@dataclass(frozen=True)
class ObjectiveValue:
    """Objective at a batch of points, for one gradient per sample.

    Attributes:
        point: (batch, …).
        value: (batch,) f; cost: (batch,) c, its part in it.
        slope: (batch, …) ∇ℓ, of the loss alone.
        target: (batch, …) where an ascent heads from here, as the cost says.
        gain: (batch,) the increase of f promised on the way there; 0 at a stationary point.
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
        """Some samples only."""
        return ObjectiveValue(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def replaced_by(self, other: ObjectiveValue, where: Tensor) -> ObjectiveValue:
        """``other`` for the samples of the (batch,) bool mask, ``self`` for the rest."""
        if where.all():
            return other
        mixed = {}
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            mixed[field.name] = torch.where(per_sample(where, mine), theirs, mine)
        return ObjectiveValue(**mixed)


@dataclass(frozen=True)
class Objective:
    """f(z) = ℓ(θ; z) − γ c(z, z₀) over z ∈ Z, for each sample of a batch.

    Attributes:
        origin: (batch, …) z₀; targets: what belongs to it, or None.
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
    def support(self) -> Support:
        """Whether cost and domain go together exactly or heuristically."""
        return self.cost.support(self.domain)

    @property
    def gap_evidence(self) -> Evidence:
        return Evidence.ESTIMATED if self.curvature_bound is None else Evidence.ASSUMED

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a gap that is a bound rests on, by name; nothing where it is an estimate."""
        if self.curvature_bound is None:
            return ()
        given = f"the curvature bound {self.curvature_bound!r}"
        return (given, *cost_assumptions(self.cost), *domain_assumptions(self.domain))

    def evaluate(self, point: Tensor) -> ObjectiveValue:
        """f, ∇ℓ and the way up: one forward and one backward pass, to the inputs only."""
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
        """(batch,) the way to the target in units of a gradient, sγ‖target − point‖, s the cost's growth."""
        length: Tensor = self.cost.norm(at.target - at.point)
        return self.cost.growth * self.gamma * length

    def select(self, index: Tensor) -> Objective:
        """The objective of some samples only; ``index`` is (k,) integers or (batch,) bool."""
        targets = None if self.targets is None else self.targets[index]
        return replace(self, origin=self.origin[index], targets=targets, gamma=self.gamma[index])
