"""Concavity of the inner problem at the data: the largest eigenvalue of ∇²_zz ℓ, sample by sample.

f = ℓ − γc is strongly concave *at a point* when sγ > λ_max(∇²_zz ℓ), in the cost's norm. The paper finds
it so at 98% of the training data (sec:mnist-real). It says nothing of the points between: *estimated*, never
a proof. Lanczos iteration on Hessian-vector products, all samples at once; its largest Ritz value never
exceeds λ_max (beyond rounding), and approaches it within a few products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus._eval_mode import loss_eval_mode
from certus._tensor import all_finite, as_float64, differentiable, inner, per_sample
from certus._validation import check_batch, check_geometry, check_loss, penalties
from certus.costs import Cost, SquaredL2
from certus.domains import Unbounded
from certus.errors import require, require_count
from certus.inner.objective import Status
from certus.losses import AnyLoss, loss_and_slope
from certus.norms import L2

_L2 = SquaredL2()


@dataclass(frozen=True)
class Curvature:
    """Estimates of λ_max(∇²_zz ℓ) in the cost's norm.

    Attributes:
        largest: (batch,) largest Ritz value; NaN where the loss is not finite.
        residual: (batch,) some eigenvalue lies within this distance of ``largest``.
        products: Hessian-vector products spent on each sample.
        status: (batch,) ``Status`` codes: CONVERGED, MAX_STEPS or NONFINITE.
    """

    largest: Tensor
    residual: Tensor
    products: int
    status: Tensor

    def concave(self, gamma: float | Tensor, cost: Cost = _L2) -> Tensor:
        """Return (batch,) whether sγ > λ_max with the residual to spare; False where undecided."""
        threshold = cost.strong_convexity * penalties(gamma, self.largest.unsqueeze(1))
        return (self.largest + self.residual < threshold) & (self.status == Status.CONVERGED)

    def convex(self, gamma: float | Tensor, cost: Cost = _L2) -> Tensor:
        """Return (batch,) whether sγ ≤ λ_max; a Ritz value never exceeds λ_max, up to rounding."""
        return self.largest >= cost.strong_convexity * penalties(gamma, self.largest.unsqueeze(1))


def largest_curvature(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    cost: Cost = _L2,
    max_products: int = 50,
    tolerance: float = 1e-3,
    generator: torch.Generator | None = None,
) -> Curvature:
    """Estimate λ_max(∇²_zz ℓ) at each input, in the norm of ``cost``, by Lanczos iteration.

    Args:
        max_products: largest number of Hessian-vector products; each costs about two gradients.
        tolerance: stop when every residual is within this share of the estimate.
        generator: randomness of the start vectors; seeded with 0 when None.

    >>> curved = largest_curvature(lambda z: (z**2) @ torch.tensor([1.0, 3.0]), torch.zeros(1, 2))
    >>> curved.largest.round(decimals=3)
    tensor([6.])
    """
    check_batch(inputs, targets)
    check_loss(loss, targets)
    check_geometry(inputs, cost, Unbounded())
    require_count("max_products", max_products)
    require(tolerance > 0, "tolerance", "be positive", tolerance)
    generator = generator or torch.Generator().manual_seed(0)
    start = torch.randn(inputs.shape, generator=generator, dtype=torch.float64).to(inputs)
    with torch.inference_mode(False), loss_eval_mode(loss):
        leaf = inputs.clone().detach().requires_grad_()
        targets = None if targets is None else differentiable(targets)
        losses, slope = loss_and_slope(loss, leaf, targets, keep_graph=True)

        def product(vectors: Tensor) -> Tensor:
            along = inner(slope, cost.whiten(vectors)).sum()
            bent = None  # a slope that does not depend on the inputs: a linear loss
            if along.requires_grad:
                (bent,) = torch.autograd.grad(along, leaf, retain_graph=True, allow_unused=True)
            return torch.zeros_like(leaf) if bent is None else cost.whiten(bent)

        curvature = _lanczos(product, cost.whiten(start), max_products, tolerance)
    finite = torch.isfinite(losses.detach())
    return replace(
        curvature,
        largest=torch.where(finite, curvature.largest, torch.nan),
        status=torch.where(finite, curvature.status, Status.NONFINITE),
    )


@dataclass(frozen=True)
class ConcaveShare:
    """Share of samples at which f is strongly concave, each at its own point: *estimated*.

    Attributes:
        concave: samples with sγ > λ_max.
        unresolved: samples that the estimate leaves undecided, or where the loss is not finite.
        count: all samples.
    """

    concave: int
    unresolved: int
    count: int

    @property
    def fraction(self) -> float:
        return self.concave / self.count


def concave_share(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    gamma: float,
    cost: Cost = _L2,
    batch_size: int = 256,
    max_products: int = 50,
    tolerance: float = 1e-3,
) -> ConcaveShare:
    """Count the samples at whose points ℓ − γc is strongly concave (the paper's 98%).

    >>> bowl = lambda z: z[:, 0] ** 4                              # curvature 12 z²
    >>> concave_share(bowl, torch.tensor([[0.1], [1.0], [2.0]]), gamma=10.0)
    ConcaveShare(concave=2, unresolved=0, count=3)
    """
    check_batch(inputs, targets)
    require_count("batch_size", batch_size)
    concave = unresolved = 0
    for first in range(0, len(inputs), batch_size):
        chosen = slice(first, first + batch_size)
        labels = None if targets is None else targets[chosen]
        curvature = largest_curvature(
            loss, inputs[chosen], labels, cost=cost, max_products=max_products, tolerance=tolerance
        )
        bowls = curvature.concave(gamma, cost)
        concave += int(bowls.sum())
        unresolved += int((~bowls & ~curvature.convex(gamma, cost)).sum())
    return ConcaveShare(concave, unresolved, len(inputs))


def _lanczos(product: Callable[[Tensor], Tensor], start: Tensor, steps: int, tolerance: float) -> Curvature:
    """Return the largest Ritz value of a symmetric operator per sample, with full reorthogonalisation."""
    basis = [start / per_sample(L2(start), start)]
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    # What is small is computed in float64 on the CPU: not every device has that precision.
    largest = torch.full((len(start),), torch.nan, dtype=torch.float64)
    residual = torch.full_like(largest, torch.inf)
    done = torch.zeros_like(largest, dtype=torch.bool)
    finite = ~done
    spent = 0
    while spent < steps and not done.all():
        image = product(basis[-1])
        spent += 1
        finite = finite & all_finite(image).cpu()
        image = torch.where(per_sample(finite.to(image.device), image), image, 0)
        diagonal.append(as_float64(inner(image, basis[-1])))
        for _ in range(2):  # once more, for what rounding left of the first pass
            for vector in basis:
                image = image - per_sample(inner(image, vector), image) * vector
        beside.append(as_float64(L2(image)))
        matrix = torch.diag_embed(torch.stack(diagonal, 1))  # (batch, k, k), tridiagonal
        if len(diagonal) > 1:
            off = torch.diag_embed(torch.stack(beside[:-1], 1), offset=1)
            matrix = matrix + off + off.mT
        finite = finite & all_finite(matrix) & torch.isfinite(beside[-1])
        ritz, vectors = torch.linalg.eigh(torch.where(per_sample(finite, matrix), matrix, 0))
        error = beside[-1] * vectors[:, -1, -1].abs()
        # Relative to the estimate itself: large negative curvature must not excuse a large error. What is
        # below the rounding of the products cannot be improved.
        rounding = 100 * torch.finfo(start.dtype).eps * ritz.abs().amax(1)
        close = error <= torch.maximum(tolerance * ritz[:, -1].abs(), rounding)
        # A sample that is done keeps its result: past an invariant subspace only rounding is left.
        largest = torch.where(done, largest, ritz[:, -1])
        residual = torch.where(done, residual, error)
        done = done | close | ~finite
        length = L2(image).clamp_min(torch.finfo(image.dtype).tiny)
        basis.append(image / per_sample(length, image))
    status = torch.where(done, Status.CONVERGED, Status.MAX_STEPS)
    return Curvature(
        largest=torch.where(finite, largest, torch.nan).to(start),
        residual=torch.where(finite, residual, torch.inf).to(start),
        products=spent,
        status=torch.where(finite, status, Status.NONFINITE).to(start.device),
    )
