"""What is asked of a level that was kept, before it is used again.

Whatever was computed for these samples satisfies, sample by sample,

    ℓ(x₀) ≤ φ̄_γ,        ℓ(T̂) − γ c(T̂) ≤ φ̄_γ,        the cost of an error found ≥ the certified one,

and a few samples, chosen by a fixed seed, come out the same when they are computed again. A level that fails
was damaged, or belongs elsewhere. One that passes may still have been forged at other samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.certificates.comparison import TOLERANCE
from certus.certificates.levels import Level
from certus.certificates.proven.gap import Rule

PROBED = 8  # samples that are computed again
_SEED = 0


def probed_samples(count: int) -> Tensor:
    """Which of n samples are computed again, in their order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_SEED))[:PROBED].sort().values


def fault(level: Level, start: Tensor, floor: Tensor | None, clip: float | None) -> str | None:
    """Why a level cannot be that of these samples; None if nothing speaks against it.

    Args:
        start: (n,) ℓ at the samples, rounded down and clipped.
        floor: (n,) no error costs less; None for regression.
        clip: B, if it is min(ℓ, B) that is certified.
    """
    costs = (level.bound, level.transport_cost, level.loss, level.error_cost)
    shaped = all(value.shape == start.shape and value.dtype == torch.float64 for value in costs)
    if not shaped or level.rule.shape != start.shape or level.rule.dtype != torch.int64:
        return f"it does not hold numbers for {len(start)} samples"
    if bool(((level.rule < 0) | (level.rule >= len(Rule))).any()):
        return "it names a rule that there is not"
    moves = torch.isfinite(level.transport_cost) & (level.transport_cost >= 0) & torch.isfinite(level.loss)
    if not bool(moves.all()):
        return "its costs and losses are not those of points"
    # Written so that NaN fails, too.
    if clip is not None and not bool(((level.bound <= clip) & (level.loss <= clip)).all()):
        return f"it exceeds the clip {clip:g}"
    if not bool((start <= level.bound).all()):
        return "a bound is below the loss of the sample itself"
    if not bool((level.loss - level.gamma * level.transport_cost <= level.bound).all()):
        return "what was attained exceeds a bound"
    least = torch.full_like(start, torch.inf) if floor is None else floor
    if not bool((level.error_cost >= least).all()):
        return "an error costs less than is certified"
    return None


def disagreement(level: Level, index: Tensor, again: Level) -> str | None:
    """Whether some samples, computed again, came out otherwise; None if not."""
    for name in ("bound", "transport_cost", "loss", "error_cost"):
        kept, now = getattr(level, name)[index], getattr(again, name)
        near = (kept - now).abs() <= TOLERANCE * torch.maximum(kept.abs(), now.abs())
        if not bool(((kept == now) | near).all()):
            return "some of its samples come out otherwise"
    return None
