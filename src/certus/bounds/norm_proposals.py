"""Proposed operator norms: eigenvalues in floating point, which the kernel checks.

A claim that is a little too small is refused; then a larger one is tried. Convolutions have one matrix for
each frequency, and only those with the largest norms are decomposed: power iteration tells which.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict

import torch
from torch import Tensor

from certus.kernel.graph import Graph
from certus.kernel.norms import circulant_blocks
from certus.kernel.operators import Affine, AxisProduct, Convolution, Dense, Product, Transposed
from certus.kernel.passes import Refused

_DENSE_ENTRIES = 10_000_000  # 80 MB: the largest explicit matrix
_CONVOLUTION_ENTRIES = 2_000_000
_SMALL_SIDE = 1024
_LARGEST_SIDE = 8192  # of a Gram matrix that is factorised
_ROUNDS, _DECOMPOSED = 6, 16  # of the power iteration, and the matrices decomposed after it
_ROOM = 1e-11  # relative; ten times as much after each refusal
_ATTEMPTS = 9
_CACHED = 512
_CACHE: OrderedDict[bytes, float] = OrderedDict()


def claim_norms(graph: Graph) -> None:
    """Claim the norm of every affine node, for values and for moves."""
    for node in graph.nodes:
        for operator in (node.primitive, node.moves):
            if isinstance(operator, Affine):
                claim_norm(operator)


def claim_norm(operator: Affine) -> None:
    """Claim the norm of an operator and of its parts, unless it has one."""
    if operator.claim:
        return
    match operator:
        case Transposed():
            claim_norm(operator.original)
        case AxisProduct():
            _offer(operator, *(_norm(matrix.unsqueeze(0)) for matrix in operator.weights))
        case Convolution():
            options = operator.padded, operator.stride, operator.dilation, operator.groups
            blocks, _ = circulant_blocks(operator.weights[0], *options)
            torus = _norm(blocks)
            if is_small(operator) and _entries(operator) <= _CONVOLUTION_ENTRIES:
                written = _norm(operator.matrix().unsqueeze(0))
                if written < torus and _offer(operator, written, written=True):
                    return
            if not _offer(operator, torus, attempts=2):
                _offer(operator, max(_norm(part) for part in blocks.split(_DECOMPOSED)))
        case Product():
            for part in operator.parts:
                claim_norm(part)
            if is_small(operator):
                _offer(operator, _norm(operator.matrix().unsqueeze(0)), written=True)
        case _ if not math.isfinite(operator.composed_norm) and (
            is_small(operator)
            or (isinstance(operator, Dense) and min(operator.weights[0].shape) <= _LARGEST_SIDE)
        ):
            _offer(operator, _norm(operator.matrix().unsqueeze(0)))


def is_small(operator: Affine) -> bool:
    """Whether the matrix may be written out and decomposed."""
    side = min(math.prod(operator.in_shape), math.prod(operator.out_shape))
    return _entries(operator) <= _DENSE_ENTRIES and side <= _SMALL_SIDE


def _entries(operator: Affine) -> int:
    return math.prod(operator.in_shape) * math.prod(operator.out_shape)


def _offer(operator: Affine, *norms: float, written: bool = False, attempts: int = _ATTEMPTS) -> bool:
    """Claim a norm, with a growing margin after each refusal; return whether the kernel accepts it."""
    side = min(math.prod(operator.in_shape), math.prod(operator.out_shape))
    room = max(_ROOM, side * math.sqrt(side) * 2.0**-52)
    for attempt in range(attempts):
        claim = tuple(max(norm * (1 + room * 10**attempt), 1e-300) for norm in norms)
        try:
            operator.accept(claim, written=written)
        except Refused:
            continue
        return True
    return False


def _norm(matrices: Tensor) -> float:
    """The largest norm of (count, m, n) matrices, roughly; cached by their contents."""
    if matrices.numel() == 0:
        return 0.0
    head = repr((matrices.shape, matrices.dtype)).encode()
    key = hashlib.sha256(head + matrices.contiguous().numpy().tobytes()).digest()
    if key not in _CACHE:
        _CACHE[key] = _largest_norm(matrices)
        while len(_CACHE) > _CACHED:
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(key)
    return _CACHE[key]


def _largest_norm(matrices: Tensor) -> float:
    scale = float(matrices.abs().max()) or 1.0  # or squares would overflow or vanish
    if not math.isfinite(scale):
        return math.inf
    matrices = matrices / scale
    if matrices.shape[1] > matrices.shape[2]:
        matrices = matrices.mH
    if len(matrices) > _DECOMPOSED:
        estimates = _power_iteration(matrices, _ROUNDS)
        matrices = matrices[estimates.topk(_DECOMPOSED).indices]
    if matrices.shape[1] > _SMALL_SIDE:
        return scale * float(_power_iteration(matrices, 20 * _ROUNDS).max())
    gram = matrices @ matrices.mH
    return scale * math.sqrt(max(float(torch.linalg.eigvalsh(gram)[:, -1].max()), 0.0))


def _power_iteration(matrices: Tensor, rounds: int) -> Tensor:
    """(count,) lower estimates of the norms of (count, m, n) matrices."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(len(matrices), matrices.shape[1], 1, dtype=torch.float64, generator=generator)
    rows = rows.to(matrices.dtype)
    sizes = torch.zeros(len(matrices), dtype=torch.float64)
    for _ in range(rounds):
        rows = matrices @ (matrices.mH @ rows)
        sizes = torch.linalg.vector_norm(rows, dim=(1, 2))
        rows = rows / sizes.clamp_min(1e-300).reshape(-1, 1, 1)
    return sizes.sqrt()
