"""The radial rule: majorants of the loss as functions of the distance from a sample; and certified radii.

*Theorem.* With c(x, x₀) ≥ g‖x − x₀‖², any majorant u with ℓ(x) ≤ u(‖x − x₀‖) gives
φ_γ(x₀) ≤ sup_{r ≥ 0} u(r) − γgr² for every γ. On each ring r_j ≤ r ≤ r_{j+1} majorants that are convex in r
are below their chords, so that the supremum over the ring of (chord − γgr²) has a closed form:

- margins (softmax family): lse_k(e_k(r)), e_y = 0, and else e_k = m_k(x₀) + min(Lip_k·r,
  ‖∇m_k(x₀)‖r + κ_k r²/2, parabolas of ``majorants``);
- the loss itself: ℓ(x₀) + min(G·r, ‖∇ℓ(x₀)‖r + L⁺r²/2), or (√ℓ(x₀) + αr)² for squares.

Constants are those of the smallest ball with constants that contains the ring, or those of all of space. The
rings are proposals. Each of the functions in a minimum is a + br + cr²/2 with a, b, c ≥ 0.

*Radii.* No error is nearer than the least root of the e_k. The root of a minimum is the largest of the roots,
and m + a + br + cr²/2 has, for s = −m − a ≥ 0, the root 2s/(b + √(b² + 2cs)). Ties are errors. Beyond the
reach of Z there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.kernel.losses import Form, Score, Softmax
from certus.kernel.majorants import Constants, constants
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, Values
from certus.kernel.rounding import FEW, SOME, TINY, down, up
from certus.kernel.rows import cheapest_combinations


def score_of(problem: Problem, values: Values, everywhere: Constants) -> Score:
    """The loss as a function of one number (``Score``)."""
    loss = problem.loss
    if isinstance(loss, Softmax) and loss.form is Form.SOFTPLUS:
        steepness = up(loss.scale * everywhere.margin_lipschitz.amax(1), FEW)
        return Score(loss.form, values.level, steepness, up(loss.slope / loss.scale, FEW))
    return Score(loss.form, values.level, everywhere.root if loss.form is Form.SQUARE else everywhere.slope)


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

    def _beyond(self, price: float) -> Tensor:
        """(n,) supremum over all r beyond the last edge: ℓ ≤ ℓ(x₀) + Gr, or (√ℓ(x₀) + αr)² for squares."""
        last, squares = float(self.edges[-1]), self.root > 0
        if self.clip is not None:
            return torch.full_like(self.origin, self.clip - down(price * last**2, SOME))
        excess, start = (price - self.root**2).clamp_min(0), up(self.origin.sqrt())
        far = torch.where(squares, self.root * start / excess, self.slope / (2 * price)).clamp_min(last)
        heights = torch.where(squares, (start + self.root * far) ** 2, self.origin + self.slope * far)
        return (up(heights) - down(price * far**2, SOME)).nan_to_num(math.inf, math.inf)

    def bound(self, rings: Tensor) -> Tensor:
        """(n,) upper bounds on φ_γ from those on the rings."""
        return torch.maximum(rings.amax(1), self._clipped(self.origin))

    def lipschitz(self, gamma: float, roots: Tensor | None = None) -> Tensor:
        """(n,) the Lipschitz rule (``Score``), and φ_γ ≤ ℓ(x₀) + G²/(4γg)."""
        price = gamma * self.unit_cost
        plain = self.origin + up(self.slope**2 / (4 * price), SOME)
        return self._clipped(torch.minimum(plain, self.score.bound(price, roots)))

    def _clipped(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp_max(self.clip)


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """Bounds around some samples; no point that may be predicted as k is nearer than ``radii``, (n, classes),
    ∞ for the label itself; None without classes. ``frozen`` are those of the problem in which no discrete
    column changes, and ``listed`` those where they have changed; None without columns."""

    problem: Problem
    values: Values
    profile: Profile
    balls: list[Constants]
    radii: Tensor | None
    frozen: Neighborhoods | None = None
    listed: Listed | None = None

    @property
    def radius(self) -> Tensor | None:
        """(n,) no error is nearer."""
        return None if self.radii is None else self.radii.amin(1)


@dataclass(frozen=True, eq=False)
class Listed:
    """Bounds around the rows after listed combinations of changes, with all columns frozen there.

    Attributes:
        parts: k combinations of n rows at a time, n·k samples in the order of rows.
        prices: (n, k) of each part; beyond: (n,) no other combination costs less.
    """

    parts: list[Neighborhoods]
    prices: list[Tensor]
    beyond: Tensor


_TOGETHER = 32  # combinations


def _listed(problem: Problem, edges: Tensor, clip: float | None) -> Listed:
    assert problem.columns is not None
    box = replace(problem.domain, center=None, radius=math.inf)
    frozen, parts = problem.columns.frozen.settled(box, problem.cost.label_price, None), []
    moved, prices, beyond = cheapest_combinations(problem)
    for rows in moved.split(_TOGETHER, 1):
        targets = problem.targets.repeat_interleave(rows.shape[1], 0)
        part = frozen.about(rows.flatten(0, 1), targets)
        there = Values.at(part)
        parts.append(neighborhoods(part, there, constants(part, there), edges, [], clip))
    return Listed(parts, list(prices.split(_TOGETHER, 1)), beyond)


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
        sets.insert(0, constants(problem, values, float(edges[index]), index).within(sets[0]))
        if on_ball is not None:
            on_ball()
    ends, first = [], 0
    for ball in sets:
        last = len(edges) - 1 if ball.edge is None else ball.edge
        if first < last:
            ends.append(_majorants(problem, values, ball, edges[first:last], edges[first + 1 : last + 1]))
            first = last
    left, right = (torch.cat(side, 2) for side in zip(*ends, strict=True))
    score, cost = score_of(problem, values, everywhere), problem.unit_cost
    profile = Profile(
        *(edges, left, right, values.loss, everywhere.slope, everywhere.root),
        *(score, problem.reach, cost, clip),
    )
    radii = None if problem.classes is None else rival_radii(problem, values, sets, edges)
    frozen, listed = None, None
    if problem.columns is not None:
        listed = _listed(problem, edges, clip)
        part = problem.columns.frozen
        there = Values.at(part)
        frozen = neighborhoods(part, there, constants(part, there), edges, balls, clip, on_ball)
    return Neighborhoods(problem, values, profile, sets, radii, frozen, listed)


Growth = tuple[Tensor, Tensor, Tensor]
"""a, b and c ≥ 0 of functions a + br + cr²/2 of r; they broadcast to (n, …, functions, 1)."""
_NOTHING = torch.zeros(1, dtype=torch.float64)


def _growths(slope: Tensor, curvature: Tensor, lipschitz: Tensor) -> list[Growth]:
    """br + cr²/2 and Lr, from (n, …) b, c and L."""
    slope, curvature, lipschitz = (each[..., None, None] for each in (slope, curvature, lipschitz))
    return [(_NOTHING, slope, curvature.clamp_min(0)), (_NOTHING, lipschitz, _NOTHING)]


def _margin_growths(values: Values, ball: Constants) -> list[Growth]:
    """Bounds on m_k(x) − m_k(x₀), for (n, classes) margins."""
    parabolas = [(each.rise[..., None], _NOTHING, each.coefficient[..., None]) for each in ball.parabolas]
    return _growths(values.steepness, ball.margin_curvature, ball.margin_lipschitz) + parabolas


def _majorants(
    problem: Problem, values: Values, ball: Constants, inner: Tensor, outer: Tensor
) -> tuple[Tensor, Tensor]:
    """Values at both edges of some rings, (majorants, n, rings) each."""
    origin, loss = values.loss.unsqueeze(1), problem.loss
    rises = _ends(_growths(values.slope, ball.curvature, ball.slope), inner, outer)
    majorants = [[origin + rise for rise in rises]]
    if loss.form is Form.SQUARE:
        start, root = origin.sqrt(), ball.root.unsqueeze(1)
        majorants.append([(start + root * edge) ** 2 for edge in (inner, outer)])
    if isinstance(loss, Softmax) and loss.form is Form.SOFTPLUS:
        rises, own = _ends(_margin_growths(values, ball), inner, outer), problem.own.unsqueeze(2)
        majorants.append([loss.above(values.margins.unsqueeze(2) + rise, own) for rise in rises])
    left, right = (torch.stack(side) for side in zip(*majorants, strict=True))
    return left, right


def _ends(growths: Sequence[Growth], inner: Tensor, outer: Tensor) -> tuple[Tensor, Tensor]:
    """(n, …, rings) values at both edges of rings, of the function that is smallest at the outer edge."""
    low = high = torch.tensor(math.inf, dtype=torch.float64)
    for rise, slope, curvature in growths:
        first, last = (up(rise + slope * edge + curvature * edge**2 / 2) for edge in (inner, outer))
        last, which = last.min(-2)
        first = first.gather(-2, which.unsqueeze(-2)).squeeze(-2)
        low, high = torch.where(last < high, first, low), torch.where(last < high, last, high)
    return low, high


def rival_radii(
    problem: Problem, values: Values, sets: Sequence[Constants], edges: Tensor | None = None
) -> Tensor:
    """Return (n, classes) certified radii: each e_k stays below 0 up to there, on a ball where its constants
    hold; ∞ for the label itself."""
    best, short = torch.zeros_like(values.margins), (-values.margins).clamp_min(0)[..., None, None]
    for ball in sets:
        roots = torch.cat([_root(short, *growth) for growth in _margin_growths(values, ball)], 2)
        radii = down(roots.amax((2, 3)), SOME)
        if ball.edge is not None:
            assert edges is not None
            radii = radii.clamp_max(float(edges[ball.edge]))
        best = torch.maximum(best, radii)
    return torch.where(problem.own | (best > problem.reach[:, None]), math.inf, best)


def _root(short: Tensor, rise: Tensor, slope: Tensor, curvature: Tensor) -> Tensor:
    """r with a + br + cr²/2 = short; squares that vanish in float64 count."""
    left = (short - rise).clamp_min(0)
    bend = curvature.sqrt() * (2 * left).sqrt()
    return (2 * left / (slope + torch.hypot(slope, bend))).nan_to_num(0.0, math.inf)
