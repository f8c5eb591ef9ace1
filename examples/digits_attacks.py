"""Two attacks on a trained model: move the test images where its loss is large, at a given cost.

For c = ‖z − x‖₂² and a budget ρ, either every image may cost ρ, or all of them a mean cost of ρ, which
is the worst case that WRM trains against. What an attack finds is attained, so it bounds the worst
case from one side only: an estimate, and no proof.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import certus
from certus.data import Samples
from certus.datasets import SplitDataset


def push(loss: certus.ModelLoss, test: Samples, rho: float, steps: int = 50) -> Tensor:
    """Move every test image to the largest loss that can be found at cost ρ.

    Projected gradient ascent with steps of a given length, because a confident network leaves
    hardly any slope to follow. It owes nothing to certus: the models are judged by a stranger.
    """
    origin, targets, radius = test.inputs, test.targets, math.sqrt(rho)
    point, best, highest = origin, origin, loss(origin, targets).detach()
    for step in range(steps):
        point = point.detach().requires_grad_()
        (slope,) = torch.autograd.grad(loss(point, targets).sum(), point)
        length = radius * (0.5 if step < steps / 2 else 0.1)
        offset = point.detach() + length * slope / norms(slope).clamp_min(1e-30) - origin
        # The clamp pulls each pixel back towards the image, so that the cost stays within ρ.
        point = (origin + offset * (radius / norms(offset).clamp_min(radius))).clamp(0, 1)
        values = loss(point, targets).detach()
        best = torch.where((values >= highest).view(-1, 1, 1, 1), point, best)
        highest = torch.maximum(values, highest)
    return best


def norms(images: Tensor) -> Tensor:
    """L2 norm of each image. Shapes (n, 1, 8, 8) → (n, 1, 1, 1)."""
    lengths: Tensor = torch.linalg.vector_norm(images, dim=(1, 2, 3), keepdim=True)
    return lengths


def share(loss: certus.ModelLoss, data: SplitDataset, rho: float, rivals: list[Tensor]) -> Tensor:
    """Move the test images to T_γ, with the γ for which their mean cost is ρ.

    The mean cost falls as γ grows, so γ is bisected. What is returned never costs more than ρ.

    Args:
        rivals: other ways to move the images, which replace T_γ wherever their ℓ − γc is larger:
            the ascent to T_γ starts at the image, and stays there if a confident network is flat.
    """
    origin, targets, cost = data.test.inputs, data.test.targets, certus.SquaredL2()
    maximizer = certus.inner.BarzilaiBorwein(tolerance=1e-4, max_gradients=50)
    low, high = math.log(1e-2), math.log(1e3)
    result = origin
    for _ in range(12):
        middle = (low + high) / 2
        gamma = math.exp(middle)
        wrm = certus.WRM(gamma, cost=cost, domain=data.domain, maximizer=maximizer)
        solution = wrm.solve(loss, origin, targets)
        moved, highest = solution.inputs, solution.value
        for rival in rivals:
            value = loss(rival, targets).detach() - gamma * cost(rival, origin)
            moved = torch.where((value > highest).view(-1, 1, 1, 1), rival, moved)
            highest = torch.maximum(value, highest)
        if cost(moved, origin).mean() > rho:
            low = middle
        else:
            high, result = middle, moved
    return result
