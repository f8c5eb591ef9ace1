"""The radial rule: majorants of the loss as functions of the distance from a sample; and certified radii.

*Theorem.* With c(x, x₀) ≥ g‖x − x₀‖², any majorant u with ℓ(x) ≤ u(‖x − x₀‖) gives
φ_γ(x₀) ≤ sup_{r ≥ 0} u(r) − γgr² for every γ. On each ring r_j ≤ r ≤ r_{j+1} majorants that are convex in r
are below their chords, so that the supremum over the ring of (chord − γgr²) has a closed form:

- margins (softmax family): lse_k(e_k(r)), e_y = 0, and else e_k = m_k(x₀) + min(Lip_k·r,
  ‖∇m_k(x₀)‖r + κ_k r²/2, parabolas of ``majorants``);
- the loss itself: ℓ(x₀) + min(G·r, ‖∇ℓ(x₀)‖r + L⁺r²/2), or (√ℓ(x₀) + αr)² for squares.

Constants are those of the smallest ball with constants that contains the ring, or those of all of space. The
rings are proposals.

*Radii.* No error is nearer than the least root of the e_k. Each is the smallest of several functions, so that
its root is the largest of theirs: −m/Lip for m + Lip·r, −2m/(g + √(g² − 2κm)) for m + gr + κr²/2, and
√(−2(m + c)/λ) for m + c + λr²/2. Ties are errors. Beyond the reach of Z there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.kernel.losses import Softmax
from certus.kernel.majorants import Constants, Parabolas, constants
from certus.kernel.passes import Refused
from certus.kernel.problem import Hinge, Problem, Values
from certus.kernel.rounding import FEW, HUNDREDS, SOME, TINY, down, slack, up
from certus.kernel.scores import Form, Score


def _within(ball: Constants, larger: Constants) -> Constants:
    """The elementwise minimum of bounds on a ball and on a larger set."""
    return Constants(
        ball.edge,
        torch.minimum(ball.margin_lipschitz, larger.margin_lipschitz),
        torch.minimum(ball.margin_curvature, larger.margin_curvature),
        torch.minimum(ball.slope, larger.slope),
        torch.minimum(ball.curvature, larger.curvature),
        torch.minimum(ball.root, larger.root),
        larger.parabolas,
    )


def score_of(problem: Problem, values: Values, everywhere: Constants) -> Score:
    """The loss as a function of one number (``scores``)."""
    if isinstance(problem.loss, Softmax) and not problem.loss.smoothing:
        steepest, scale = everywhere.margin_lipschitz.amax(1), problem.loss.scale
        return Score(
            Form.SOFTPLUS, values.level, up(scale * steepest, FEW), up(problem.loss.slope / scale, FEW)
        )
    if problem.loss in (None, Hinge(2)):
        return Score(Form.SQUARE, values.level, everywhere.root)
    return Score(Form.POSITIVE, values.level, everywhere.slope)


@dataclass(frozen=True, eq=False)
class Profile:
    """Majorants of the loss around each of n samples, on rings with common edges.

    Attributes:
        edges: (rings + 1,) 0 = r_0 < r_1 < ….
        left, right: (majorants, n, rings) values at both ends of a ring, of functions convex in between.
        origin: (n,) ℓ(x₀), rounded up; slope, root: (n,) G and α beyond the last edge.
        score: the loss as a function of one number.
        reach: (n,) no point of Z is beyond this distance.
        unit_cost: g; clip: B, if min(ℓ, B) is bounded.
    """

    edges: Tensor
    left: Tensor
    right: Tensor
    origin: Tensor
    slope: Tensor
    root: Tensor
    score: Score
    reach: Tensor
    unit_cost: float
    clip: float | None = None

    def rings(self, gamma: float) -> Tensor:
        """(n, rings + 1) upper bounds on sup ℓ − γc over each ring, the last one for everything beyond."""
        price = gamma * self.unit_cost
        inner, outer = self.edges[:-1], self.edges[1:]
        slopes = (self.right - self.left) / (outer - inner)
        best = (slopes / (2 * price)).clamp(inner, outer)
        if self.clip is not None:
            # min(chord, B) − price·r² is concave: its maximum is at most where the chord meets B.
            crossing = inner + (self.clip - self.left) / slopes.clamp_min(TINY)
            best = torch.minimum(best, crossing.clamp(inner, outer))
        heights = self._clipped(up(self.left + slopes * (best - inner)) + SOME)
        values = (heights - down(price * best**2, SOME)).nan_to_num(math.inf, math.inf, -math.inf)
        suprema = torch.cat([values.amin(0), self._beyond(price).unsqueeze(1)], 1)
        return torch.where(self.edges <= self.reach.unsqueeze(1), suprema, -math.inf)

    def bound(self, rings: Tensor) -> Tensor:
        """(n,) upper bounds on φ_γ from those on the rings."""
        return torch.maximum(rings.amax(1), self._clipped(self.origin))

    def lipschitz(self, gamma: float, roots: Tensor | None = None) -> Tensor:
        """(n,) the Lipschitz rule (``scores``), and φ_γ ≤ ℓ(x₀) + G²/(4γg)."""
        price = gamma * self.unit_cost
        plain = self.origin + up(self.slope**2 / (4 * price), SOME)
        return self._clipped(torch.minimum(plain, self.score.bound(price, roots)))

    def _clipped(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp_max(self.clip)

    def _beyond(self, price: float) -> Tensor:
        """(n,) supremum over all r beyond the last edge: ℓ ≤ ℓ(x₀) + Gr, or (√ℓ(x₀) + αr)² for squares."""
        last, squares = float(self.edges[-1]), self.root > 0
        if self.clip is not None:
            return torch.full_like(self.origin, self.clip - down(price * last**2, SOME))
        excess, start = (price - self.root**2).clamp_min(0), up(self.origin.sqrt())
        far = torch.where(squares, self.root * start / excess, self.slope / (2 * price)).clamp_min(last)
        heights = torch.where(squares, (start + self.root * far) ** 2, self.origin + self.slope * far)
        return (up(heights) - down(price * far**2, SOME)).nan_to_num(math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Bounds around some samples; no error is nearer than ``radius``, (n,), which is None without classes."""

    problem: Problem
    values: Values
    profile: Profile
    balls: list[Constants]
    radius: Tensor | None


def neighborhoods(
    problem: Problem,
    values: Values,
    everywhere: Constants,
    edges: Tensor,
    balls: Sequence[int],
    clip: float | None = None,
    on_ball: Callable[[], None] | None = None,
) -> Neighborhoods:
    """Bound the loss around every sample.

    Args:
        everywhere: of ``constants``, with ``parabolas`` if there are any.
        edges: (rings + 1,) of the rings; balls: indices of those that are radii of balls with own bounds.
        on_ball: called after the bounds on each ball, which take most of the time.
    """
    rising = len(edges) > 1 and float(edges[0]) == 0 and bool((edges.diff() > 0).all())
    if not (rising and math.isfinite(edges[-1]) and all(0 < index < len(edges) for index in balls)):
        raise Refused("the edges of rings must increase from 0, and balls be among them")
    if everywhere.edge is not None:
        raise Refused("bounds on a ball do not hold everywhere")
    # What holds on a larger set holds on a smaller one; the list ends with all of space.
    sets = [everywhere]
    for index in sorted(balls, reverse=True) if problem.claimed is None else ():
        sets.insert(0, _within(constants(problem, values, float(edges[index]), index), sets[0]))
        if on_ball is not None:
            on_ball()
    ends, first = [], 0
    for ball in sets:
        last = len(edges) - 1 if ball.edge is None else ball.edge
        if first < last:
            ends.append(_majorants(problem, values, ball, edges[first:last], edges[first + 1 : last + 1]))
            first = last
    profile = Profile(
        *(edges, torch.cat([end[0] for end in ends], 2), torch.cat([end[1] for end in ends], 2), values.loss),
        *(everywhere.slope, everywhere.root, score_of(problem, values, everywhere)),
        *(problem.reach, problem.unit_cost, clip),
    )
    radius = None if problem.classes is None else certified_radii(problem, values, sets, edges)
    return Neighborhoods(problem, values, profile, sets, radius)


def _majorants(
    problem: Problem, values: Values, ball: Constants, inner: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor]:
    """Values at both edges of some rings, (majorants, n, rings) each."""
    origin, loss = values.loss.unsqueeze(1), problem.loss
    low, high = _rise(values.slope, ball.slope, ball.curvature, inner, outer)
    lefts, rights = [origin + low], [origin + high]
    if loss in (None, Hinge(2)):
        start, root = origin.sqrt(), ball.root.unsqueeze(1)
        lefts.append((start + root * inner) ** 2)
        rights.append((start + root * outer) ** 2)
    if isinstance(loss, Softmax) and not loss.smoothing:
        rises = _rise(values.steepness, ball.margin_lipschitz, ball.margin_curvature, inner, outer)
        if ball.parabolas is not None:
            rises = _below(rises, ball.parabolas, inner, outer)
        rounding = max(HUNDREDS, slack(values.margins.shape[1]))
        for majorants, rise in zip((lefts, rights), rises, strict=True):
            lifted = loss.scale * (values.margins.unsqueeze(2) + rise + loss.offset)
            lifted = torch.where(problem.own.unsqueeze(2), 0.0, lifted)
            height = loss.slope / loss.scale * torch.logsumexp(lifted, 1)
            majorants.append(height * (1 + rounding) + rounding)
    return torch.stack(lefts), torch.stack(rights)


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
    first = up(rise + coefficient * inner**2).gather(2, which.unsqueeze(2)).squeeze(2)
    smaller = least < high
    return torch.where(smaller, first, low), torch.where(smaller, least, high)


def certified_radii(
    problem: Problem, values: Values, sets: Sequence[Constants], edges: Tensor | None = None
) -> Tensor:
    """(n,) certified radii: every e_k stays below 0 up to there, on a ball where its constants hold."""
    best, short, steep = torch.zeros_like(values.loss), (-values.margins).clamp_min(0), values.steepness
    for ball in sets:
        curvature = ball.margin_curvature.clamp_min(0)
        curved = 2 * short / (steep + (steep**2 + 2 * curvature * short).sqrt())
        roots = torch.maximum(short / ball.margin_lipschitz, curved.nan_to_num(0.0)).nan_to_num(0.0, math.inf)
        if ball.parabolas is not None:
            left = (short.unsqueeze(2) - ball.parabolas.rise).clamp_min(0)
            more = (2 * left / ball.parabolas.coefficient).sqrt().nan_to_num(0.0)
            roots = torch.maximum(roots, more.amax(2))
        radius = down(torch.where(problem.own, math.inf, roots).amin(1), SOME)
        if ball.edge is not None:
            assert edges is not None
            radius = radius.clamp_max(float(edges[ball.edge]))
        best = torch.maximum(best, radius)
    return torch.where(best > problem.reach, math.inf, best)
