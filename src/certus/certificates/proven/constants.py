"""Bounds around each sample, on balls and everywhere: the constants of radial profiles, and certified radii.

``certified_radii`` computes radii on their own, for many samples. The parabolas that touch the margins come
first, since they are cheap and mostly optimal. Where one falls short of the point that it was made for, those
centred at the sample follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from certus.bounds import local_smoothness
from certus.certificates.proven.majorants import (
    Margins,
    Parabolas,
    TangentPoints,
    Values,
    centered_parabolas,
    tangent_parabolas,
)
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.radial import Profile
from certus.errors import UnsupportedError
from certus.rounding import HUNDREDS, down, slack, up


@dataclass(frozen=True, eq=False)
class Grid:
    """Distances at which profiles are computed, fixed before any sample is seen.

    Attributes:
        edges: (rings + 1,) starting at 0.
        balls: indices of the edges that are radii of balls with their own bounds.
    """

    edges: Tensor
    balls: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Constants:
    """Bounds on the ball around each sample, or everywhere: (n, classes) for margins, (n,) for the loss.

    ``margin_curvature`` is κ with m(x + δ) ≤ m(x) + ⟨∇m(x), δ⟩ + (κ/2)‖δ‖² at the sample x, where
    ``parabolas`` hold
    too. ``curvature`` bounds second derivatives. ``edge`` is the index of the ball's radius; None for the
    whole
    space.
    """

    edge: int | None
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    slope: Tensor
    curvature: Tensor
    parabolas: Parabolas | None = None

    def within(self, larger: Constants) -> Constants:
        """The elementwise minimum of these bounds and those on a larger set."""

        def least(mine: Tensor | None, other: Tensor | None) -> Tensor | None:
            return None if mine is None or other is None else torch.minimum(mine, other)

        return Constants(
            self.edge,
            least(self.margin_lipschitz, larger.margin_lipschitz),
            least(self.margin_curvature, larger.margin_curvature),
            torch.minimum(self.slope, larger.slope),
            torch.minimum(self.curvature, larger.curvature),
            larger.parabolas,
        )


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Bounds around the samples of a batch.

    Attributes:
        radius: (n,) no error is nearer than this, in the cost's norm; None for regression.
        loss: (n,) ℓ at the samples, rounded up.
    """

    problem: Problem
    profile: Profile
    balls: list[Constants]
    radius: Tensor | None
    loss: Tensor

    @property
    def start(self) -> Tensor:
        """(n,) ℓ at the samples, rounded down."""
        return self.loss - 2.1 * self.problem.slack(self.loss, self.problem.rounding)


def bound_neighborhoods(
    problem: Problem,
    grid: Grid,
    clip: float | None,
    tangents: TangentPoints | None = None,
    on_ball: Callable[[], None] | None = None,
) -> Neighborhoods:
    """Bound the loss around every sample of a small problem, from proposed tangent tangents too, if any.

    Args:
        on_ball: called after the bounds on each ball, which take most of the time.
    """
    values, balls = Values.at(problem), [everywhere(problem)]
    if not problem.claimed:
        balls = [_with_parabolas(problem, values, balls[0], tangents)]
        # What holds on a larger set holds on a smaller one; the list ends with all of space.
        for index in sorted(grid.balls, reverse=True):
            balls.insert(0, _ball(problem, grid, index).within(balls[0]))
            if on_ball is not None:
                on_ball()
    rings = len(grid.edges) - 1
    chosen = [next(ball for ball in balls if ball.edge is None or ball.edge > ring) for ring in range(rings)]
    left, right = [], []
    for ball in balls:
        mine = [ring for ring in range(rings) if chosen[ring] is ball]
        if mine:
            ends = _majorants(
                problem, values, ball, grid.edges[mine], grid.edges[[ring + 1 for ring in mine]]
            )
            left.append(ends[0])
            right.append(ends[1])
    last = balls[-1]
    profile = Profile(
        edges=grid.edges,
        left=torch.cat(left, 2),
        right=torch.cat(right, 2),
        origin=values.loss,
        slope=last.slope,
        root=problem.smoothness.output_lipschitz if problem.softmax is None else 0.0,
        reach=problem.reach,
        unit_cost=problem.unit_cost,
        clip=clip,
    )
    radius = None
    if values.margins is not None:
        own = nn.functional.one_hot(problem.targets, problem.classes or 0).bool()
        radius = margin_radii(values.margins, own, balls, grid.edges)
        radius = torch.where(radius > problem.reach, math.inf, radius)
    return Neighborhoods(problem, profile, balls, radius, values.loss)


def everywhere(problem: Problem) -> Constants:
    """Bounds that hold at all points: (n, classes) and (n,) by the samples' labels."""
    bound, count = problem.smoothness, len(problem)
    ones = torch.ones(count, dtype=torch.float64)
    if problem.softmax is None:
        return Constants(None, None, None, bound.lipschitz * ones, bound.curvature * ones)
    # A claim may leave the margins out: then nothing is known of them.
    unknown = torch.full((problem.classes or 0,) * 2, math.inf, dtype=torch.float64).fill_diagonal_(0.0)
    matrices = (
        unknown if matrix is None else matrix for matrix in (bound.margin_lipschitz, bound.margin_curvature)
    )
    slopes, curvatures = (matrix.double().T[problem.targets] for matrix in matrices)
    lipschitz = bound.lipschitz * ones
    if not problem.softmax.smoothing:
        lipschitz = torch.minimum(lipschitz, up(problem.softmax.slope * slopes.amax(1)))
    return Constants(None, slopes, curvatures, lipschitz, bound.curvature * ones)


def _with_parabolas(
    problem: Problem, values: Values, ball: Constants, tangents: TangentPoints | None
) -> Constants:
    """Add parabolas of the margins, and their curvature as seen from each sample if that is smaller."""
    if values.margins is None or ball.margin_lipschitz is None or ball.margin_curvature is None:
        return ball
    new = centered_parabolas(problem, values.margins, ball.margin_lipschitz)
    if tangents is not None:
        more = tangent_parabolas(problem, values.margins, ball.margin_curvature, tangents)
        new = more if new is None else new.beside(more)
    if new is None:
        return ball
    curvature = torch.minimum(ball.margin_curvature, new.curvature)
    return replace(ball, margin_curvature=curvature, parabolas=new)


def _ball(problem: Problem, grid: Grid, index: int) -> Constants:
    radius = float(grid.edges[index])
    bound = local_smoothness(problem.analysis, problem.inputs, problem.targets, radius)
    return Constants(index, bound.margin_lipschitz, bound.margin_curvature, bound.lipschitz, bound.curvature)


def _majorants(
    problem: Problem, values: Values, ball: Constants, inner: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor]:
    """Values at both edges of some rings, (majorants, n, rings) each."""
    lefts, rights = [], []
    low, high = _rise(values.slope, ball.slope, ball.curvature, inner, outer)
    origin = values.loss.unsqueeze(1)
    lefts.append(origin + low)
    rights.append(origin + high)
    softmax = problem.softmax
    if softmax is None:
        start, root = origin.sqrt(), problem.smoothness.output_lipschitz
        lefts.append((start + root * inner) ** 2)
        rights.append((start + root * outer) ** 2)
    elif not softmax.smoothing:
        margins = values.margins
        assert margins is not None
        assert ball.margin_lipschitz is not None
        assert ball.margin_curvature is not None
        own = problem.targets.reshape(-1, 1, 1)
        rises = _rise(margins.steepness, ball.margin_lipschitz, ball.margin_curvature, inner, outer)
        if ball.parabolas is not None:
            rises = _below(rises, ball.parabolas, inner, outer)
        rounding = max(HUNDREDS, slack(margins.values.shape[1]))
        for majorants, rise in zip((lefts, rights), rises, strict=True):
            lifted = softmax.scale * (margins.values.unsqueeze(2) + rise + softmax.offset)
            lifted = lifted.scatter(1, own.expand(-1, 1, lifted.shape[2]), 0.0)
            majorants.append(
                softmax.slope / softmax.scale * torch.logsumexp(lifted, 1) * (1 + rounding) + rounding
            )
    return torch.stack(lefts), torch.stack(rights)


def margin_radii(margins: Margins, own: Tensor, balls: list[Constants], edges: Tensor) -> Tensor:
    """(n,) certified radii: every e_k stays below 0 up to there, on a ball where its constants hold. Ties
    are errors.

    The root of m + Lip·r is −m/Lip, that of m + gr + κr²/2 is −2m/(g + √(g² − 2κm)), that of m + c + λr²/2 is
    √(−2(m + c)/λ); e_k is the smallest of these functions, so its root is the largest of theirs.
    """
    best = torch.zeros(len(own), dtype=torch.float64)
    short = (-margins.values).clamp_min(0)
    for ball in balls:
        assert ball.margin_lipschitz is not None
        assert ball.margin_curvature is not None
        most = up(ball.margin_lipschitz)
        steep, curvature = up(margins.steepness), up(ball.margin_curvature.clamp_min(0))
        curved = 2 * short / (steep + (steep**2 + 2 * curvature * short).sqrt())
        roots = torch.maximum(short / most, curved.nan_to_num(0.0)).nan_to_num(0.0, math.inf)
        if ball.parabolas is not None:
            left = (short.unsqueeze(2) - ball.parabolas.rise).clamp_min(0)
            roots = torch.maximum(
                roots, (2 * left / ball.parabolas.coefficient).sqrt().nan_to_num(0.0).amax(2)
            )
        radius = down(torch.where(own, math.inf, roots).amin(1))
        if ball.edge is not None:
            radius = radius.clamp_max(float(edges[ball.edge]))
        best = torch.maximum(best, radius)
    return best


def _rise(
    slope: Tensor, most: Tensor, curvature: Tensor, inner: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor]:
    """Values at both edges of rings of most·r or slope·r + curvature·r²/2, the smaller at the outer edge.

    Shapes (n, …) and (rings,) → (n, …, rings).
    """
    steep = up(slope).unsqueeze(-1)
    most, curvature = up(most.unsqueeze(-1)), up(curvature.clamp_min(0).unsqueeze(-1))
    curved = steep * outer + curvature * outer**2 / 2
    pick = curved <= most * outer
    low = torch.where(pick, steep * inner + curvature * inner**2 / 2, most * inner)
    return low, torch.where(pick, curved, most * outer)


def _below(
    rises: tuple[Tensor, Tensor], parabolas: Parabolas, inner: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor]:
    """The smaller of the rises and of the parabola that is smallest at the outer edge."""
    low, high = rises
    rise, coefficient = parabolas.rise.unsqueeze(-1), parabolas.coefficient.unsqueeze(-1) / 2
    least, which = up(rise + coefficient * outer**2).min(2)
    chosen = which.unsqueeze(2)
    first = up(rise + coefficient * inner**2).gather(2, chosen).squeeze(2)
    smaller = least < high
    return torch.where(smaller, first, low), torch.where(smaller, least, high)


_REACHED = 0.999  # of the distance of a point: near enough


def certified_radii(problem: Problem, tangents: TangentPoints | None) -> Tensor:
    """(n,) no error is nearer to a sample than this, in the cost's norm; 0 if the sample is an error."""
    if tangents is None:
        return _radii(problem, None, centered=True)
    radii = _radii(problem, tangents)
    moved = problem.select(tangents.sample)
    reach = problem.metric.norm(tangents.point - moved.inputs)
    goal = torch.zeros_like(radii).scatter_reduce(0, tangents.sample, reach, "amax")
    rest = (radii < _REACHED * goal).nonzero().flatten()
    if len(rest) > 0:
        radii[rest] = torch.maximum(radii[rest], _radii(problem.select(rest), None, centered=True))
    return radii


def _radii(problem: Problem, tangents: TangentPoints | None, centered: bool = False) -> Tensor:
    margins, constants = Values.at(problem).margins, everywhere(problem)
    if margins is None:
        raise UnsupportedError("A regression has no certified radii: without classes there are no errors.")
    slopes, curvatures = constants.margin_lipschitz, constants.margin_curvature
    assert slopes is not None
    assert curvatures is not None
    if centered:
        parabolas = centered_parabolas(problem, margins, slopes)
        if parabolas is not None:
            constants = replace(
                constants,
                margin_curvature=torch.minimum(curvatures, parabolas.curvature),
                parabolas=parabolas,
            )
    elif tangents is not None:
        constants = replace(constants, parabolas=tangent_parabolas(problem, margins, curvatures, tangents))
    own = nn.functional.one_hot(problem.targets, problem.classes or 0).bool()
    radius = margin_radii(margins, own, [constants], torch.empty(0))
    return torch.where(radius > problem.reach, math.inf, radius)
