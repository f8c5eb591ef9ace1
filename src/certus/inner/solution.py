"""Solutions of the inner problem, with one status per sample."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.evidence import Evidence


class Status(IntEnum):
    """How the ascent of one sample ended."""

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
class InnerSolution:
    """An approximate maximiser of f(z) = ℓ(θ; z) − γ c(z, z₀), for each sample.

    ``value`` is attained, so it never exceeds φ_γ (beyond rounding); ``value + gap`` bounds φ_γ from above
    exactly as far as ``gap_evidence`` says.

    Attributes:
        inputs: (batch, …) T̂_γ(z₀), the point reached. Detached: no gradient flows through it.
        onward: (batch, …) one step beyond it, along the last gradient. f is higher there as a rule, but was
            not measured, and nothing is claimed. Training uses this point (``WRM.__call__``).
        targets: its targets; they differ from the given ones only under a finite label cost.
        value: (batch,) f there.
        transport_cost: (batch,) c(T̂_γ(z₀), z₀). Its mean over the data is ρ̂ (eqn:tol-n).
        gradient_norm: (batch,) the length of the step that the cost proposes, in units of a gradient; for the
            L2 cost ‖∇f‖₂, where Z does not bind.
        gap: (batch,) sup f − f, bounded if the curvature is; otherwise estimated, for L2 by ‖∇f‖²/2γ.
        gradients: (batch,) gradients of the loss that were spent.
        status: (batch,) ``Status`` codes.
        gap_evidence: what ``gap`` rests on.
        assumptions: the same by name, where it is assumed.
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
        """Sample by sample the one of the larger value, as the maximum over two problems.

        The gradients of both are counted. The gap is to the larger of both suprema, and the status is the
        worse one: neither problem may be left open. A value that is not finite never wins over one that is.
        """
        switch = (other.value > self.value) | (torch.isnan(self.value) & ~torch.isnan(other.value))
        mixed: dict[str, Any] = {}
        for name, mine in _tensors(self).items():
            mixed[name] = torch.where(per_sample(switch, mine), getattr(other, name), mine)
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
    whole: dict[str, Any] = {}
    for name in _tensors(first):
        whole[name] = torch.cat([getattr(part, name) for _, part in parts])[order]
    return replace(first, **whole)


def _tensors(solution: InnerSolution) -> dict[str, Tensor]:
    named = {field.name: getattr(solution, field.name) for field in fields(solution)}
    return {name: value for name, value in named.items() if isinstance(value, Tensor)}
