"""Domains of the user's, tried on points: does the projection lead to the nearest point of a convex set?

    Πx ∈ Z,        Πz = z for z ∈ Z,        ⟨x − Πx, z − Πx⟩ ≤ 0 for every z ∈ Z,

which together say that Z is convex, as far as points can, and that Π is its projection. The bounds of a
product of intervals must say the same as its projection does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.batches import inner, shown
from certus.domains import Domain, Intervals
from certus.errors import ClaimError
from certus.norms import L2

_COUNT = 32


def try_domain(domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a point around these (batch, …) inputs refutes the domain."""
    name, close = type(domain).__name__, 1e-6 if inputs.dtype == torch.float64 else 1e-3
    generator = torch.Generator().manual_seed(0)
    scale = max(1.0, float(inputs.abs().max()))
    centers = inputs.detach()[torch.arange(_COUNT) % len(inputs)]
    sizes = torch.logspace(-2, 2, _COUNT, dtype=torch.float64).reshape(-1, *([1] * (inputs.dim() - 1)))
    moves = torch.randn(centers.shape, dtype=torch.float64, generator=generator)
    points = centers + (scale * sizes * moves).to(inputs)
    members = domain.project(points)
    if not bool(domain.contains(members).all()):
        bad = int((~domain.contains(members)).nonzero()[0])
        raise ClaimError(f"{name} is refuted: the projection of {shown(points[bad])} is not in it.")
    halves = (members + members.roll(1, 0)) / 2
    for claim, kept in (("Πz = z for z in Z", members), ("it is convex", halves)):
        apart = L2(domain.project(kept) - kept)
        _require(name, claim, apart, close * (scale + L2(kept)), kept)
    away = points - members
    for others in (members.roll(1, 0), members.flip(0), halves, centers):
        turned = inner(away, others - members)
        _require(name, "⟨x − Πx, z − Πx⟩ ≤ 0", turned, close * L2(away) * L2(others - members), points)
    if isinstance(domain, Intervals):
        low, high = domain.bounds(points)
        apart = L2(points.maximum(low).minimum(high) - members)
        _require(
            name, "that its bounds are those of its projection", apart, close * (scale + L2(members)), points
        )


def _require(name: str, claim: str, found: Tensor, most: Tensor, points: Tensor) -> None:
    off = found - most - 1e-30
    if not bool((off <= 0).all()):
        worst = int(off.nan_to_num(torch.inf).argmax())
        raise ClaimError(
            f"{name} is refuted: it claims {claim}; at {shown(points[worst])} it is off by "
            f"{float(found[worst]):.6g}."
        )
