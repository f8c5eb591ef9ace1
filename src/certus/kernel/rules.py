"""Upper bounds φ̄_γ of the inner problem at one γ, sample by sample, from proposed points (eqn:inner-sup).

*The gap rule.* Where f = ℓ − γc has the modulus μ = sγ − L⁺ > 0 on a ball around x₀ that holds the point ẑ,
f ≤ f(ẑ) + sup_{z ∈ Z} ⟨∇f(ẑ), z − ẑ⟩ − (μ/2)‖z − ẑ‖² there (``Cost.gap``), and the rings of the profile bound
everything outside: φ_γ is at most the larger of both. On the whole space nothing is outside. So "concave"
(everywhere) and "local" (on a ball) are one rule. A bad point makes the bound loose, never wrong.

*Rounding.* With ∇f known up to e in the dual norm, ⟨d, δ⟩ ≤ e²/2tμ + tμ‖δ‖²/2 for ‖d‖_* ≤ e: a share t of the
modulus covers the error.

*Labels.* Where losses count by a weight w of the label, sup_x wℓ − γc = w·φ_{γ/w}(x₀), which falls with γ.
Where a label may change at a price, φ_γ = max(φ_γ(x, y), max_{y'} φ_γ(x, y') − γ·price).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

from certus.kernel.evidence import Result, mark
from certus.kernel.losses import Rounding
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, rounding_at, with_gradient
from certus.kernel.radial import Neighborhoods
from certus.kernel.rounding import FEW, MANY, SOME, down, up
from certus.kernel.rows import rows_of

_SHARE = 1e-6  # t
NO_TRAITS = torch.zeros(0, 3, dtype=torch.float64)


class Rule(IntEnum):
    """The rule that proves a bound."""

    LIPSCHITZ = 0
    """Growth of a score with the distance: φ ≤ ℓ(x₀) + G²/(4γg), or better."""

    RADIAL = 1
    """Growth of the margins, or of the loss, with the distance, ring by ring."""

    LOCAL = 2
    """Value and gap on a ball where the inner problem is concave; the rest by the radial rule."""

    CONCAVE = 3
    """Value and gap: the inner problem is concave everywhere."""

    ENSEMBLE = 4
    """Costs at which scores of an ensemble of trees are reached (``tree_profiles``)."""

    ROWS = 5
    """Discrete columns of a table change as a whole or not at all (``rows``)."""


class _Priced(Protocol):
    @property
    def label_price(self) -> float: ...


class Labelled(Protocol):
    """A problem as far as labels matter: of a network, or of an ensemble of trees."""

    @property
    def inputs(self) -> Tensor: ...

    @property
    def targets(self) -> Tensor: ...

    @property
    def classes(self) -> int | None: ...

    @property
    def cost(self) -> _Priced: ...


@dataclass(frozen=True, eq=False)
class Proposal:
    """f = ℓ − γc at one point of each sample of a problem, in float64.

    Attributes:
        point: (batch, *shape); slope: (batch, *shape) ∇ℓ there.
        loss, cost: (batch,) ℓ and c, and rounding: how far ℓ and ∇ℓ may be off.
        safe: (batch,) bool: all of it is finite.
    """

    problem: Problem
    gamma: float
    point: Tensor
    loss: Tensor
    cost: Tensor
    slope: Tensor
    rounding: Rounding
    safe: Tensor

    @staticmethod
    def at(problem: Problem, gamma: float, points: Tensor) -> Proposal:
        point = points.detach().double().clone()
        loss, slope = with_gradient(problem.losses, point)
        cost, rounding = problem.cost.value(point, problem.inputs), rounding_at(problem.graph, point)
        safe = torch.isfinite(loss - gamma * cost) & torch.isfinite(slope.flatten(1).sum(1))
        safe &= torch.isfinite(rounding.values)
        return Proposal(problem, gamma, point, loss, cost, slope, rounding, safe)


def bounds_by_rule(
    around: Neighborhoods, proposal: Proposal, roots: Tensor | None = None
) -> dict[Rule, Tensor]:
    """(batch,) upper bounds on φ_γ by every rule; ∞ where a rule does not apply.

    Args:
        roots: (batch,) proposals for the Lipschitz rule (``Score.bound``).
    """
    profile, gamma = around.profile, proposal.gamma
    if not 0 < gamma < math.inf or proposal.problem is not around.problem:
        raise Refused(f"gamma must be positive and finite, and the problem the same; got gamma = {gamma}")
    rings = profile.rings(gamma)
    bounds = {Rule.LIPSCHITZ: profile.lipschitz(gamma, roots), Rule.RADIAL: profile.bound(rings)}
    bounds |= _gap_rules(around, proposal, rings)
    return {rule: bound.nan_to_num(math.inf, math.inf, -math.inf) for rule, bound in bounds.items()}


def _gap_rules(around: Neighborhoods, proposal: Proposal, rings: Tensor) -> dict[Rule, Tensor]:
    """The bounds of the rules "local" and "concave"."""
    gamma, problem, cost = proposal.gamma, around.problem, around.problem.cost
    nothing = torch.full_like(proposal.loss, math.inf)
    bounds = {Rule.LOCAL: nothing, Rule.CONCAVE: nothing.clone()}
    if cost.strong_convexity == 0:
        return bounds
    height = proposal.loss - gamma * proposal.cost + problem.slack(proposal.loss, proposal.rounding)
    height = height + cost.rounding * (1 + gamma * proposal.cost)
    height = height + gamma * cost.value_error(proposal.point, problem.inputs)
    gradient = proposal.slope - gamma * cost.gradient(proposal.point, problem.inputs)
    distance = cost.norm(proposal.point - problem.inputs)
    # ∇f is off by the rounding of ∇ℓ, of ∇c, and of both together.
    error = problem.slope_error(proposal.loss, proposal.rounding)
    error = cost.dual_size(error + gamma * cost.gradient_error(proposal.point, problem.inputs))
    error = error + 2 * cost.rounding * (cost.dual(gradient) + cost.dual(proposal.slope))
    tails = rings.flip(1).cummax(1).values.flip(1)
    for ball in around.balls:
        rule = Rule.CONCAVE if ball.edge is None else Rule.LOCAL
        modulus = (down(cost.strong_convexity * gamma, SOME) - ball.curvature) * (1 - _SHARE)
        useful, outside = proposal.safe & (modulus > 0), nothing * -1
        if ball.edge is not None:
            outside = tails[:, ball.edge]
            useful &= distance <= down(float(around.profile.edges[ball.edge]), max(MANY, cost.rounding))
        useful &= torch.maximum(height, outside) < bounds[rule]
        if useful.any():
            gap = cost.gap(gradient[useful], proposal.point[useful], modulus[useful], problem.domain)
            gap = up(gap, 2 * cost.rounding)
            gap = gap + (1 + 1 / _SHARE) * error[useful] ** 2 / (2 * modulus[useful])
            bound = torch.maximum(height[useful] + gap, outside[useful])
            bounds[rule][useful] = torch.minimum(bounds[rule][useful], bound)
    return bounds


@dataclass(frozen=True, eq=False)
class DualBounds(Result):
    """Upper bounds φ̄_γ of n samples at one γ: of sup min(wℓ, B) − γc, w a weight of the label.

    Attributes:
        bound: (n,); rule: (n,) the ``Rule`` that proves each.
        clip: B; None for ∞.
        problem: what they are about, for one label of each sample; None once all are counted.
        about: (n, 3) wℓ and ``Problem.traits`` of the samples, by which they are matched to other bounds.
    """

    gamma: float
    bound: Tensor
    rule: Tensor
    clip: float | None = None
    assumptions: tuple[str, ...] = ()
    problem: Labelled | None = None
    about: Tensor = NO_TRAITS

    @staticmethod
    def unknown(
        gamma: float, count: int, clip: float | None = None, assumptions: tuple[str, ...] = ()
    ) -> DualBounds:
        """∞ for each of n samples, to be filled batch by batch; until then they fit no samples."""
        bound, about = torch.full((count,), math.inf), torch.full((count, 3), math.nan)
        rule = torch.zeros(count, dtype=torch.int64)
        return mark(DualBounds(gamma, bound.double(), rule, clip, assumptions, None, about.double()))

    def __getitem__(self, index: slice) -> DualBounds:
        """Return the bounds of some samples, which share memory with these."""
        parts = {name: getattr(self, name)[index] for name in ("bound", "rule", "about")}
        part = replace(self, problem=None, **parts)
        return mark(part) if self.marked else part

    @property
    def whole(self) -> bool:
        """Whether every label counts that the samples may take."""
        return self.problem is None or self.problem.cost.label_price == math.inf

    def fill(self, index: slice | Tensor, part: DualBounds) -> None:
        """Set the bounds of some samples."""
        same = (part.gamma, part.clip) == (self.gamma, self.clip)
        same = same and len(part.about) == len(part.bound)
        if not (part.marked and part.whole and same and set(part.assumptions) <= set(self.assumptions)):
            raise Refused("these bounds are about another problem, or leave out labels")
        self.bound[index], self.rule[index], self.about[index] = part.bound, part.rule, part.about


def gamma_within(gamma: float, weight: float) -> float:
    """Return γ/w, rounded down: a smaller γ has a larger bound."""
    return gamma if weight == 1 else down(gamma / weight, FEW)


def clip_within(clip: float | None, weight: float) -> float | None:
    """Return B/w, rounded up."""
    return clip if clip is None or weight == 1 else up(clip / weight, FEW)


def dual_bounds(
    around: Neighborhoods,
    gamma: float,
    proposal: Proposal,
    roots: Tensor | None = None,
    weight: float = 1.0,
    clip: float | None = None,
) -> DualBounds:
    """Return the smallest bound of all rules.

    Args:
        around: with ``clip_within(clip, weight)``; proposal: at ``gamma_within(gamma, weight)``.
        roots: (n,) proposals for the Lipschitz rule. weight: w of the label of all these samples.
    """
    within = gamma_within(gamma, weight), clip_within(clip, weight)
    if not 0 < weight < math.inf or (proposal.gamma, around.profile.clip) != within:
        raise Refused(f"gamma and clip must be divided by the weight {weight}")
    rules = bounds_by_rule(around, proposal, roots)
    if around.frozen is not None:
        there, start = around.frozen, proposal.problem.inputs
        still = Proposal.at(
            there.problem, proposal.gamma, start + there.problem.cost.freed(proposal.point - start)
        )
        frozen = torch.stack([*bounds_by_rule(there, still).values()]).amin(0)
        rules[Rule.ROWS] = _over_rows(around, proposal.gamma, frozen)
    order = sorted(rules)
    bound, which = torch.stack([rules[each] for each in order]).min(0)
    rule = torch.tensor([int(each) for each in order])[which]
    bound = bound if weight == 1 else up(weight * bound, FEW)
    bound = bound if clip is None else bound.clamp_max(clip)
    problem, about = around.problem, _traits(around, weight)
    return mark(DualBounds(gamma, bound, rule, clip, problem.assumptions, problem, about))


SHARES = (0.5, 0.75, 0.875, 0.96875)
"""s of ``rows``, each a proposal."""


def _over_rows(around: Neighborhoods, gamma: float, frozen: Tensor) -> Tensor:
    """(n,) upper bounds on sup ℓ − γc̃ over rows (``rows``), from those where no column changes; ∞ for
    samples that are no rows."""
    listed, profile = around.listed, around.profile
    assert listed is not None
    bound, rest = frozen, torch.full_like(frozen, math.inf)
    for share in SHARES:
        within = down(gamma * (1 - share), SOME)
        hull = torch.minimum(profile.bound(profile.rings(within)), profile.lipschitz(within))
        rest = torch.minimum(rest, hull - down(gamma * share * listed.beyond, SOME) + SOME * hull.abs())
    bound = torch.maximum(bound, torch.where(listed.beyond < math.inf, rest, -math.inf))
    for part, prices in zip(listed.parts, listed.prices, strict=True):
        own, paid = part.profile, down(gamma * prices, SOME)
        there = torch.minimum(own.bound(own.rings(gamma)), own.lipschitz(gamma)).reshape(prices.shape)
        if bool((there - paid > bound.unsqueeze(1)).any()):
            # Worth a better bound: from the first step of an ascent.
            problem = part.problem
            _, slope = with_gradient(problem.losses, problem.inputs)
            step = problem.cost.freed(slope / (2 * gamma * problem.cost.weights)).nan_to_num(0.0, 0.0, 0.0)
            point = (problem.inputs + step).clamp(problem.domain.lower, problem.domain.upper)
            rules = bounds_by_rule(part, Proposal.at(problem, gamma, point))
            there = torch.minimum(there, torch.stack([*rules.values()]).amin(0).reshape(prices.shape))
        gain = torch.where(paid < math.inf, there - paid + SOME * there.abs(), -math.inf)
        bound = torch.maximum(bound, gain.amax(1))
    return torch.where(rows_of(around.problem), bound, math.inf)


def _row_error_costs(around: Neighborhoods, costs: Tensor, frozen: Tensor) -> Tensor:
    """(n, classes) lower bounds on the cost of a row predicted as each class (``rows``), from those of both
    problems."""
    listed = around.listed
    assert listed is not None
    over_rows = torch.minimum(frozen, torch.maximum(costs, listed.beyond.unsqueeze(1)))
    for part, prices in zip(listed.parts, listed.prices, strict=True):
        assert part.radii is not None
        there = error_costs(part.problem, part.radii).reshape(*prices.shape, -1) + prices.unsqueeze(2)
        over_rows = torch.minimum(over_rows, down(there, SOME).amin(1))
    return torch.where(rows_of(around.problem).unsqueeze(1), torch.maximum(costs, over_rows), costs)


def over_labels(own: DualBounds, others: Sequence[DualBounds]) -> DualBounds:
    """φ̄_γ where a label may change at the price of the cost; ``others`` are under every other label."""
    parts, problem = (own, *others), own.problem
    about = [part.problem for part in parts if part.marked and part.problem is not None]
    same = [(part.gamma, part.clip) == (own.gamma, own.clip) for part in parts]
    if problem is None or len(about) < len(parts) or not all(same):
        raise Refused("the bounds must be about the same samples, under other labels")
    labels = torch.stack([each.targets for each in about]).sort(0).values
    every = torch.arange(problem.classes or 0).unsqueeze(1).expand(-1, labels.shape[1])
    if not (torch.equal(labels, every) and all(torch.equal(each.inputs, problem.inputs) for each in about)):
        raise Refused("the bounds must be about every label of the same samples")
    price = down(own.gamma * problem.cost.label_price, SOME)
    bound, rule = own.bound, own.rule
    for part in others:
        moved = part.bound - price
        bound, rule = torch.maximum(bound, moved), torch.where(moved > bound, part.rule, rule)
    return mark(DualBounds(own.gamma, bound, rule, own.clip, own.assumptions, about=own.about))


@dataclass(frozen=True, eq=False)
class SampleBounds(Result):
    """Bounds at n samples themselves.

    Attributes:
        loss: (n,) at least wℓ there; error_cost: (n,) no error costs less; None without classes.
        unit_cost: g, with c ≥ g‖x − x₀‖².
        about: (n, 3) as in ``DualBounds``.
        targets: (n,) labels; None without classes, or if they may change. class_costs: for three classes and
            more, (n, classes) no point that may be predicted as k costs less.
    """

    loss: Tensor
    error_cost: Tensor | None
    unit_cost: float
    assumptions: tuple[str, ...] = ()
    about: Tensor = NO_TRAITS
    targets: Tensor | None = None
    class_costs: Tensor | None = None

    @staticmethod
    def at(around: Neighborhoods, weight: float = 1.0) -> SampleBounds:
        """Construct from the bounds around samples; the cost of an error is g·r², or the price of a label."""
        problem, loss = around.problem, around.values.loss
        if not 0 < weight < math.inf:
            raise Refused(f"the weight of a label must be positive; got {weight}")
        loss = loss if weight == 1 else up(weight * loss, FEW)
        costs = None if around.radii is None else error_costs(problem, around.radii)
        if costs is not None and around.frozen is not None and around.frozen.radii is not None:
            frozen = error_costs(around.frozen.problem, around.frozen.radii)
            costs = _row_error_costs(around, costs, frozen).clamp_max(problem.cost.label_price)
        error, about = None if costs is None else costs.amin(1), _traits(around, weight)
        bounds = SampleBounds(loss, error, problem.unit_cost, problem.assumptions, about)
        return mark(bounds.by_class(problem, costs))

    def by_class(self, problem: Labelled, costs: Tensor | None) -> SampleBounds:
        """Add targets and (n, classes) costs of predictions, if labels do not change."""
        if costs is None or problem.cost.label_price < math.inf:
            return self
        return replace(self, targets=problem.targets, class_costs=costs if costs.shape[1] > 2 else None)

    @staticmethod
    def joined(parts: Sequence[SampleBounds], order: slice | Tensor = slice(None)) -> SampleBounds:
        """Join the bounds of several batches of one problem, in another order."""
        first = parts[0]
        if not all(part.marked and part.unit_cost == first.unit_cost for part in parts):
            raise Refused("the bounds must be about one problem")
        names = tuple(dict.fromkeys(name for part in parts for name in part.assumptions))
        loss, error, about, targets, costs = (
            _joined([getattr(part, name) for part in parts], order)
            for name in ("loss", "error_cost", "about", "targets", "class_costs")
        )
        assert loss is not None
        assert about is not None
        return mark(SampleBounds(loss, error, first.unit_cost, names, about, targets, costs))

    def fits(self, other: DualBounds | SampleBounds) -> bool:
        """Whether other bounds are about the same samples of the same problem, as far as traits tell."""
        same = self.about.shape == other.about.shape and (isinstance(other, SampleBounds) or other.whole)
        return same and torch.allclose(self.about, other.about, rtol=MANY, atol=0.0)


def _traits(around: Neighborhoods, weight: float) -> Tensor:
    """(n, 3) ``Problem.traits`` of samples, with ℓ weighed."""
    return torch.cat([weight * around.values.loss.unsqueeze(1), around.problem.traits], 1)


def _joined(parts: Sequence[Tensor | None], order: slice | Tensor) -> Tensor | None:
    """Tensors of several batches in another order; None if one is."""
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors)[order] if len(tensors) == len(parts) else None


def error_costs(problem: Problem, radius: Tensor) -> Tensor:
    """(batch, …) lower bounds on the cost of an error, g·r² or the price of a label, from certified radii."""
    return down(problem.unit_cost * radius**2, problem.cost.rounding).clamp_max(problem.cost.label_price)
