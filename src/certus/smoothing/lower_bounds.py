"""Lower bounds of smoothed certificates: paths to points near each sample where the noisy model errs more.

From x₀ a path goes outwards, one radius after the other, and attacks the model with the same few draws of
noise. A torch module gives gradients of its loss. For any other model gradients are estimated from
its predictions: with h(x) = E f(x + σZ), ∇h = E f(x + σZ) Z/σ; without any error among the draws, the path
heads for the nearest calibration sample of another label.

For each γ the point of the path with the best estimate of v(h) − γc is the sample's move. It depends only on
the sample, its own noise and quantities fixed beforehand, so that moves of independent samples are
independent. The caller measures their values with fresh noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus._tensor import per_sample
from certus.data import Samples
from certus.kernel.binomial import binomial_tail
from certus.kernel.rounding import MANY, up
from certus.kernel.smoothing import VotingRule
from certus.losses import CrossEntropy
from certus.smoothing.predictors import Predictor
from certus.smoothing.sampling import ATTACK, ClippedLoss, Noise, sample_generator

COPIES, BLIND_COPIES = 24, 96  # draws of noise that a path is found with: with gradients, and without
_BATCH = 64
_HEADING = 0.5  # what a first heading weighs against a step


@dataclass(frozen=True, eq=False)
class Paths:
    """Points on an outward path from every sample.

    Attributes:
        points: (steps + 1, n, …), beginning with the samples; costs: (steps + 1, n), rounded up.
        failure_rates: (steps + 1, n) estimates of h, or of the mean loss.
    """

    points: Tensor
    costs: Tensor
    failure_rates: Tensor

    def moved(self, gamma: float, rule: VotingRule, most: float) -> tuple[Tensor, Tensor]:
        """Return (n, …) points that are best for γ by the estimates, and their costs, at most ``most``."""
        failures = self.failure_rates
        if rule.votes != 1:
            assert rule.votes is not None
            rates, places = failures.double().clamp(0, 1).unique(return_inverse=True)
            tail = binomial_tail(rule.failure_threshold, rule.votes, rates.numpy())
            failures = torch.from_numpy(tail)[places]
        best = (failures - gamma * self.costs).where(self.costs <= most, -math.inf).argmax(0)
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
    others: Samples,
    loss: ClippedLoss | None,
    progress: Callable[[int], None],
) -> Paths:
    """Search paths of ``steps`` points, out to ``radius`` in the cost's norm. In rows of a table only numbers
    without missing values move.

    Args:
        others: samples; the first direction is towards the nearest of another label.
        loss: the loss to raise; errors, with gradients of cross-entropy, if None.
    """
    copies, parts = BLIND_COPIES if predictor.module is None else COPIES, []
    for start in range(0, len(data), _BATCH):
        batch = data[start : start + _BATCH]
        draws = [
            noise.draws(point, copies, sample_generator(seed, ATTACK, start + row))
            for row, point in enumerate(batch.inputs)
        ]
        walk = _PathSearch(predictor, batch, noise, loss, torch.stack(draws))
        parts.append(walk.run(radius, steps, _directions_to_other_labels(batch, others, noise)))
        progress((steps + 1) * copies * len(batch))
    return Paths(*(torch.cat(tensors, 1) for tensors in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _PathSearch:
    """A few samples with the (n, copies, …) draws of noise for their paths."""

    predictor: Predictor
    data: Samples
    noise: Noise
    loss: ClippedLoss | None
    draws: Tensor

    @property
    def targets(self) -> Tensor:
        """(n · copies,) targets of the noisy copies."""
        return self.data.targets.repeat_interleave(self.draws.shape[1], 0)

    def run(self, radius: float, steps: int, heading: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return points, costs and failure rates of ``Paths``."""
        origin, cost = self.data.inputs, self.noise.cost
        point, course = origin, _HEADING * heading
        points, failure_rates = [], []
        for step in range(steps + 1):
            bad, slope = self._probe(point)
            points.append(point)
            failure_rates.append(bad)
            course = course + self._unit(slope)
            point = origin + radius * (step + 1) / steps * self._unit(course)
            point = cost.restore_frozen(point.to(origin.dtype), origin)
            if self.data.encoding is not None:
                point = self.data.encoding.with_numbers(point, origin)
        costs = [up(cost.value(point.double(), origin.double()), MANY) for point in points]
        return torch.stack(points), torch.stack(costs), torch.stack(failure_rates)

    def _probe(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Estimate the failure rate at a point, and its steepest direction per unit of cost."""
        noisy = (point[:, None] + self.draws).flatten(0, 1)
        predictor, outputs, slope = self.predictor, None, noisy
        if predictor.module is not None:
            outputs, slope = self._gradient(predictor.module, noisy)
        if self.loss is not None:
            bad = self.loss(predictor.scores(noisy) if outputs is None else outputs, self.targets)
        elif outputs is None:
            bad = (predictor.labels(noisy) != self.targets).double()
        else:
            bad = (predictor.label_codes(outputs, len(noisy)) != self.targets).double()
        bad = bad.reshape(len(point), -1)
        if outputs is None:
            weights = bad - bad.mean(1, keepdim=True)
            return bad.mean(1), torch.einsum("nc,nc...->n...", weights.to(self.draws), self.draws)
        mean = slope.to(point.dtype).reshape(len(point), -1, *point.shape[1:]).mean(1)
        return bad.mean(1), self.noise.cost.whiten(self.noise.cost.whiten(mean))

    def _gradient(self, module: nn.Module, noisy: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs of a module, and the gradients of its loss."""
        criterion = CrossEntropy() if self.loss is None else self.loss.criterion
        own = next(module.parameters(), None)
        leaf = (noisy if own is None else noisy.to(own)).detach().requires_grad_()
        with torch.enable_grad(), eval_mode(module):
            outputs = module(leaf.clone())
            value = criterion(outputs, self.targets.to(outputs.device)).sum()
            slope = torch.autograd.grad(value, leaf)[0] if value.requires_grad else torch.zeros_like(leaf)
        return outputs.detach().cpu(), slope.cpu()

    def _unit(self, course: Tensor) -> Tensor:
        """Normalise directions to length 1 in the cost's norm; zero stays zero."""
        length = self.noise.cost.value(course, torch.zeros_like(course)).sqrt()
        scale = torch.where(length > 1e-20, 1 / length.clamp_min(1e-20), 0.0)
        return course * per_sample(scale, course)


def _directions_to_other_labels(data: Samples, others: Samples, noise: Noise) -> Tensor:
    """Return (n, …) unit directions to the nearest sample of another label; 0 for a regression."""
    inputs, heading = data.inputs, torch.zeros_like(data.inputs)
    if data.targets.is_floating_point():
        return heading
    for row, (point, target) in enumerate(zip(inputs, data.targets, strict=True)):
        rivals = others.inputs[others.targets != target].to(inputs.dtype)
        if len(rivals):
            ways = noise.cost.free_part(rivals - point)
            costs = noise.cost.value(ways, torch.zeros_like(ways))
            nearest = int(costs.argmin())
            heading[row] = ways[nearest] / costs[nearest].sqrt().clamp_min(1e-20)
    return heading
