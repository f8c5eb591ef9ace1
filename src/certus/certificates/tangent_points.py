"""Where bounds on the margins may touch them: a proposal of points for each sample, by iteration.

The nearest point of {m_k ≥ 0} is looked for as engineers look for the most likely failure (Hasofer and Lind,
Rackwitz and Fiessler): project the sample on the boundary of the margin linearised at the last point, and go
on from there. It contracts by κr/‖∇m‖, κ the curvature at the boundary and r its distance: wherever a
parabola can touch. All classes stop at the distance of the nearest, beyond which nothing can be certified.

Nothing here is random, nor does a sample's proposal depend on the others.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus.bounds.backward import MOST_CLASSES
from certus.certificates.proven.majorants import TangentPoints
from certus.certificates.proven.problem import Problem
from certus.costs.metric import Euclidean
from certus.rounding import TINY

_ROUNDS = 8
_SLACK = 1e-6  # of a distance, for classes that are left out


def touching_points(problem: Problem) -> TangentPoints | None:
    """For samples that are classified rightly, and classes that may be nearest; None where nothing is gained:
    for kinked networks, for costs whose norm is not Euclidean behind a scaling, for very many classes."""
    curvatures, slopes = problem.smoothness.margin_curvature, problem.smoothness.margin_lipschitz
    smooth = curvatures is not None and slopes is not None and bool(torch.isfinite(curvatures).all())
    if problem.classes is None or not isinstance(problem.metric, Euclidean) or not smooth:
        return None
    assert slopes is not None
    classes = problem.classes
    if classes > MOST_CLASSES:
        return None
    everyone = torch.arange(len(problem)).repeat_interleave(classes)
    rivals = torch.arange(classes).repeat(len(problem))
    others = rivals != problem.targets[everyone]
    sample, rival = everyone[others], rivals[others]
    move = torch.zeros(len(sample), problem.inputs[0].numel(), dtype=torch.float64)
    value, slope = _linearised(problem, sample, rival, move)
    right = torch.ones(len(problem), dtype=torch.bool).index_put_((sample[value >= 0],), torch.tensor(False))
    near = _nearest(len(problem), sample, value, slope, move)
    least = -value / slopes.double()[rival, problem.targets[sample]].clamp_min(TINY)
    kept = right[sample] & torch.isfinite(near[sample]) & (least <= near[sample] * (1 + _SLACK))
    sample, rival = sample[kept], rival[kept]
    if len(sample) == 0:
        return None
    move = _towards(slope[kept], near[sample])
    for _ in range(_ROUNDS - 1):
        value, slope = _linearised(problem, sample, rival, move)
        # Where the boundary is curved too much it would jump; half and twice as far are far enough.
        nearest = _nearest(len(problem), sample, value, slope, move)
        near = torch.minimum(torch.maximum(nearest, near / 2), 2 * near)
        move = _towards(slope, near[sample])
    return TangentPoints(sample, rival, _points(problem, sample, move))


def _points(problem: Problem, sample: Tensor, move: Tensor) -> Tensor:
    """The samples moved by (p, features) u."""
    steps = problem.cost.whiten(move.reshape(-1, *problem.inputs.shape[1:]))
    return problem.inputs[sample] + steps


def _linearised(problem: Problem, sample: Tensor, rival: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
    """(p,) margins and (p, features) their gradients, in coordinates where the cost's norm is Euclidean."""
    leaf = _points(problem, sample, move).requires_grad_()
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        both = outputs.gather(1, torch.stack([rival, problem.targets[sample]], 1))
        margin = both[:, 0] - both[:, 1]
        (slope,) = torch.autograd.grad(margin.sum(), leaf)
    return margin.detach(), problem.cost.whiten(problem.cost.free_part(slope)).flatten(1)


def _nearest(count: int, sample: Tensor, value: Tensor, slope: Tensor, move: Tensor) -> Tensor:
    """(n,) the distance of each sample's nearest linearised boundary; ∞ where there is none."""
    distance = ((slope * move).sum(1) - value) / slope.norm(dim=1).clamp_min(TINY)
    near = torch.full((count,), math.inf, dtype=torch.float64)
    return near.scatter_reduce(0, sample, distance.nan_to_num(math.inf).clamp_min(0), "amin")


def _towards(slope: Tensor, distance: Tensor) -> Tensor:
    """(p, features) moves along the gradient, of these lengths."""
    lengths: Tensor = slope.norm(dim=1, keepdim=True).clamp_min(TINY)
    return slope / lengths * distance.unsqueeze(1)
