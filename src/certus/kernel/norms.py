"""Operator norms that are checked, not computed: a claim s ≥ ‖A‖ is verified by a Cholesky factorisation.

*Theorem* (Rump 2006). If floating-point Cholesky of a symmetric k × k matrix M runs to completion, then
λ_min(M) ≥ −γ_{k+1}/(1 − γ_{k+1})·tr(M), with γ_k = ku/(1 − ku): the computed factor R satisfies RᵀR = M + Δ,
|Δ| ≤ γ_{k+1}|R|ᵀ|R|, and ‖|R|ᵀ|R|‖ ≤ Σ‖r_j‖² ≤ tr(M)/(1 − γ_{k+1}). The order of summation does not matter.

So with G = AAᴴ computed up to ‖ΔG‖ ≤ d, success for M = s²I − G proves ‖A‖² ≤ s² + d + slack·tr(M). No
eigenvalue is trusted: a claim that is too small makes the factorisation fail, and is refused.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from certus.kernel.passes import Refused
from certus.kernel.rounding import slack, up

_COMPLEX = 8.0  # a complex product and sum rounds like 8 real ones, at most
_UNDERFLOW = 2.0**-1000  # far above what entries below the largest one can lose by vanishing


def checked_norm(matrices: Tensor, claim: float, error: float = 0.0) -> float:
    """Return a bound on ‖A‖ for every one of (count, m, n) matrices, from a claim s ≥ max ‖A‖.

    Args:
        matrices: real or complex, known up to ``error`` in the Frobenius norm of each.

    Raises ``Refused`` if the claim is too small.

    >>> matrix = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]], dtype=torch.float64)
    >>> 4 <= checked_norm(matrix, 4 * (1 + 1e-12)) <= 4 * (1 + 1e-11)
    True
    """
    largest = float(matrices.abs().max()) if matrices.numel() else 0.0
    if largest == 0:
        return error
    if not 0 < claim < math.inf:
        raise Refused(f"a norm must be positive and finite; the claim is {claim}")
    scale = _power_of_two(largest)
    scaled, claim = matrices / scale, claim / scale
    if scaled.shape[1] > scaled.shape[2]:
        scaled = scaled.mH
    side, terms = scaled.shape[1:]
    factor = _COMPLEX if scaled.is_complex() else 1.0
    gram, square = scaled @ scaled.mH, claim * claim
    # The squared Frobenius norm, which bounds the sums of the |a||b| that the products round.
    frobenius = float(gram.diagonal(dim1=1, dim2=2).real.sum(1).max())
    failed = _not_factorised(gram, torch.full((len(gram),), square, dtype=torch.float64))
    if bool(failed.any()) or not math.isfinite(frobenius):
        raise Refused(f"a norm is larger than the claim {claim * scale:.17g}")
    # The Gram matrix; the shift and the factorisation, relative to the sizes that they round.
    lost = factor * (slack(terms) * frobenius + slack(side + 8) * (square * side + frobenius))
    return up(math.sqrt(square + lost) * scale, slack(2)) + error


def checked_quadratic(matrix: Tensor, weights: Tensor, claims: Tensor | None = None) -> Tensor:
    """Return bounds on λ_max(Aᵀ diag(c) A) for each row c ≥ 0 of ``weights``. (n, d), (…, n) → (…,).

    The candidates are claimed, (…,), or eigenvalues from LAPACK; each is verified, and a row whose check
    fails gets the Frobenius norm, which needs none.
    """
    scale = _power_of_two(float(matrix.abs().max()))
    heaviest = weights.amax(-1, keepdim=True)
    shares = torch.where(heaviest > 0, weights / heaviest, 0.0)
    base, roots = matrix / scale, shares.sqrt().unsqueeze(-1)
    if matrix.shape[0] < matrix.shape[1]:
        gram = base @ base.T * roots * roots.mT
    else:
        gram = (base * roots).mT @ (base * roots)
    side, terms = gram.shape[-1], max(matrix.shape)
    frobenius = up(gram.diagonal(dim1=-2, dim2=-1).sum(-1), 2 * slack(terms + side))
    if not bool(torch.isfinite(frobenius).all()):
        return torch.full(gram.shape[:-2], math.inf, dtype=gram.dtype)
    if claims is None:
        candidate = torch.linalg.eigvalsh(gram)[..., -1]
    else:
        candidate = (claims / (scale * (scale * heaviest[..., 0]))).nan_to_num(0.0)
    candidate = candidate.clamp_min(0) + slack(4 * side * side) * frobenius
    lost = slack(terms + 4) * frobenius + (slack(side + 1) * side + slack(4)) * (candidate + frobenius)
    bound = torch.where(_not_factorised(gram, candidate), frobenius, candidate + lost)
    return (up(bound, slack(8)) + _UNDERFLOW) * (scale * (scale * heaviest[..., 0]))


def _not_factorised(gram: Tensor, shift: Tensor) -> Tensor:
    """Whether Cholesky of shift·I − G fails, by the lower triangle of G, which is overwritten."""
    shifted = gram.neg_()
    shifted.diagonal(dim1=-2, dim2=-1).add_(shift.unsqueeze(-1))
    failed: Tensor = torch.linalg.cholesky_ex(shifted).info != 0
    return failed


def _power_of_two(largest: float) -> float:
    """A scale that divides without rounding."""
    return math.ldexp(1.0, math.frexp(largest)[1]) if 0 < largest < math.inf else 1.0


def circulant_blocks(
    weight: Tensor, padded: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> tuple[Tensor, float]:
    """Return the (count, m, n) blocks of a convolution in the Fourier basis, and their rounding in Frobenius
    norm.

    A convolution with zero padding is part of a circular one on any torus that holds the padded input, so
    that the largest norm of a block bounds its norm. (On the unpadded torus it does not.) Space-to-depth
    turns a stride s into s^axes times as many input channels: position i·s + phase becomes position i of
    channel (channel, phase).

    Args:
        weight: (out, in/groups, *kernel).
        padded: size of the input along each axis, both paddings included.
    """
    axes = len(padded)
    reach = [dilation[i] * (weight.shape[2 + i] - 1) + 1 for i in range(axes)]
    blocks = [-(-reach[i] // stride[i]) for i in range(axes)]
    spread = weight.new_zeros(*weight.shape[:2], *(blocks[i] * stride[i] for i in range(axes)))
    steps = tuple(slice(0, reach[i], dilation[i]) for i in range(axes))
    spread[(slice(None), slice(None), *steps)] = weight
    phases = [
        spread[(slice(None), slice(None), *(slice(p, None, s) for p, s in zip(phase, stride, strict=True)))]
        for phase in itertools.product(*(range(s) for s in stride))
    ]
    kernels = torch.cat(phases, 1)
    torus = [-(-padded[i] // stride[i]) for i in range(axes)]
    # A real kernel has conjugate frequencies: half of the last axis tells all.
    waves = torch.fft.rfftn(kernels, s=torus, dim=tuple(range(2, 2 + axes)))
    grouped = waves.flatten(2).reshape(groups, -1, kernels.shape[1], waves[0, 0].numel())
    matrices = grouped.permute(0, 3, 1, 2).flatten(0, 1)
    # Every entry is a sum of the kernel's entries times roots of unity: |error| ≤ slack·Σ|kernel|.
    sums = kernels.flatten(2).abs().sum(2)
    error = _COMPLEX * slack(math.prod(torus)) * float(torch.linalg.matrix_norm(sums))
    return matrices, error
