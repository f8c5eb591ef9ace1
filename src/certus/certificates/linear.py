"""Exact certificates of linear scores: upper and lower bound agree up to rounding.

With α and v of ``proven/linear.py``, the γ whose moves have mean cost ρ is found by bisection. The moves of
its two neighbours, mixed to cost ρ, attain γρ + E φ_γ up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._validation import check_batch, check_geometry, checked_weights
from certus.bounds.criteria import check_targets
from certus.bounds.equivalence import OriginalModel, check_wrapper
from certus.bounds.export import is_modified
from certus.bounds.network import read_network
from certus.bounds.passes import run_steps
from certus.certificates.aggregate import DualAggregate
from certus.certificates.batching import provable_criterion
from certus.certificates.certificate import Certificate
from certus.certificates.proven.linear import Positive, PositiveSquare, ScoreLoss, Softplus
from certus.costs import Bregman, Cost, SquaredL2
from certus.costs.claims import is_builtin
from certus.costs.metric import Whitened
from certus.data import Samples
from certus.domains import Unbounded
from certus.errors import UnreadableModelError, UnsupportedError, require, require_numbers
from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, SquaredError
from certus.rounding import FEW, SOME, TINY, down, mean_down, mean_up, slack, up

_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_HALVINGS = 80
_STIFFEST = 1e12  # of κ above its floor: where a search begins
_SOFTEST = 1e-9  # and where it ends
_FAR = (1.0, 10.0, -10.0)  # multiples of the rows at which a model is compared with its linear layer
_BESIDE = 2.0  # how far beyond the ρ asked for the lines go


def certify_linear(
    model: nn.Module,
    data: Samples | tuple[Tensor, Tensor | None],
    *,
    rho: float | Sequence[float],
    epsilon: float | Sequence[float] | None = None,
    criterion: Criterion | None = None,
    cost: Cost = _L2,
    labels: str = "given",
) -> Certificate | None:
    """Compute the exact worst case of a linear score; None for another model, criterion or cost.

    Of a table with categories, gaps or dates (``Samples.encoding``) the worst case consists of points that
    encode no row: then the lower bound is that of the rows as they are.
    """
    given, model = model, unwrapped(model)
    split = data if isinstance(data, Samples) else None
    inputs, targets = (split.inputs, split.targets) if split is not None else data  # type: ignore[misc]
    targets = None if labels == "predicted" else targets
    source = (inputs, None) if targets is None else split or Samples(inputs, targets)
    criterion, class_weights = provable_criterion(criterion, source, None)
    score = _score_of(model, inputs.shape[1:], criterion, cost)
    if score is None or class_weights is not None:
        return None
    rhos = require_numbers("rho", rho, zero=True)
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    inputs = inputs.detach().cpu().double()
    check_batch(inputs, targets)
    check_geometry(inputs, cost, _EVERYWHERE)
    check_wrapper(given, model, inputs)
    _check_rows(model, inputs)
    weights = None if split is None or split.weights is None else checked_weights(split.weights, len(inputs))
    if epsilons:
        require(
            score.classes is not None, "epsilon", "be left out for a regression: it has no errors", epsilon
        )
        require(weights is None, "epsilon", "be left out where samples have weights", epsilon)
    straight = _Straight.at(score, inputs, targets, cost)
    certificate = straight.certificate(rhos, epsilons, weights)
    certificate = replace(
        certificate,
        differing_predictions=_differing(model, straight, certificate),
        labels="predicted" if targets is None else "given",
    )
    table = split is not None and split.encoding is not None and not split.encoding.plain
    return _unmoved(certificate) if table else certificate


def _unmoved(certificate: Certificate) -> Certificate:
    """With the samples as they are for an attained side."""
    costs, start = certificate.attained_error_cost, certificate.clean_loss[0]
    return replace(
        certificate,
        aggregates=tuple(replace(line, rho_hat=0.0, loss=start) for line in certificate.aggregates),
        attained_error_cost=None if costs is None else torch.where(costs == 0, 0.0, math.inf),
    )


def _differing(model: nn.Module, straight: _Straight, certificate: Certificate) -> int:
    """How many samples the model in its own precision predicts otherwise. At all of them, and where they are
    moved to, it is asked whether it computes the score."""
    shape = tuple(straight.inputs.shape[1:])
    caller, steps = OriginalModel(model, shape, normalized=False), read_network(model, shape)
    for gamma in (None, *(line.gamma for line in certificate.aggregates)):
        points = straight.transported(gamma).inputs
        caller.check(points, run_steps(steps, points), straight.score.rounding(points))
    expected = run_steps(steps, straight.inputs)
    labels = straight.score.classes is not None
    return int(caller.differing(straight.inputs, expected, labels=labels).sum())


@dataclass(frozen=True, eq=False)
class _Score:
    """s(x) = ⟨a, x⟩ + b, by how much a and b may be off, and the loss of it.

    Attributes:
        slope, offset: a, (1, features), and b; sizes: |a| before anything cancelled, and |b|.
        classes: 2, or None for a regression.
    """

    slope: Tensor
    offset: float
    sizes: tuple[Tensor, float]
    loss: ScoreLoss
    classes: int | None

    def rounding(self, points: Tensor) -> Tensor:
        """(n,) by how much s may be off at (n, features) points."""
        size, most = self.sizes
        return slack(2 * points.shape[1] + 8) * (points.abs() @ size[0] + most) + TINY

    def at(self, inputs: Tensor) -> Tensor:
        """(n,) s at (n, features) inputs."""
        return inputs @ self.slope[0] + self.offset

    def levels(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """(n,) level, error, margin and sign at the inputs; see ``_Straight``."""
        values, error = self.at(inputs), self.rounding(inputs)
        if self.classes is None:
            residual = values - targets.flatten()
            error = error + slack(1) * (values.abs() + targets.flatten().abs())
            return residual.abs(), error, None, torch.where(residual < 0, -1.0, 1.0).double()
        sign = torch.where(targets == 1, -1.0, 1.0).double()
        margin = -sign * values
        level = -margin if isinstance(self.loss, Softplus) else 1 - margin
        return level, error + slack(1) * (1 + values.abs()), margin, sign


def _score_of(model: nn.Module, shape: Sequence[int], criterion: Criterion, cost: Cost) -> _Score | None:
    """The score of a model that is one linear layer of (features,); None for others, and other losses."""
    layer = _only_layer(model)
    if layer is None or tuple(shape) != (layer.in_features,):
        return None
    if not is_builtin(cost) or isinstance(cost.unmasked, Bregman):
        return None
    (weight, bias), kind = _coefficients(layer), type(criterion)
    if len(weight) == 2 and criterion == CrossEntropy():
        sizes = weight.abs().sum(0, keepdim=True), float(bias.abs().sum())
        return _Score(weight[1:] - weight[:1], float(bias[1] - bias[0]), sizes, Softplus(), 2)
    if len(weight) != 1 or kind not in (Logistic, Hinge, SquaredError):
        return None
    sizes = weight.abs(), float(bias.abs())
    loss: ScoreLoss = Softplus() if kind is Logistic else PositiveSquare()
    if isinstance(criterion, Hinge) and not criterion.squared:
        loss = Positive()
    return _Score(weight, float(bias), sizes, loss, None if kind is SquaredError else 2)


def _only_layer(model: nn.Module) -> nn.Linear | None:
    """The layer that a model is, if all of it is torch's own, runs as its class says, and agrees when run."""
    parts = list(_parts(model))
    layers = [part for part in parts if type(part) not in (nn.Sequential, nn.Flatten, nn.Identity)]
    if len(layers) != 1 or type(layers[0]) is not nn.Linear or any(map(is_modified, parts)):
        return None
    try:
        read_network(model, (layers[0].in_features,))
    except UnreadableModelError:
        return None  # ``certify`` gives the reason
    return layers[0]


def _parts(model: nn.Module) -> Iterator[nn.Module]:
    """A module and, of sequences in sequences, each module as often as it is used."""
    yield model
    if type(model) is nn.Sequential:
        for child in model:
            yield from _parts(child)


def _coefficients(layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """(outputs, inputs) weights and (outputs,) offsets in float64."""
    weight = layer.weight.detach().cpu().double()
    if layer.bias is None:
        return weight, torch.zeros(len(weight), dtype=torch.float64)
    return weight, layer.bias.detach().cpu().double()


def _check_rows(model: nn.Module, inputs: Tensor) -> None:
    """Raise unless the model, in its own precision, gives the scores of its layer at the rows and far from
    them."""
    layer = next(part for part in _parts(model) if isinstance(part, nn.Linear))
    weight, bias = _coefficients(layer)
    for factor in _FAR:
        rows = factor * inputs
        with torch.no_grad():
            outputs = model(rows.to(layer.weight)).cpu()
        kind = torch.finfo(outputs.dtype)
        sizes = rows.abs() @ weight.abs().T + bias.abs()
        off = (outputs.double() - rows @ weight.T - bias).abs()
        agree = (off <= 10 * math.sqrt(kind.eps) * sizes + kind.tiny) | (sizes > kind.max / 16)
        if not bool(agree.all()):
            raise UnreadableModelError(
                "The model does not compute what was read of it: at the data, or at a multiple of them, its "
                f"outputs differ by {float(off[~agree].max()):.3g} from those of its linear layer."
            )


@dataclass(frozen=True, eq=False)
class _Straight:
    """A linear score at its samples; also the source that a certificate takes moved samples from.

    Attributes:
        level: (n,) v, and error: (n,) by how much it may be off.
        margin: (n,) how far the score is on the right side, negative on the wrong one; None for a regression.
        sign: (n,) the direction in which the loss rises with the score.
        reach: α, at least and at most; rounding: relative, of costs.
        direction: (features,) the move per unit of score.
    """

    score: _Score
    cost: Cost
    inputs: Tensor
    targets: Tensor
    level: Tensor
    error: Tensor
    margin: Tensor | None
    sign: Tensor
    reach: tuple[float, float]
    rounding: float
    direction: Tensor

    @staticmethod
    def at(score: _Score, inputs: Tensor, targets: Tensor | None, cost: Cost) -> _Straight:
        if score.classes is None:
            require(targets is not None, "data", "have targets for a regression", None)
            assert targets is not None
            targets = targets.detach().cpu().double()
            shape = tuple(targets.shape)
            require(targets.numel() == len(inputs), "targets", f"be {len(inputs)} numbers", f"shape {shape}")
        else:
            if targets is None:
                targets = (score.at(inputs) > 0).long()
            targets = check_targets(targets.detach().cpu(), len(inputs), 2)
        metric = cost.metric(tuple(inputs.shape[1:]))
        slope = cost.free_part(score.slope)
        cancelled = FEW * float(metric.dual(cost.free_part(score.sizes[0]))[0])
        most = float(metric.dual(slope)[0]) + cancelled
        lost = 4 * (metric.rounding + (metric.length - 1 if isinstance(metric, Whitened) else 0.0)) + SOME
        least = max(0.0, down(most, lost) - 2 * cancelled)
        level, error, margin, sign = score.levels(inputs, targets)
        return _Straight(
            score,
            cost,
            inputs,
            targets,
            level,
            error,
            margin,
            sign,
            (least, most),
            metric.rounding,
            _direction(slope, inputs, cost),
        )

    @property
    def _still(self) -> bool:
        """Whether no move that the cost allows changes the score."""
        return self.reach[0] <= 0

    def shift(self, gamma: float) -> Tensor:
        """(n,) how far the scores move at γ."""
        if self._still:
            return torch.zeros_like(self.level)
        return self.score.loss.shift(self.level, gamma / self.reach[1] ** 2)

    def line(self, gamma: float, weights: Tensor | None) -> DualAggregate:
        """What γ proves, and what its moves attain."""
        loss, most = self.score.loss, self.reach[1]
        above = self.level + self.error
        above = loss.supremum(above, down(gamma / most**2, SOME)) if most > 0 else loss.raised(above)
        # At the points as float64 has them: the ideal ones may lie between its numbers.
        points = self.transported(gamma).inputs
        costs = up(self.cost.value(points, self.inputs), self.rounding)
        level, error, _, _ = self.score.levels(points, self.targets)
        below = loss.lowered(level - error)
        return DualAggregate(
            gamma, mean_up(above, weights), mean_up(costs, weights), mean_down(below, weights), {"exact": 1.0}
        )

    def gammas(self, rho: float, weights: Tensor | None) -> tuple[float, ...]:
        """The two neighbours between which the mean cost of the moves is ρ: γ ↦ ρ̂ falls."""
        if self._still:
            return (1.0,)
        floor, square = self.score.loss.floor, self.reach[1] ** 2

        def spent(log: float) -> float:
            shifts = self.score.loss.shift(self.level, floor + math.exp(log))
            squares = shifts**2 if weights is None else shifts**2 * weights
            return float(squares.mean()) / square

        low, high = math.log(_SOFTEST), math.log(_STIFFEST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if spent(middle) > rho else (low, middle)
            if high - low < SOME:
                break
        return tuple(square * (floor + math.exp(log)) for log in (low, high))

    def certificate(
        self, rhos: tuple[float, ...], epsilons: tuple[float, ...], weights: Tensor | None
    ) -> Certificate:
        positive = [rho for rho in rhos if rho > 0] or [0.01]
        wanted = {*positive, min(positive) / _BESIDE, max(positive) * _BESIDE}
        gammas = {gamma for rho in wanted for gamma in self.gammas(rho, weights)}
        lines = tuple(self.line(gamma, weights) for gamma in sorted(gammas, reverse=True))
        loss = self.score.loss
        certificate = Certificate(
            rhos=rhos,
            aggregates=lines,
            attacks=(),
            clean_loss=(
                mean_down(loss.lowered(self.level - self.error), weights),
                mean_up(loss.raised(self.level + self.error), weights),
            ),
            proven_error_cost=self._error_costs(proven=True),
            attained_error_cost=self._error_costs(proven=False),
            population=None,
            samples=len(self.inputs),
            classes=self.score.classes,
            unit_cost=self.cost.growth / 2,
            assumptions=(),
            clip=None,
            about={},
            epsilons=epsilons,
            weights=weights,
            source=self,
        )
        certificate.curve()  # which raises where a bracket contradicts itself
        certificate.accuracies()
        return certificate

    def _error_costs(self, *, proven: bool) -> Tensor | None:
        """(n,) (margin/α)²: at least, or at which an error is certain to be found."""
        if self.margin is None:
            return None
        least, most = self.reach
        if proven:
            room = (self.margin - self.error).clamp_min(0)
            return torch.where(room > 0, down((room / max(most, TINY)) ** 2, SOME), 0.0)
        room = self.margin + 2 * self.error
        costs = up((room.clamp_min(0) / max(least, TINY)) ** 2, SOME)
        costs = costs if least > 0 else torch.full_like(room, math.inf)
        return torch.where(self.margin + self.error < 0, 0.0, costs)

    def transported(self, gamma: float | None) -> Samples:
        """The samples moved by γ, or as they are."""
        if gamma is None or self._still:
            return Samples(self.inputs, self.targets)
        steps = (self.sign * self.shift(gamma))[:, None]
        return Samples(self.inputs + steps * self.direction, self.targets)

    def attacked(self, rho: float) -> Samples:
        """Nothing is pushed: there are no attacks where the worst case is known."""
        return self.transported(None)

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        raise UnsupportedError("The errors of a linear model are known by their costs; no points are kept.")

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        """Of other samples as they are: mean loss, rounded down, and share of errors beyond doubt."""
        other = _Straight.at(self.score, data.inputs.double(), data.targets, self.cost)
        loss = mean_down(other.score.loss.lowered(other.level - other.error))
        return loss, None if other.margin is None else float((other.margin + other.error < 0).double().mean())


def _direction(slope: Tensor, inputs: Tensor, cost: Cost) -> Tensor:
    """(features,) δ with ⟨a, δ⟩ = 1 of the least cost: where the cost goes for a linear loss."""
    origin = torch.zeros_like(inputs[:1])
    move = cost.respond(slope, origin, origin, torch.ones(1, dtype=torch.float64), _EVERYWHERE).target
    gained = float((move * slope).sum())
    return (move / gained)[0] if gained > 0 else torch.zeros_like(move)[0]
