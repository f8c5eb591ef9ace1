"""Norms of the user's, tried on vectors: is it a norm, is its dual large enough, is its floor not too high?

    ‖tv‖ = |t|‖v‖,    ‖u + v‖ ≤ ‖u‖ + ‖v‖,    ⟨g, v⟩ ≤ ‖g‖_*‖v‖,    ‖v‖ ≥ m‖v‖₂

The vectors are random, signs, single coordinates, and what an ascent on the ratio of both sides finds.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from certus.batches import inner, per_sample
from certus.errors import ClaimError
from certus.norms import L2, Norm

_COUNT, _STEPS = 8, 40


def try_norm(norm: Norm, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a vector of the shape of these (batch, …) inputs refutes what a norm claims."""
    name, close = type(norm).__name__, 1e-6 if inputs.dtype == torch.float64 else 1e-3
    generator = torch.Generator().manual_seed(0)
    shape = (_COUNT, *inputs.shape[1:])

    def random() -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(inputs)

    first, second = random(), random()
    pairs = (
        ("‖−3v‖ = 3‖v‖", norm(-3 * first), 3 * norm(first)),
        ("3‖v‖ = ‖−3v‖", 3 * norm(first), norm(-3 * first)),
        ("‖u + v‖ ≤ ‖u‖ + ‖v‖", norm(first + second), norm(first) + norm(second)),
    )
    for claim, left, right in pairs:
        _require(name, claim, left, right, close)
    floor, dual = norm.euclidean_floor, norm.dual
    for vectors in _candidates(first, lambda v: L2(v) / norm(v)):
        _require(name, f"‖v‖ ≥ {floor:g}‖v‖₂", floor * L2(vectors), norm(vectors), close)
    for vectors in _candidates(first, lambda v: inner(second, v) / norm(v), second):
        _require(name, "⟨g, v⟩ ≤ ‖g‖_*‖v‖", inner(second, vectors), dual(second) * norm(vectors), close)


def _candidates(start: Tensor, ratio: Callable[[Tensor], Tensor], *more: Tensor) -> list[Tensor]:
    """Vectors at which the ratio may be large."""
    flat = start.flatten(1)
    single = torch.zeros_like(flat).scatter(1, flat.abs().argmax(1, keepdim=True), 1.0).reshape(start.shape)
    found = [start, start.sign(), single, *more, *(vector.sign() for vector in more)]
    return [*found, *(_ascended(vectors, ratio) for vectors in (*found[:1], *more))]


def _ascended(vectors: Tensor, ratio: Callable[[Tensor], Tensor]) -> Tensor:
    """A few normalised gradient steps of falling length; the start where there is no gradient."""
    best = vectors
    for step in range(_STEPS):
        with torch.enable_grad():
            leaf = vectors.clone().requires_grad_()
            values = ratio(leaf)
            if not values.requires_grad:
                return best
            (slope,) = torch.autograd.grad(values.sum(), leaf)
        length = 0.5 / (1 + step) ** 0.5 * L2(vectors) / L2(slope).clamp_min(1e-30)
        vectors = (vectors + per_sample(length, slope) * slope).detach()
        higher = ratio(vectors) > ratio(best)
        best = torch.where(per_sample(higher, best), vectors, best)
    return best


def _require(name: str, claim: str, left: Tensor, right: Tensor, close: float) -> None:
    off = left - right * (1 + close)
    if not bool((off <= 0).all()):
        worst = int(off.nan_to_num(torch.inf).argmax())
        raise ClaimError(
            f"{name} is refuted: it claims {claim}; at a vector that was tried the sides are "
            f"{float(left[worst])!r} and {float(right[worst])!r}."
        )
