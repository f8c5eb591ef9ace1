"""Maximisers of the inner problem (eqn:inner-sup): Algorithm 1 asks for an ε-approximate one, started at z₀.

``MonotoneAscent`` is the loop of the safeguarded ascents. The best point of every sample is kept, so that its
value never falls. A sample whose gap is within the tolerance leaves the batch, and costs no more gradients;
its last gradient allows one more step, to ``onward``, where f is not measured. The batch shrinks in
sixteenths: convolutions keep memory for every batch size they meet, and meeting all of them would cost more
than a few finished samples that ride along.

``BarzilaiBorwein``, the default: x ← Π_Z(x + stride · (target(x) − x)). The stride is the secant estimate
of the best one, 1/(1 − κ) with κ = ⟨Δx, Δtarget⟩/‖Δx‖²: the curvature of the loss along the last move, as a
share of the penalty's. The first stride is 1, exact for a linear loss. At a kink of a ReLU network a short
step along the gradient may not raise f either, so that a line search would stall there. Where f does not
rise above the best value, the ascent therefore goes on from the new point by 1/√(1 + t), t the number of
such failures: the diminishing steps of the subgradient method, which converges for concave f with kinks.
Once f exceeds the best value, secant strides take over again. For costs of another curvature than ‖·‖², and
where f is not finite, a quarter of the stride is tried from the old point instead.

``PaperAscent``: x ← Π_Z(x + (target(x) − x)/√t) for t = 1, …, steps (sec:toy, sec:mnist-real). For c = ‖z −
z₀‖₂² the step is (1/2γ)/√t times ∇f. Taken literally, 1/√t times ∇f diverges for large γ; measured in units
of 1/2γ it is exact for a linear loss, and it is what the authors ran.

``ProximalAscent``, for the costs without curvature, the squared sup-norm and squared L1 (alg:prox):

    x ← prox_{αγc(·, z₀)}(x + α∇ℓ(x)) = argmax_{z ∈ Z} ⟨∇ℓ(x), z⟩ − γ c(z, z₀) − ‖z − x‖₂²/2α

As α → ∞ this is the maximiser for a linear loss, z₀ + sign(∇ℓ)·‖∇ℓ‖₁/2γ for the sup-norm, and there the
first step goes. After it α follows the curvature of the loss on the last move: where the step was a
success, the secant of its slopes; where f did not rise, what the loss fell short of its tangent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

import torch
from torch import Tensor

from certus._defaults import ATTACK_STEPS, TOLERANCE
from certus._tensor import inner, per_sample
from certus.costs import Cost
from certus.domains import Domain, Unbounded
from certus.errors import require, require_count
from certus.inner.objective import InnerSolution, Objective, ObjectiveValue, Status, assemble

Callback = Callable[[int, Tensor, Tensor], None]
"""``callback(step, point, value)``: after each step, the (batch, …) points and (batch,) values of f."""


class Maximizer(ABC):
    """Maximiser of f over Z, sample by sample, starting at z₀."""

    compares_values: ClassVar[bool] = False
    """Whether it compares values of the loss, which must then be deterministic."""

    @abstractmethod
    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        """Return an approximate maximiser for each sample of the objective's batch."""

    def careful(self) -> Maximizer:
        """Return a maximiser that is precise enough to measure ρ̂: itself, unless it stops early."""
        return self


def solution_at(
    objective: Objective, at: ObjectiveValue, gap: Tensor, gradients: int, status: Tensor, onward: Tensor
) -> InnerSolution:
    """Return the solution at points that cost the same number of gradients."""
    return InnerSolution(
        inputs=at.point,
        onward=onward,
        targets=objective.targets,
        value=at.value,
        transport_cost=at.cost,
        gradient_norm=objective.gradient_norm(at),
        gap=gap,
        gradients=torch.full_like(status, gradients, dtype=torch.long),
        status=status,
        gap_evidence=objective.gap_evidence,
        assumptions=objective.assumptions,
    )


_SUFFICIENT = 1e-4  # share of the promised gain that a step must deliver (Armijo)
_SHARES = 16  # of the batch: the sizes it may shrink to
_HOPELESS = 1e-8  # a length that has failed down to here will not succeed


@dataclass(frozen=True)
class MonotoneAscent(Maximizer):
    """Ascent with steps of a (batch,) length, in units of 1/2γ, that keeps the best point of each sample;
    subclasses choose the lengths.

    Args:
        tolerance: ε of Algorithm 1, in units of the loss: a sample stops when its gap is at most this.
        max_gradients: largest number of gradients for one sample.
    """

    tolerance: float = TOLERANCE
    max_gradients: int = 8

    compares_values: ClassVar[bool] = True

    def careful(self) -> MonotoneAscent:
        return type(self)(min(self.tolerance, 1e-4), max(self.max_gradients, 32))

    def __post_init__(self) -> None:
        require(self.tolerance >= 0, "tolerance", "not be negative", self.tolerance)
        require_count("max_gradients", self.max_gradients)

    def _goes_on(self, objective: Objective) -> bool:
        """Whether a step that failed is followed by one from the new point, and not from the old one."""
        return False

    def _evaluate(self, objective: Objective, point: Tensor) -> ObjectiveValue:
        """The objective at these points, for one gradient per sample."""
        return objective.evaluate(point)

    def _first_length(self, objective: Objective, at: ObjectiveValue) -> Tensor:
        """Return (batch,) initial lengths."""
        return torch.ones_like(at.value)

    @abstractmethod
    def _next_length(
        self,
        objective: Objective,
        old: ObjectiveValue,
        new: ObjectiveValue,
        length: Tensor,
        rises: Tensor,
        failures: Tensor,
    ) -> Tensor:
        """Return (batch,) lengths of the next step: ``rises`` where the last one raised f above all values
        before; ``failures`` is the number of steps that did not."""

    def _aim(self, objective: Objective, at: ObjectiveValue, length: Tensor) -> tuple[ObjectiveValue, Tensor]:
        """Return the points with target and gain for this length, and their (batch,) gaps sup f − f."""
        return at, objective.gap(at)

    def _step(self, objective: Objective, at: ObjectiveValue, length: Tensor) -> Tensor:
        """Return (batch, …) points of Z to try next."""
        move = per_sample(length, at.point) * (at.target - at.point)
        return objective.domain.project(at.point + move)

    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        at = best = self._evaluate(objective, objective.origin)
        length, failures = self._first_length(objective, at), torch.zeros_like(at.value)
        blocked = ~at.finite  # met a point that is not finite
        points, values = at.point, at.value  # of the whole batch, for the callback
        places = torch.arange(len(length), device=length.device)
        climbing = torch.ones_like(blocked)
        share, left = max(1, len(length) // _SHARES), len(length)
        finished: list[tuple[Tensor, InnerSolution]] = []
        best_gap, noise = torch.full_like(at.value, torch.inf), objective.noise

        for spent in count(1):
            at, gap = self._aim(objective, at, length)
            slack = noise * (1 + best.value.abs())  # a loss in 16 bits does not decide by its last digits
            leads = ~(at.value < best.value - slack)
            best, best_gap = best.replaced_by(at, where=leads), torch.where(leads, gap, best_gap)
            met = (best_gap <= self.tolerance) & best.finite
            resolution = 4 * torch.finfo(at.value.dtype).eps * best.value.abs()  # of f in this dtype
            still = (at.gain <= resolution) | (length < _HOPELESS)
            stuck = (still & (at.value >= best.value - resolution)) | ~at.finite
            stop = climbing & (met | stuck | (spent >= self.max_gradients))
            stopped = stop.nonzero().flatten()  # the one result of a step that is waited for
            if len(stopped):
                status = torch.where(stuck, Status.STALLED, Status.MAX_STEPS)
                status = torch.where(blocked, Status.NONFINITE, status)
                status = torch.where(met, objective.converged_status, status)[stopped]
                part, there = objective.select(stopped), best.select(stopped)
                onward = self._step(part, there, length[stopped])
                taken = (leads & ~blocked)[stopped]
                onward = torch.where(per_sample(taken, onward), onward, there.point)
                reached = solution_at(part, there, best_gap[stopped], spent, status, onward)
                finished.append((places[stopped], reached))
                climbing, left = climbing & ~stop, left - len(stopped)
                if left == 0:
                    return assemble(finished)
                size = share * -(-left // share)
                if size < len(climbing):
                    remaining = climbing.int().argsort(descending=True, stable=True)[:size]
                    objective, at = objective.select(remaining), at.select(remaining)
                    best = best.select(remaining)
                    places, length, failures = places[remaining], length[remaining], failures[remaining]
                    blocked, climbing = blocked[remaining], climbing[remaining]
                    best_gap, gap, resolution = best_gap[remaining], gap[remaining], resolution[remaining]
                    slack = slack[remaining]

            # A stationary point below the best one leads nowhere.
            lost = (at.value < best.value - slack) & ((at.gain <= resolution) | (gap <= self.tolerance))
            at = at.replaced_by(best, where=lost)
            new = self._evaluate(objective, self._step(objective, at, length))
            promised = _SUFFICIENT * length.clamp_max(1) * at.gain * (at.value == best.value)
            rises = new.finite & (new.value >= best.value + promised - slack)
            failures = failures + ~rises
            length = self._next_length(objective, at, new, length, rises, failures)
            blocked = blocked | ~new.finite
            at = at.replaced_by(new, where=new.finite if self._goes_on(objective) else rises)
            if callback is not None:
                points, values = points.clone(), values.clone()
                leader = best.replaced_by(at, where=~(at.value < best.value))
                points[places[climbing]] = leader.point[climbing]
                values[places[climbing]] = leader.value[climbing]
                callback(spent, points, values)
        raise AssertionError("the loop above returns")


_SHORTENED = 0.25  # what is left of a stride that failed, where the ascent does not go on
_SHORTEST, _LONGEST = 1e-2, 3.0  # secant strides stay between these
_LEAST_FIRST = 0.3  # the shortest before a failure: across a kink, a secant sees any curvature


@dataclass(frozen=True)
class BarzilaiBorwein(MonotoneAscent):
    """Ascent with secant strides, and diminishing ones at kinks, stopped sample by sample; arguments as in
    ``MonotoneAscent``.

    The gap is a bound where the curvature is bounded, and else the estimate ‖∇f‖²/2γ.
    """

    def _goes_on(self, objective: Objective) -> bool:
        # Strides are in units of 1/2γ: those of other costs may be too long, and are better taken back.
        return objective.cost.strong_convexity == 2

    def _next_length(
        self,
        objective: Objective,
        old: ObjectiveValue,
        new: ObjectiveValue,
        length: Tensor,
        rises: Tensor,
        failures: Tensor,
    ) -> Tensor:
        move = new.point - old.point
        share = inner(move, new.target - old.target) / inner(move, move)
        # 1/(1 − κ), kept within bounds; the longest where the secant sees no concavity.
        stride = torch.where(share < 1 - 1 / _LONGEST, 1 / (1 - share), _LONGEST).clamp_min(_SHORTEST)
        if not self._goes_on(objective):
            return torch.where(rises, stride, _SHORTENED * length)
        stride = torch.maximum(stride, _LEAST_FIRST / (1 + failures))
        diminished = torch.minimum(stride, (1 + failures).rsqrt())
        return torch.where(rises, stride, torch.where(new.finite, diminished, _SHORTENED * length))


@dataclass(frozen=True)
class PaperAscent(Maximizer):
    """The paper's schedule: every sample takes every step, whether f rises or falls.

    It costs ``steps`` gradients that move the point, and one more to evaluate the last point. A step to a
    point where the loss is not finite is not taken, and the sample stays where it was.

    Args:
        steps: T_adv; 15 in the paper, 16 in its authors' code.
        tolerance: largest final gap with ``Status.CONVERGED``; the schedule never stops early.
    """

    steps: int = ATTACK_STEPS
    tolerance: float = TOLERANCE

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require(self.tolerance >= 0, "tolerance", "not be negative", self.tolerance)

    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        at = objective.evaluate(objective.origin)
        finite = at.finite
        for step in range(1, self.steps + 1):
            move = (at.target - at.point) / math.sqrt(step)
            new = objective.evaluate(objective.domain.project(at.point + move))
            finite = finite & new.finite
            at = at.replaced_by(new, where=finite)
            if callback is not None:
                callback(step, at.point.clone(), at.value.clone())
        gap = objective.gap(at)
        status = torch.where(gap <= self.tolerance, objective.converged_status, Status.MAX_STEPS)
        status = torch.where(finite, status, Status.NONFINITE)
        return solution_at(objective, at, gap, self.steps + 1, status, onward=at.point)


_LINEAR = 1e6  # times the dimension: a linear loss is then solved up to 1/2·10⁶ of the gain
_GROWTH = 10.0  # the most that a success lengthens α
_LEAST, _MOST = 0.01, 0.5  # of the length that its gain was worth, what is left of an α that failed


@dataclass(frozen=True)
class ProximalAscent(MonotoneAscent):
    """Monotone proximal gradient ascent, for costs with a proximal step; arguments as in ``MonotoneAscent``.

    The gap is estimated by the proximal residual: twice the increase ⟨∇ℓ, d⟩ − γΔc ≥ ‖d‖²/α that the step d
    promises, and where α is below 1/2γ, its value at that length.
    """

    def _evaluate(self, objective: Objective, point: Tensor) -> ObjectiveValue:
        return objective.measure(point)

    def _first_length(self, objective: Objective, at: ObjectiveValue) -> Tensor:
        size = at.point[0].numel()
        # So that neither α∇ℓ nor a sum of its squares overflows.
        steepest = at.slope.flatten(1).abs().amax(1) / (2 * objective.gamma)
        limit: Tensor = torch.finfo(steepest.dtype).max ** 0.5 / size / steepest.clamp_min(1)
        return limit.clamp_max(_LINEAR * size)

    def _aim(self, objective: Objective, at: ObjectiveValue, length: Tensor) -> tuple[ObjectiveValue, Tensor]:
        gamma = objective.gamma
        forward = at.point + per_sample(length / (2 * gamma), at.point) * at.slope
        target = objective.cost.prox(forward, objective.origin, length / 2, objective.domain)
        dearer = objective.cost.value(target, objective.origin) - at.cost
        gain = inner(at.slope, target - at.point) - gamma * dearer
        at = replace(at, target=target, gain=gain.clamp_min(0))
        return at, objective.gap(at) / length.clamp_max(1)

    def _step(self, objective: Objective, at: ObjectiveValue, length: Tensor) -> Tensor:
        return at.target

    def _goes_on(self, objective: Objective) -> bool:
        # The targets of costs without curvature jump between faces of a ball: there steps must get shorter.
        return objective.cost.strong_convexity > 0

    def _next_length(
        self,
        objective: Objective,
        old: ObjectiveValue,
        new: ObjectiveValue,
        length: Tensor,
        rises: Tensor,
        failures: Tensor,
    ) -> Tensor:
        move = new.point - old.point
        square = objective.gamma * inner(move, move)  # over half of ‖d‖²·curvature: a length
        bent = inner(move, old.slope - new.slope) / 2
        secant = torch.where(bent > 0, square / bent, torch.inf)
        longer = torch.minimum(secant, _GROWTH * length).minimum(self._first_length(objective, new))
        # A step that failed fell below the tangent, whose promise it was; and 2‖d‖²γ/gain ≤ length.
        worth = 2 * square / old.gain
        shorter = square / (old.value + old.gain - new.value)
        shorter = torch.where(new.finite, shorter, 0.0).clamp(_LEAST * worth, _MOST * worth)
        return torch.where(rises, longer, shorter)


_EVERYWHERE = Unbounded()


def default_maximizer(
    cost: Cost,
    domain: Domain = _EVERYWHERE,
    *,
    tolerance: float = MonotoneAscent.tolerance,
    max_gradients: int = MonotoneAscent.max_gradients,
) -> MonotoneAscent:
    """``ProximalAscent`` where the cost has a proximal step on the domain, else ``BarzilaiBorwein``.

    >>> from certus.costs import SquaredL2, SquaredSup
    >>> default_maximizer(SquaredSup()), default_maximizer(SquaredL2())
    (ProximalAscent(tolerance=0.005, max_gradients=8), BarzilaiBorwein(tolerance=0.005, max_gradients=8))
    """
    # Objects that are no costs are refused where they are used.
    proximal = isinstance(cost, Cost) and cost.has_prox(domain)
    return (ProximalAscent if proximal else BarzilaiBorwein)(tolerance, max_gradients)
