"""Affine layers brought to norm at most 1.

For a matrix W = U diag(σ) Vᵀ the nearest one of norm at most 1, in the Frobenius norm, is
U diag(min(σ, 1)) Vᵀ. It is found from the eigenvalues of the smaller of WᵀW and WWᵀ; only those above 1
change anything. The kernel of a convolution is divided by an upper bound on its norm.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.errors import require
from certus.smoothness.operators import Operator
from certus.smoothness.rules import RULES
from certus.smoothness.stage import Shape

_LARGE = 25.0
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def clip_matrix(weight: Tensor, metric: Tensor | None = None) -> None:
    """Clip the singular values of W·diag(metric) at 1, in place; metric is (columns,) and ≥ 0, 1 when None.

    >>> weight = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    >>> clip_matrix(weight)
    >>> weight
    tensor([[1.0000, 0.0000],
            [0.0000, 0.5000]])
    """
    scaled = weight.to(torch.promote_types(weight.dtype, torch.float32))
    scaled = scaled if metric is None else scaled * metric
    tall = scaled.shape[0] >= scaled.shape[1]
    gram = scaled.T @ scaled if tall else scaled @ scaled.T
    require(bool(torch.isfinite(gram).all()), "weight", "be finite, squared", "NaN or infinity")
    values, vectors = torch.linalg.eigh(gram)
    above = int((values > 1).sum())
    if above == 0:
        return
    vectors, excess = vectors[:, -above:], 1 - values[-above:].rsqrt()
    part = (
        ((scaled @ vectors) * excess) @ vectors.T
        if tall
        else vectors @ (excess[:, None] * (vectors.T @ scaled))
    )
    # Where the metric is 0 nothing moves, so that nothing is to be clipped.
    part = part if metric is None else part / torch.where(metric > 0, metric, 1.0)
    weight.sub_(part.to(weight.dtype))
    if float(values[-1]) > _LARGE:  # the values near 1 had few digits beside it
        clip_matrix(weight, metric)


@torch.no_grad()
def clip_convolution(module: nn.Module, shape: Shape) -> None:
    """Divide the kernel of a convolution of inputs of ``shape`` by its norm, if that exceeds 1, in place."""
    operator = RULES[next(kind for kind in CONVOLUTIONS if isinstance(module, kind))](module, shape)
    assert isinstance(operator, Operator)
    assert isinstance(module.weight, Tensor)
    module.weight.div_(max(1.0, operator.norm))
