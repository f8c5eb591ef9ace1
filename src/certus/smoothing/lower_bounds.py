"""Lower bounds of smoothed certificates: paths to points near each sample where the noisy model errs more.

From x₀ a path goes outwards, one radius after the other, always against the model as it is with the same few
draws of noise. A torch module gives gradients of its loss. Any other model is searched by its answers alone:
with h(x) = E f(x + σZ), ∇h = E f(x + σZ) Z/σ, so that the draws at which it errs say where to go; where none
do, the path heads for the nearest calibration sample of another label.

For each γ the point of the path with the best estimate of v(h) − γc is the sample's move. It depends on the
sample, its own noise and what was fixed beforehand, and on nothing else: so moves of independent samples are
independent. What they attain is measured by the caller, at fresh noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus._eval_mode import eval_mode
from certus._tensor import per_sample
from certus.data import RowEncoding, Samples
from certus.losses import Criterion, CrossEntropy
from certus.rounding import MANY, up
from certus.smoothing.binomial import binomial_tail
from certus.smoothing.predictors import Predictor
from certus.smoothing.sampling import ATTACK, Noise, sample_generator
from certus.smoothing.voting import VotingRule

COPIES, BLIND_COPIES = 24, 96  # draws of noise that a path is found with: with gradients, and without
_BATCH = 64
_HEADING = 0.5  # what a first heading weighs against a step


@dataclass(frozen=True, eq=False)
class Paths:
    """Points on the way out from every sample.

    Attributes:
        points: (steps + 1, n, …), from the samples themselves on; costs: (steps + 1, n), rounded up.
        badness: (steps + 1, n) estimates of h, or of the mean loss.
    """

    points: Tensor
    costs: Tensor
    badness: Tensor

    def moved(self, gamma: float, rule: VotingRule, most: float) -> tuple[Tensor, Tensor]:
        """(n, …) points that are best for γ by the estimates, and what they cost: at most ``most``, which
        points that were rounded to coarse numbers may exceed."""
        chances = _lost(self.badness, rule)
        best = (chances - gamma * self.costs).where(self.costs <= most, -math.inf).argmax(0)
        rows = torch.arange(self.points.shape[1])
        return self.points[best, rows], self.costs[best, rows]


def find_paths(
    predictor: Predictor,
    data: Samples,
    noise: Noise,
    *,
    radius: float,
    steps: int,
    seed: int,
    criterion: Criterion | None,
    others: Samples,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    encoding: RowEncoding | None = None,
    progress: Callable[[int], None] | None = None,
) -> Paths:
    """Paths of ``steps`` points, out to ``radius`` in the cost's norm.

    Args:
        criterion: what a module's gradients are of; cross-entropy for labels, if None.
        others: samples of which the nearest of another label is the first heading.
        loss: of outputs and targets, between 0 and 1: what is bad; errors if None.
        encoding: of the rows of a table, of which only numbers without gaps then move.
    """
    parts = []
    for start in range(0, len(data), _BATCH):
        rows = slice(start, min(start + _BATCH, len(data)))
        walk = _Walk(predictor, data[rows], noise, seed, start, criterion, loss, encoding)
        parts.append(walk.outwards(radius, steps, _headings(data[rows], others, noise)))
        if progress is not None:
            progress((steps + 1) * walk.copies * (rows.stop - rows.start))
    return Paths(
        torch.cat([part.points for part in parts], 1),
        torch.cat([part.costs for part in parts], 1),
        torch.cat([part.badness for part in parts], 1),
    )


class _Walk:
    """A few samples with the noise that their paths are found with."""

    def __init__(
        self,
        predictor: Predictor,
        data: Samples,
        noise: Noise,
        seed: int,
        first: int,
        criterion: Criterion | None,
        loss: Callable[[Tensor, Tensor], Tensor] | None,
        encoding: RowEncoding | None,
    ) -> None:
        self.encoding = encoding
        self.predictor, self.data, self.noise, self.loss = predictor, data, noise, loss
        self.criterion = criterion or CrossEntropy()
        self.copies = BLIND_COPIES if predictor.module is None else COPIES
        self.draws = torch.stack(
            [
                noise.draws(point, self.copies, sample_generator(seed, ATTACK, first + row))
                for row, point in enumerate(data.inputs)
            ]
        )
        self.targets = data.targets.repeat_interleave(self.copies, 0)

    def outwards(self, radius: float, steps: int, heading: Tensor) -> Paths:
        origin = self.data.inputs
        point, course = origin, _HEADING * heading
        points, badness = [], []
        for step in range(steps + 1):
            bad, slope = self._look(point)
            points.append(point)
            badness.append(bad)
            course = course + self._unit(slope)
            point = origin + radius * (step + 1) / steps * self._unit(course)
            point = self.noise.cost.restore_frozen(point.to(origin.dtype), origin)
            if self.encoding is not None:
                point = self.encoding.with_numbers(point, origin)
        costs = [up(self.noise.cost.value(one.double(), origin.double()), MANY) for one in points]
        return Paths(torch.stack(points), torch.stack(costs), torch.stack(badness))

    def _look(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """How bad it is there, and where it gets worse: a direction in which the cost is steepest paid."""
        noisy = (point[:, None] + self.draws).flatten(0, 1)
        if self.predictor.module is not None:
            return self._look_inside(noisy, point)
        if self.loss is not None:
            bad = self.loss(self.predictor.scores(noisy), self.targets)
        else:
            bad = (self.predictor.labels(noisy) != self.targets).double()
        bad = bad.reshape(len(point), -1)
        weights = bad - bad.mean(1, keepdim=True)
        return bad.mean(1), torch.einsum("nc,nc...->n...", weights.to(self.draws), self.draws)

    def _look_inside(self, noisy: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
        module = self.predictor.module
        assert module is not None
        own = next(module.parameters(), None)
        leaf = (noisy if own is None else noisy.to(own)).detach().requires_grad_()
        with torch.enable_grad(), eval_mode(module):
            outputs = module(leaf.clone())
            value = self.criterion(outputs, self.targets.to(outputs.device)).sum()
            slope = torch.autograd.grad(value, leaf)[0] if value.requires_grad else torch.zeros_like(leaf)
        predictions = outputs.detach().cpu()
        if self.loss is not None:
            bad = self.loss(predictions, self.targets)
        else:
            bad = (self.predictor.label_codes(predictions, len(noisy)) != self.targets).double()
        bad = bad.reshape(len(point), -1).mean(1)
        mean = slope.cpu().to(point.dtype).reshape(len(point), -1, *point.shape[1:]).mean(1)
        return bad, self.noise.cost.whiten(self.noise.cost.whiten(mean))

    def _unit(self, course: Tensor) -> Tensor:
        """Directions of length 1 in the cost's norm; none where there is none."""
        zero = torch.zeros_like(course)
        length = self.noise.cost.value(course, zero).sqrt()
        scale = torch.where(length > 1e-20, 1 / length.clamp_min(1e-20), 0.0)
        return course * per_sample(scale, course)


def _headings(data: Samples, others: Samples, noise: Noise) -> Tensor:
    """(n, …) unit directions to the nearest sample of another label; 0 for a regression."""
    inputs = data.inputs
    if data.targets.is_floating_point() or len(others) == 0:
        return torch.zeros_like(inputs)
    heading = torch.zeros_like(inputs)
    for row, (point, target) in enumerate(zip(inputs, data.targets, strict=True)):
        known = others.inputs[others.targets != target].to(inputs.dtype)
        if len(known):
            ways = noise.cost.free_part(known - point)
            costs = noise.cost.value(ways, torch.zeros_like(ways))
            nearest = int(costs.argmin())
            heading[row] = ways[nearest] / costs[nearest].sqrt().clamp_min(1e-20)
    return heading


def _lost(badness: Tensor, rule: VotingRule) -> Tensor:
    """v(h) at estimates of h."""
    if rule.votes == 1:
        return badness

    assert rule.votes is not None
    known, places = badness.double().clamp(0, 1).unique(return_inverse=True)
    return torch.from_numpy(binomial_tail(rule.failure_threshold, rule.votes, known.numpy()))[places]


def spaced(gammas: Sequence[float], count: int) -> list[float]:
    """Some of them, from the first to the last."""
    picks = np.unique(np.rint(np.linspace(0, len(gammas) - 1, min(count, len(gammas)))).astype(int))
    return [gammas[index] for index in picks]
