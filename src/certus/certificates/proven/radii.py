"""Certified radii without the rest of a certificate: for samples in large numbers.

The parabolas that touch the margins come first, since they are cheap and mostly as good as any can be. Where
one falls short of the point that it was made for, those around the sample follow.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from certus.certificates.proven.constants import everywhere, margin_radii
from certus.certificates.proven.majorants import Touches, Values, centred_parabolas, touching_parabolas
from certus.certificates.proven.problem import Problem
from certus.errors import UnsupportedError

_REACHED = 0.999  # of the distance of a point: near enough


def certified_radii(problem: Problem, touches: Touches | None) -> Tensor:
    """(n,) no error is nearer to a sample than this, in the cost's norm; 0 where it is one already."""
    found = _radii(problem, touches)
    if touches is None:
        return _radii(problem, None, centred=True)
    moved = problem.select(touches.sample)
    reach = problem.metric.norm(touches.point - moved.inputs)
    goal = torch.zeros_like(found).scatter_reduce(0, touches.sample, reach, "amax")
    rest = (found < _REACHED * goal).nonzero().flatten()
    if len(rest) > 0:
        found[rest] = torch.maximum(found[rest], _radii(problem.select(rest), None, centred=True))
    return found


def _radii(problem: Problem, touches: Touches | None, centred: bool = False) -> Tensor:
    margins, space = Values.at(problem).margins, everywhere(problem)
    if margins is None:
        raise UnsupportedError("A regression has no certified radii: without classes there are no errors.")
    slopes, bends = space.margin_slope, space.margin_bend
    assert slopes is not None
    assert bends is not None
    if centred:
        found = centred_parabolas(problem, margins, slopes)
        if found is not None:
            space = replace(space, margin_bend=torch.minimum(bends, found.curvature), parabolas=found)
    elif touches is not None:
        space = replace(space, parabolas=touching_parabolas(problem, margins, bends, touches))
    own = nn.functional.one_hot(problem.targets, problem.classes or 0).bool()
    radius = margin_radii(margins, own, [space], torch.empty(0))
    return torch.where(radius > problem.reach, math.inf, radius)
