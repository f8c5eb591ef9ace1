"""Proximal ascent for the costs without curvature, the squared sup-norm and squared L1 (alg:prox).

    x ← prox_{αγc(·, z₀)}(x + α∇ℓ(x)) = argmax_{z ∈ Z} ⟨∇ℓ(x), z⟩ − γ c(z, z₀) − ‖z − x‖₂²/2α

As α → ∞ this is the maximiser for a linear loss, z₀ + sign(∇ℓ)·‖∇ℓ‖₁/2γ for the sup-norm, and there the
first step goes. After it α follows the curvature that the loss has shown on the last move: where the step
was a success, the secant of its slopes; where f did not rise, what the loss fell short of its tangent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.batches import inner, per_sample
from certus.surrogate.maximizers.monotone import MonotoneAscent
from certus.surrogate.objective import Evaluation, Objective

_LINEAR = 1e6  # times the dimension: a linear loss is then solved up to 1/2·10⁶ of the gain
_GROWTH = 10.0  # the most that a success lengthens α
_LEAST, _MOST = 0.01, 0.5  # of the length that its gain was worth, what is left of an α that failed


@dataclass(frozen=True)
class ProximalAscent(MonotoneAscent):
    """Monotone proximal gradient ascent, stopped sample by sample; for costs that have a proximal step.

    Args:
        tolerance: ε of Algorithm 1, in units of the loss: a sample stops when its gap is at most this. The
            gap is estimated by the proximal residual: twice the increase ⟨∇ℓ, d⟩ − γΔc ≥ ‖d‖²/α that the
            step d promises, and where α is below 1/2γ, what it would be at that length.
        max_gradients: the most gradients that one sample may cost.
    """

    def _evaluate(self, objective: Objective, point: Tensor) -> Evaluation:
        return objective.measure(point)

    def _first_length(self, objective: Objective, at: Evaluation) -> Tensor:
        size = at.point[0].numel()
        # So that neither α∇ℓ nor a sum of its squares overflows.
        steepest = at.slope.flatten(1).abs().amax(1) / (2 * objective.gamma)
        limit: Tensor = torch.finfo(steepest.dtype).max ** 0.5 / size / steepest.clamp_min(1)
        return limit.clamp_max(_LINEAR * size)

    def _aim(self, objective: Objective, at: Evaluation, length: Tensor) -> Evaluation:
        gamma = objective.gamma
        forward = at.point + per_sample(length / (2 * gamma), at.point) * at.slope
        target = objective.cost.prox(forward, objective.origin, length / 2, objective.domain)
        dearer = objective.cost.value(target, objective.origin) - at.cost
        gain = inner(at.slope, target - at.point) - gamma * dearer
        return replace(at, target=target, gain=gain.clamp_min(0))

    def _gap(self, objective: Objective, at: Evaluation, length: Tensor) -> Tensor:
        return objective.gap(at) / length.clamp_max(1)

    def _step(self, objective: Objective, at: Evaluation, length: Tensor) -> Tensor:
        return at.target

    def _next_length(
        self, objective: Objective, old: Evaluation, new: Evaluation, length: Tensor, rises: Tensor
    ) -> Tensor:
        move = new.point - old.point
        square = objective.gamma * inner(move, move)  # over half of ‖d‖²·curvature: a length
        bent = inner(move, old.slope - new.slope) / 2
        secant = torch.where(bent > 0, square / bent, torch.inf)
        longer = torch.minimum(secant, _GROWTH * length).minimum(self._first_length(objective, new))
        # A step that failed fell below the tangent, whose promise it was; and 2‖d‖²γ/gain ≤ length.
        worth = 2 * square / old.gain
        shorter = square / (old.value + old.gain - new.value)
        shorter = torch.where(new.finite, shorter, 0.0).clamp(_LEAST * worth, _MOST * worth)
        return torch.where(rises, longer, shorter)
