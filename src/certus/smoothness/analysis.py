"""Bounds on λ_max(∇²_x ℓ) and on Lipschitz constants (section:examples, corrected and tightened).

    "paper"      √2·β_L + α_L², as printed                                          [corollary:softmax-smooth]
    "corrected"  max_{0 ≤ u ≤ ½} √(2 − u)·β_L + u·α_L², with exact constants and β₀ = 0
    "sum"        κ + D²/4: κ the curvature of the margins by the sum rule, D the slope of their differences
    "max"        the max rule from the loss down to the inputs

All four hold for every input and label, so the smallest is *the* bound. On a ball around a sample the same
rules run with the ranges that σ' and σ'' have there, and with a bound on q, the probability of all other
classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus.costs import Cost, SquaredL2
from certus.costs.claims import cost_assumptions
from certus.errors import UnprovableError, require
from certus.losses import Criterion, CrossEntropy
from certus.modes import unwrapped
from certus.outward import FEW, up
from certus.smoothness.agreement import check_wrapper, random_points
from certus.smoothness.criteria import Softmax, check_targets, check_values, read_criterion
from certus.smoothness.geometry import geometry_of
from certus.smoothness.log_softmax import LogSoftmax, refuse_log_softmax
from certus.smoothness.network import infer_shape, read_network, whiten_steps
from certus.smoothness.operators import Operator
from certus.smoothness.outputs import Outputs, read_outputs
from certus.smoothness.passes import Reach, Rows, size, times
from certus.smoothness.pullback import Pullback, sum_rule
from certus.smoothness.stage import Shape
from certus.smoothness.steps import Step, Trace, assumptions_of, forward, swelling

_MOST_SWELLING = 1e60
_L2 = SquaredL2()
_TRIED = (0.0, 0.1, 1.0, 10.0)  # sizes of the points at which a wrapper is compared with what is inside
_CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True, eq=False)
class Found:
    """One analysis, for a batch of balls or for all of space (batch 1); see ``LocalBound`` for the names."""

    reach: Reach
    bounds: dict[str, Tensor]
    lipschitz: Tensor
    output_lipschitz: Tensor
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    error: Tensor | None
    margins: Tensor | None
    parts: dict[str, Tensor]
    trace: Trace


class Analysis:
    """A model, a criterion and a cost, read once; ``everywhere`` and ``run`` then bound.

    Args:
        model: any that torch can export; its weights are read now, in eval mode, and never again.
        input_shape: the shape of one input; not needed if the model begins with a linear layer.

    Attributes:
        softmax: the constants of the criterion; None for a squared error.
        normalized: whether the model ends in a log-softmax, which the bounds leave out.
        assumptions: what all of it rests on that certus did not derive itself, by name.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion = _CROSS_ENTROPY,
        *,
        input_shape: Shape | None = None,
        cost: Cost = _L2,
    ) -> None:
        require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
        given, model = model, unwrapped(model)
        self.softmax, self.cost = read_criterion(criterion), cost
        self.shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        check_wrapper(given, model, random_points(_TRIED, self.shape))
        steps = read_network(model, self.shape)
        self.normalized = bool(steps) and isinstance(steps[-1].stage, LogSoftmax)
        if self.normalized:
            if self.softmax is None or self.softmax.logistic:
                refuse_log_softmax()
            steps = steps[:-1]
        self.assumptions = (*assumptions_of(steps), *cost_assumptions(cost))
        self.geometry = geometry_of(cost, self.shape)
        if self.geometry.whitening is not None:
            steps = whiten_steps(steps, self.geometry.whitening, self.shape)
        _check_scales(steps)
        # The affine layers at the end belong to the outputs.
        self.head = steps[-1] if steps and isinstance(steps[-1].stage, Operator) else None
        self.steps: list[Step] = steps if self.head is None else steps[:-1]

    @cached_property
    def outputs(self) -> Outputs:
        logistic = self.softmax is not None and self.softmax.logistic
        shape = self.steps[-1].out_shape if self.steps else self.shape
        head = None if self.head is None else self.head.action
        assert head is None or isinstance(head, Operator)
        outputs = read_outputs(head, shape, logistic)
        if logistic:
            require(outputs.classes == 2, "model", "have one output for Logistic", outputs.classes - 1)
        if self.softmax is not None:
            rule = (
                "have at least 2 outputs for labels, which whole numbers are taken for: give targets of a "
                "regression as floats, and one logit the criterion BCEWithLogitsLoss"
            )
            require(outputs.classes >= 2, "model", rule, outputs.classes)
        return outputs

    @cached_property
    def back(self) -> Pullback:
        """The way back from the outputs."""
        return Pullback(self.steps, self.geometry, self.outputs)

    @cached_property
    def everywhere(self) -> Found:
        """The analysis of all of space."""
        return self.run(None, None, None)

    def run(self, points: Tensor | None, targets: Tensor | None, radius: Tensor | None) -> Found:
        """Analyse balls around float64 points of shape (batch, …), or all of space."""
        reach, trace = forward(self.steps, self.geometry.start(self.shape, points), radius)
        if self.softmax is None:
            return self._squares(reach, trace, targets, radius)
        return self._softmax(self.softmax, reach, trace, targets, radius)

    def _softmax(
        self, criterion: Softmax, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None
    ) -> Found:
        count, classes = len(reach.length), self.outputs.classes
        labels = None if targets is None else check_targets(targets, count, classes)
        error, margins = torch.ones(count, dtype=torch.float64), None
        if labels is None:
            found = self.back.margins(reach, trace)
        else:
            found = self.back.own_margins(reach, trace, labels)
        # With label smoothing mass also moves between two other classes.
        moving = self.back.margins(reach, trace) if labels is not None and criterion.smoothing else found
        if labels is not None and radius is not None:
            margins, own = self._values(reach, labels)
            error = criterion.error(margins + found.slopes * radius.unsqueeze(1), own)
        weight = criterion.weight(error, classes)
        hull = self.outputs.hull(None if criterion.smoothing else labels)
        box = [part * weight.reshape(-1, *([1] * (part.dim() - 1))) for part in hull]
        apart = self.outputs.distances().max()
        start = Rows(
            box[0],
            box[1],
            (weight * apart).unsqueeze(1),
            (criterion.variance(error) * apart**2).unsqueeze(1),
        )
        largest, steepest = self.back.descend(reach, trace, start)
        length, bend = self.outputs.norm * reach.length, self.outputs.norm * reach.bend
        bounds = {
            "corrected": up(criterion.corrected(bend, length)),
            "sum": up(criterion.combine(moving.sharpest, moving.spread, error, classes)),
            "max": up(largest),
        }
        return Found(
            reach=reach,
            bounds=bounds,
            lipschitz=up(torch.minimum(weight * moving.steepest, steepest)),
            output_lipschitz=up(length),
            margin_lipschitz=up(found.slopes),
            margin_curvature=up(found.bends),
            error=error,
            margins=margins,
            parts={path: weight * part for path, part in moving.parts.items()},
            trace=trace,
        )

    def _values(self, reach: Reach, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds on F_k − F_y at the samples, (batch, classes), and the bool mask of y."""
        logits, error = self._logits(reach)
        own = nn.functional.one_hot(labels, self.outputs.classes).to(torch.bool)
        margins = logits - logits[own].unsqueeze(1)
        slop = error + error[own].unsqueeze(1) + FEW * margins.abs()
        return torch.where(own, 0.0, margins + slop), own

    def _logits(self, reach: Reach) -> tuple[Tensor, Tensor]:
        assert reach.center is not None
        assert reach.error is not None
        logits, error = reach.center, reach.error
        if self.head is not None:
            head = self.head.stage
            assert isinstance(head, Operator)
            error = head.absolute(error) + head.rounding * head.sizes(logits.abs())
            logits = head.apply(logits)
        logits, error = logits.flatten(1), error.flatten(1)
        if self.softmax is not None and self.softmax.logistic:
            nothing = torch.zeros_like(logits)
            logits, error = torch.cat([nothing, logits], 1), torch.cat([nothing, error], 1)
        return logits, error

    def _squares(self, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None) -> Found:
        """2JᵀJ ≤ 2α², and the residuals' part as one row; without a ball the residuals have no bound."""
        count, outputs = len(reach.length), self.outputs
        length, bend = outputs.norm * reach.length, outputs.norm * reach.bend
        low = torch.full((count, outputs.classes), -math.inf, dtype=torch.float64)
        high = -low
        if targets is not None and radius is not None:
            logits, error = self._logits(reach)
            away = logits - check_values(targets, logits)
            each = outputs.singles()
            slopes = torch.minimum(
                self.back.tally(trace, each, count).lipschitz, each.length * reach.length.unsqueeze(1)
            )
            room = up(error + slopes * radius.unsqueeze(1)) + FEW * away.abs()
            low, high = away - room, away + room
        steep = 2 * size(torch.maximum(low.abs(), high.abs()))
        corrected = times(steep, bend) + 2 * length**2
        lipschitz, parts = times(steep, length), {}
        bounds = dict.fromkeys(("corrected", "sum", "max"), up(corrected))
        if bool(torch.isfinite(high).all()):
            rows = outputs.mixture(2 * low, 2 * high)
            tally = self.back.tally(trace, rows, count)
            parts = {path: part[:, 0] for path, part in tally.convex.items()}
            own = torch.full((count, 1), 2 * outputs.norm * outputs.norm, dtype=torch.float64)
            largest, steepest = self.back.descend(reach, trace, replace(rows, curvature=own))
            bounds["sum"] = up(sum_rule(tally.convex, (count, 1))[:, 0] + 2 * length**2)
            bounds["max"], lipschitz = up(largest), torch.minimum(lipschitz, steepest)
        return Found(
            reach=reach,
            bounds=bounds,
            lipschitz=up(lipschitz),
            output_lipschitz=up(length),
            margin_lipschitz=None,
            margin_curvature=None,
            error=None,
            margins=None,
            parts=parts,
            trace=trace,
        )


def _check_scales(steps: list[Step]) -> None:
    """Raise if numbers that vanish in float64 may grow again to a size that counts.

    A product below 10⁻³²³ is 0 there, and a root of squares below 10⁻¹⁶¹ too. While nothing grows by more
    than 10⁶⁰ on its way, and a curvature by its square, no bound is off by 10⁻⁴⁰.
    """
    most = swelling(steps)
    if not most <= _MOST_SWELLING:
        raise UnprovableError(
            f"The layers of this model enlarge numbers by up to {most:.3g}, one after another: above "
            f"{_MOST_SWELLING:g} the bounds overflow float64, or lose what is small. "
            "Its weights are too large."
        )
