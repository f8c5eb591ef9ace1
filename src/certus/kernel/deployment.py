"""A network in float32 use: how far its outputs may be from those of the network in real arithmetic.

*Theorem.* Conventional float32 arithmetic loses at most γ_k(Σ|wᵢxᵢ| + |b|) in a sum of k products and a
bias, γ_k = ku/(1 − ku) with u = 2⁻²⁴, in any order, with or without fused operations, and less than a normal
number 2⁻¹²⁶ for each product where numbers vanish. In L2, with errors t of the inputs,

    affine      t ← ‖A‖t + γ_{k+2}(‖|A||x| + |b|‖ + ‖|A|‖t)
    length      t ← t + γ_{k+2}(‖x‖ + t)
    sort, maximum, |·|, max(·, 0), rearrangement: exact, t ← Lip·t

and the input is rounded once. At a distance r from a sample, ‖x_l(r)‖ ≤ ‖x_l(0)‖ + Lip_l·r, and every step is
affine in the sizes and the errors. So the outputs are off by at most e₀ + e₁r, and margins by √2 of that: a
network in float32 is within these of the network in real arithmetic, for all points at once.

Not sums of products, so not covered: Winograd and FFT convolutions, TF32, bfloat16, tensor cores, int8,
fast-math; and activations that call a library's exp. That a convolution is computed as a sum of products is
an assumption, by name.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from certus.kernel.graph import Graph
from certus.kernel.operators import Affine, Convolution, Product, Transposed
from certus.kernel.passes import ForwardBound, Precision, Primitive, Refused, norm
from certus.kernel.rounding import FARTHEST, MANY, up

FLOAT32 = "float32"
DIRECT = "convolutions in float32 are sums of products, in any order (not Winograd, FFT or TF32)"
_UNIT = 2.0**-24
_LEAST = 2.0**-126
_MOST = 2.0**126


class Deviation(NamedTuple):
    """At the distance r from sample i, margins in float32 are off by at most start[i] + slope·r."""

    start: Tensor
    slope: float


def _relative(terms: int) -> float:
    """γ_k of float32."""
    share = terms * _UNIT
    if not share < 0.5:
        raise Refused(f"sums of {terms} products are too long for float32")
    return share / (1 - share)


SINGLE = Precision(_relative, _LEAST)


def is_direct(primitive: Primitive | None) -> bool:
    """Whether a primitive contains no convolution, whose algorithm is an assumption."""
    inner = primitive.parts if isinstance(primitive, Product) else ()
    return not isinstance(primitive, Convolution | Transposed) and all(map(is_direct, inner))


def deviation(graph: Graph, points: Tensor, start: ForwardBound) -> Deviation:
    """Bound what float32 arithmetic may change in the margins around (n, *shape) points.

    Args:
        start: derivatives of the input under moves of length 1, in the norm of the cost.

    Raises ``Refused`` for a network with a step that is not covered.
    """
    if any(node.moves is not None for node in graph.nodes):
        raise Refused("float32 is not covered for a cost with weights")
    *_, computed = graph.rounded(points)
    _, trace = graph.forward(start)
    errors = [torch.cat([_UNIT * norm(points), _UNIT * trace.lipschitz[0]]) + _LEAST * math.prod(graph.shape)]
    for node in graph.nodes[1:]:
        sizes = []
        for index in node.inputs:
            at, lipschitz = computed[index], trace.lipschitz[index]
            sizes.append(up(torch.cat([norm(at.value) + norm(at.error), lipschitz]) + errors[index], MANY))
        before = [errors[index] for index in node.inputs]
        if node.primitive is None:
            error = node.combined(before)
            if node.axis is None:
                error = error + _relative(len(sizes)) * torch.stack(sizes).sum(0)
        else:
            at, spread = computed[node.inputs[0]], None
            if isinstance(node.primitive, Affine):
                there = norm(node.primitive.sizes(at.value.abs() + at.error))
                away = node.primitive.absolute_norm * trace.lipschitz[node.inputs[0]]
                spread = up(torch.cat([there, away]), MANY)
            error = node.primitive.length_error(sizes[0], before[0], SINGLE, spread)
        still, slope = torch.stack(sizes).split([len(points), 1], 1)
        largest = float((still + math.sqrt(FARTHEST) * slope).amax())  # within the farthest distance
        grown = len(sizes) if node.primitive is None else node.primitive.amplify(1.0)
        if not (largest * grown < _MOST and bool(torch.isfinite(error).all())):
            what = type(node.primitive).__name__ if node.primitive is not None else "sum"
            raise Refused(
                f"float32 is not covered for {node.name or 'a layer'} ({node.kind or what}): it is no sum of "
                "products, or overflows"
            )
        errors.append(up(error, MANY))
    margins = up(math.sqrt(2) * errors[-1], MANY)
    return Deviation(margins[:-1], float(margins[-1]))


def assumptions(graph: Graph) -> tuple[str, ...]:
    """Names of what the deviation rests on without proof."""
    affine = (node.primitive for node in graph.nodes if isinstance(node.primitive, Affine))
    return () if all(map(is_direct, affine)) else (DIRECT,)
