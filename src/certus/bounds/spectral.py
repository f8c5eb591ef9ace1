"""Upper bounds on operator norms. Power iteration gives lower bounds, and is never used.

- ``matrix_norm``: the largest eigenvalue of the smaller Gram matrix; beyond a size, Gram iteration,
  ‖A‖ ≤ ‖(AᵀA)^(2^(t−1))‖_F^(1/2^t) for every t, continued until it changes by less than 0.1%.
- ``circulant_norm``: a convolution with zero padding is part of a circular one on any torus that holds the
  padded input, so the largest norm over its frequencies is an upper bound. On the unpadded torus it is not.

Everything is float64 on the CPU; ``certus.rounding.inflate`` raises results by more than their rounding.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from certus.rounding import inflate

_DENSE = 1024  # the largest Gram matrix whose eigenvalues are computed; squaring it often is dearer
_AT_ONCE = 1 << 20  # numbers in the matrices whose eigenvalues are computed together: 16 MB if complex
_CACHE: OrderedDict[bytes, float] = OrderedDict()
_CACHED = 512


def cached(compute: Callable[[], float], *content: Tensor | object) -> float:
    """Return ``compute()``, cached by content: tensors by their bytes, other values by their ``repr``."""
    digest = hashlib.sha256()
    for part in content:
        if isinstance(part, Tensor):
            digest.update(repr((part.shape, part.dtype)).encode() + part.contiguous().numpy().tobytes())
        else:
            digest.update(repr(part).encode())
    key = digest.digest()
    if key not in _CACHE:
        _CACHE[key] = compute()
        while len(_CACHE) > _CACHED:
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(key)
    return _CACHE[key]


def matrix_norm(matrix: Tensor) -> float:
    """Upper bound on ‖A‖ of a real matrix, tight to 0.1% or better."""
    if matrix.numel() == 0:
        return 0.0
    return float(_largest(matrix.unsqueeze(0))) * inflate(max(matrix.shape))


def quadratic_norm(matrix: Tensor, weights: Tensor) -> Tensor:
    """Upper bounds on λ_max(Aᵀ diag(c) A) for each row c ≥ 0 of ``weights``. (n, d), (…, n) → (…,)."""
    scale = float(matrix.abs().max()) or 1.0  # or squares of tiny entries would vanish
    heaviest = weights.amax(-1, keepdim=True)
    shares = torch.where(heaviest > 0, weights / heaviest, 0.0)
    scaled = matrix / scale * shares.sqrt().unsqueeze(-1)
    gram = scaled.mT @ scaled if matrix.shape[0] >= matrix.shape[1] else scaled @ scaled.mT
    if not bool(torch.isfinite(gram).all()):
        return torch.full(gram.shape[:-2], math.inf, dtype=gram.dtype)
    largest: Tensor = torch.linalg.eigvalsh(gram)[..., -1].clamp_min(0)
    return largest * (scale * (scale * heaviest[..., 0])) * inflate(max(matrix.shape)) ** 2


def gram_iteration(matrices: Tensor, tolerance: float = 1e-3, most: int = 16) -> float:
    """Upper bound on the largest norm among (count, m, n) matrices, real or complex.

    The Frobenius norm of a power of the Gram matrix bounds the same power of its largest eigenvalue; each
    squaring halves, in the exponent, the contribution of the other eigenvalues.
    """
    largest = float(matrices.abs().max()) or 1.0  # scaled by it, or squares of squares would vanish
    matrices = matrices / largest
    gram = matrices @ matrices.mH if matrices.shape[1] <= matrices.shape[2] else matrices.mH @ matrices
    logarithm = torch.zeros(len(gram), dtype=torch.float64)
    bound = math.inf
    for power in range(1, most + 1):
        size = torch.linalg.matrix_norm(gram)
        scale = torch.where(size > 0, size, 1.0)
        logarithm = 2 * logarithm + scale.log()
        norms = torch.where(size > 0, (logarithm / 2**power).exp(), 0.0)
        last, bound = bound, float(norms.max())
        if bound >= (1 - tolerance) * last:
            break
        gram = gram / scale[:, None, None]
        gram = gram @ gram
    return min(last, bound) * largest


def _largest(matrices: Tensor) -> float:
    """Largest norm among (count, m, n) matrices, before inflation."""
    if min(matrices.shape[1:]) > _DENSE:
        return gram_iteration(matrices)
    few = max(1, _AT_ONCE // matrices[0].numel())
    return max(_largest_by_eigenvalues(part) for part in matrices.split(few))


def _largest_by_eigenvalues(matrices: Tensor) -> float:
    scale = float(matrices.abs().max()) or 1.0  # or squares of huge entries would overflow
    matrices = matrices / scale
    short = matrices.shape[1] <= matrices.shape[2]
    gram = matrices @ matrices.mH if short else matrices.mH @ matrices
    return scale * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[:, -1].max()), 0.0))


def circulant_norm(
    weight: Tensor, padded: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...], groups: int
) -> float:
    """Upper bound on the norm of a convolution, by Fourier transform on the torus of the padded input.

    Space-to-depth turns a stride s into s^axes times as many input channels: position i·s + phase becomes
    position i of channel (channel, phase).

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
    return _largest(matrices) * inflate(max(*matrices.shape[1:], math.prod(torus)))
