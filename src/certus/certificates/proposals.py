"""Proposals for the kernel: points where parabolas may touch the margins, their multipliers, and roots.

*Points.* The nearest point of {m_k ≥ 0} is found by the first-order reliability method (Hasofer and Lind,
Rackwitz and Fiessler): project the sample on the boundary of the margin linearised at the last point, and
repeat. The iteration contracts by κr/‖∇m‖, κ the curvature at the boundary and r its distance, wherever a
parabola can touch. All classes stop at the distance of the nearest error, beyond which nothing can be
certified.

A proposal is a deterministic function of its own sample. A bad one makes a bound loose, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.certificates.problem import Problem
from certus.kernel import problem as trusted
from certus.kernel.costs import Lp
from certus.kernel.losses import Form, Score
from certus.kernel.majorants import Constants, Tangents, constants, hidden_layer, parabolas
from certus.kernel.problem import Values
from certus.kernel.rounding import TINY
from certus.kernel.smoothness import MOST_CLASSES, Smoothness

_ROUNDS = 8
_SLACK = 1e-6  # of a distance, for classes that are left out


@dataclass(frozen=True, eq=False)
class TangentPoints:
    """Proposed points: (p,) index of the sample, (p,) other class of the margin, and (p, …) the point."""

    sample: Tensor
    rival: Tensor
    point: Tensor


def tangent_points(problem: Problem) -> TangentPoints | None:
    """Propose tangent points for correctly classified samples and the classes that may be nearest. None
    where they cannot help: kinked networks, very many classes, and costs whose norm is not Euclidean after
    scaling."""
    curvatures, slopes = problem.smoothness.margin_curvature, problem.smoothness.margin_lipschitz
    smooth = curvatures is not None and slopes is not None and bool(torch.isfinite(curvatures).all())
    if problem.classes is None or not _euclidean(problem.kernel) or not smooth:
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
    candidate = right[sample] & torch.isfinite(near[sample]) & (least <= near[sample] * (1 + _SLACK))
    sample, rival = sample[candidate], rival[candidate]
    if len(sample) == 0:
        return None
    move = _towards(slope[candidate], near[sample])
    for _ in range(_ROUNDS - 1):
        value, slope = _linearised(problem, sample, rival, move)
        # Where the boundary is curved too much it would jump; half and twice as far are far enough.
        nearest = _nearest(len(problem), sample, value, slope, move)
        near = torch.minimum(torch.maximum(nearest, near / 2), 2 * near)
        move = _towards(slope, near[sample])
    return TangentPoints(sample, rival, _points(problem, sample, move))


def _points(problem: Problem, sample: Tensor, move: Tensor) -> Tensor:
    """Return the samples moved by (p, features) u."""
    steps = problem.cost.whiten(move.reshape(-1, *problem.inputs.shape[1:]))
    return problem.inputs[sample] + steps


def _linearised(problem: Problem, sample: Tensor, rival: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
    """Return (p,) margins and (p, features) gradients, in coordinates where the cost's norm is Euclidean."""
    leaf = _points(problem, sample, move).requires_grad_()
    with torch.enable_grad():
        outputs = problem.kernel.outputs(leaf)
        both = outputs.gather(1, torch.stack([rival, problem.targets[sample]], 1))
        margin = both[:, 0] - both[:, 1]
        (slope,) = torch.autograd.grad(margin.sum(), leaf)
    return margin.detach(), problem.cost.whiten(problem.cost.free_part(slope)).flatten(1)


def _nearest(count: int, sample: Tensor, value: Tensor, slope: Tensor, move: Tensor) -> Tensor:
    """Return (n,) distances to the nearest linearised boundary; ∞ without one."""
    distance = ((slope * move).sum(1) - value) / slope.norm(dim=1).clamp_min(TINY)
    near = torch.full((count,), math.inf, dtype=torch.float64)
    return near.scatter_reduce(0, sample, distance.nan_to_num(math.inf).clamp_min(0), "amin")


def _towards(slope: Tensor, distance: Tensor) -> Tensor:
    """Return (p, features) moves of these lengths along the gradient."""
    lengths: Tensor = slope.norm(dim=1, keepdim=True).clamp_min(TINY)
    return slope / lengths * distance.unsqueeze(1)


def in_units(moves: Tensor) -> tuple[Tensor, Tensor]:
    """(n, …) moves as int16 multiples, rounded towards zero, of (n,) units, powers of two in float32.

    Half of the numbers of float32 store a move, at no loss that counts: at a maximiser a bound rises with the
    square of the distance, 2⁻³⁰ of that of the move.
    """
    largest = moves.flatten(1).abs().amax(1).clamp(2.0**-100, 2.0**100)
    units = torch.ldexp(torch.ones_like(largest), torch.frexp(largest).exponent - 15)
    multiples = (moves / per_sample(units, moves)).nan_to_num(0.0).clamp(-32767, 32767).trunc()
    return multiples.to(torch.int16), units.float()


def on_grid(moves: Tensor) -> Tensor:
    """(n, …) moves as float32 multiples of their units."""
    multiples, units = in_units(moves)
    return multiples.float() * per_sample(units, moves)


_CLASSES = 3  # least number of classes to bound
DISTANCES = torch.tensor([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.5, 4.0, 8.0], dtype=torch.float64)
"""Distances for which multipliers are chosen, relative to the nearest error of linear margins."""
_SCALES = (1e-30, 1e30)  # the range of these units, in float32
_APART = 1 + 1.001e-6  # multipliers of centred parabolas, in units of κ
_ABOVE = torch.tensor([1.05, 1.5], dtype=torch.float64)  # the same for tangent ones, with Q = κ·I
_CLOSELY = torch.tensor([1.003, 1.05, 1.25], dtype=torch.float64) * (1 + 5e-9)  # and with the true Q
_REACHED = 0.9999  # share of the point's distance at which a root is good enough
_SLIGHT, _FEWER = 1e-6, 0.8  # singular values that are dropped, and the share of them from which none is
_WORK = 3e7  # largest number of multiplications for a class of a sample with the true Q


def _euclidean(problem: trusted.Problem) -> bool:
    return isinstance(problem.cost, Lp) and problem.cost.p == 2


def _shaped(problem: trusted.Problem) -> bool:
    """Whether parabolas with the Q of a hidden layer are likely to pay off."""
    layer = hidden_layer(problem)
    if layer is None:
        return False
    units, features = layer[0].shape
    factor = _factor(problem)
    side = min(units, features) if factor is None else factor[0].shape[1]
    return (max(units, features) if factor is None else units) * side * side <= _WORK


_FACTORS: WeakKeyDictionary[Smoothness, tuple[Tensor, Tensor] | None] = WeakKeyDictionary()


def _factor(problem: trusted.Problem) -> tuple[Tensor, Tensor] | None:
    """Return the matrix of a hidden layer as a product, if it is rank-deficient; else None."""
    if problem.smoothness not in _FACTORS:
        layer = hidden_layer(problem)
        assert layer is not None
        left, sizes, right = torch.linalg.svd(layer[0], full_matrices=False)
        rank = max(1, int((sizes > _SLIGHT * sizes[0]).sum()))
        whole = rank >= _FEWER * len(sizes)
        _FACTORS[problem.smoothness] = None if whole else (left[:, :rank] * sizes[:rank], right[:rank])
    return _FACTORS[problem.smoothness]


def with_parabolas(
    problem: trusted.Problem,
    values: Values,
    tangents: TangentPoints | None,
    record: dict[str, Tangents] | None = None,
) -> Constants:
    """Return bounds over the whole space, with parabolas centred at the samples and at proposed points.

    Args:
        record: filled with what is proposed, by the names of ``certus.kernel.check``. Moves are those of
            ``in_units``, and distances those of float32, so that they can be stored.
    """
    start = constants(problem, values)
    bounds, record = start, {} if record is None else record
    if problem.precision is not None:  # parabolas are about real arithmetic
        return bounds
    own = _centered(problem, values, start.margin_lipschitz)
    if own is not None:
        record["centered"] = own
        bounds = bounds.beside(parabolas(problem, values, start, own))
    if tangents is None:
        return bounds
    sample, rival, origin = tangents.sample, tangents.rival, problem.inputs[tangents.sample]
    point = origin + on_grid(tangents.point - origin).double()
    endless = torch.full((len(sample), len(_CLOSELY)), math.inf, dtype=torch.float64)
    plain = Tangents(sample, rival, point, _ABOVE, endless[:, : len(_ABOVE)])
    record["tangent"] = plain
    first = parabolas(problem, values, start, plain)
    bounds = bounds.beside(first)
    if not _shaped(problem):
        return bounds
    rise, coefficient = first.rise[sample, rival], first.coefficient[sample, rival]
    short = (-values.margins[sample, rival].unsqueeze(1) - rise).clamp_min(0)
    reach = problem.cost.norm(point - problem.inputs[sample])
    rest = (~((2 * short / coefficient).sqrt().amax(1) >= _REACHED * reach)).nonzero().flatten()
    if len(rest) == 0:
        return bounds
    closer = Tangents(
        *(sample[rest], rival[rest], point[rest], _CLOSELY, endless[rest]),
        shaped=True,
        factor=_factor(problem),
    )
    record["shaped"] = closer
    return bounds.beside(parabolas(problem, values, start, closer))


def _centered(problem: trusted.Problem, values: Values, lipschitz: Tensor) -> Tangents | None:
    """Propose the samples themselves for the classes that may be nearest; None for other or large
    networks."""
    if problem.classes is None or not _shaped(problem) or not bool(torch.isfinite(values.steepness).all()):
        return None
    own, short = problem.own, (-values.margins).clamp_min(0)
    linear = torch.where(own, math.inf, short / values.steepness.clamp_min(TINY)).amin(1)
    far = torch.where(own, math.inf, short / lipschitz.clamp_min(TINY))
    first = torch.zeros_like(own)
    first.scatter_(1, far.topk(min(_CLASSES, far.shape[1] - 1), dim=1, largest=False).indices, True)
    # A sample that is an error already has no such distance, but its loss grows all the same.
    steepest = torch.where(own, 0.0, values.steepness).amax(1).clamp_min(TINY)
    scale = torch.where((linear > 0) & torch.isfinite(linear), linear, 1 / steepest).clamp(*_SCALES)
    scale = scale.float().double()
    sample, rival = ((first | (far < linear.unsqueeze(1))) & ~own).nonzero().unbind(1)
    factors = torch.full((len(DISTANCES),), _APART, dtype=torch.float64)
    distances = scale[sample].unsqueeze(1) * DISTANCES
    point, factor = problem.inputs[sample], _factor(problem)
    return Tangents(sample, rival, point, factors, distances, shaped=True, factor=factor)


_HALVINGS = 60


def softplus_roots(score: Score, price: float) -> Tensor | None:
    """Return (n,) ξ = |u| at the maximum of ln(1 + eᵘ) − κ(u − v)², concave in u² for the sign of ½ + 2κv.

    None for other scores, which need no root.
    """
    if score.form is not Form.SOFTPLUS:
        return None
    level, stiffness = score.level, score.stiffness(price)
    push = (0.5 + 2 * stiffness * level).abs()
    low, high = torch.zeros_like(level), 2 * level.abs() + 1 / stiffness + 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rising = push + torch.tanh(middle / 2) / 2 > 2 * stiffness * middle
        low, high = torch.where(rising, middle, low), torch.where(rising, high, middle)
    return torch.where(torch.isfinite(stiffness), high, level.abs()) * (1 + 1e-9)
