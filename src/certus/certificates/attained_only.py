"""What is attained by a model that nothing can be proven of: attacks alone, and no upper side.

The model itself is attacked, in float64 where it can be copied, in its own precision elsewhere. Losses and
costs are what floating point makes of them, lowered and raised by 10⁻⁹ of their size: of a model that cannot
be read no more is known of its rounding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode, unwrapped
from certus._tensor import per_sample
from certus.attacks.minimum_norm import Margin, minimum_norm_attack
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.bounds.criteria import check_targets
from certus.certificates.aggregate import Push
from certus.certificates.lower_bounds import settled
from certus.certificates.proven.problem import BATCH, gather
from certus.costs import Cost
from certus.costs.masked import masked_to
from certus.data import DataLike, RowEncoding
from certus.domains import Domain
from certus.errors import LossError, UnsupportedError
from certus.losses import (
    BinaryCrossEntropy,
    Criterion,
    Logistic,
    MeanSquaredError,
    ModelLoss,
    SquaredError,
    evaluate_loss,
    is_labelled,
    predicted,
    require_tensor,
)
from certus.rounding import MANY, down, up

_ROUNDS = 6
_BEYOND = 1.001
_SAME = 1e-3  # how far two answers of a steady model may differ, by the rounding of its own precision
_FARTHEST = 4.0  # in units of the largest distance asked for


@dataclass(frozen=True, eq=False)
class AttainedSide:
    """Attributes:
    start: mean loss of the samples as they are.
    attacked: whether there were gradients to attack with; else the samples as they are is all.
    pushes: attacks within each ρ.
    errors: (n,) costs at which an error was found; None for a regression.
    outputs: how many the model has.
    caveat: what the outputs depend on beside the sample, in words; empty if on nothing.
    """

    start: float
    attacked: bool
    pushes: tuple[Push, ...]
    errors: Tensor | None
    samples: int
    classes: int | None
    unit_price: float
    outputs: int
    caveat: str = ""


def attain(
    model: nn.Module,
    data: DataLike,
    rhos: Sequence[float],
    criterion: Criterion,
    cost: Cost,
    domain: Domain,
    *,
    clip: float | None,
    steps: int,
    encoding: RowEncoding | None = None,
) -> AttainedSide:
    """Attack a model within each ρ of the data. Attacks climb a copy in float64; what counts is what the
    model says as it was handed in.

    Args:
        encoding: of the rows of a table: then numbers move alone, and stay those of a row.
    """
    inputs, targets = gather(data)

    def real(points: Tensor) -> Tensor:
        return points if encoding is None else settled(encoding, points, inputs.to(points), domain)

    if encoding is not None and not encoding.plain:
        moving = masked_to(cost, encoding.movable())
        steps, cost = (0, cost) if moving is None else (steps, moving)
    network, dtype = in_double(unwrapped(model), inputs[:1])
    loss, judge = ModelLoss(network, criterion), ModelLoss(model, criterion)
    if targets is not None and isinstance(criterion, BinaryCrossEntropy | Logistic):
        targets = check_targets(targets.flatten(), len(inputs), 2)
    outputs = _outputs(model, inputs.to(dtype))
    labelled = targets is None or is_labelled(criterion, targets)
    labelled = labelled and not isinstance(criterion, SquaredError | MeanSquaredError)
    width = outputs.flatten(1).shape[1]
    classes = max(2, width) if labelled else None
    if targets is None:
        if classes is None:
            raise UnsupportedError(
                "A regression has no predicted labels to certify: give `data` with targets."
            )
        targets = predicted(outputs)
    price, caveat = cost.growth / 2, _caveat(model, inputs[:BATCH].to(dtype))
    errors = classes is not None
    start, _ = _losses(judge, inputs.to(dtype), targets, clip, errors)
    attacked = _has_gradient(loss, inputs[:1].to(dtype), targets[:1])
    steps = steps if attacked else 0
    ball = cost.attack_ball(domain)
    pushes, costs = [], torch.full((len(inputs),), math.inf, dtype=torch.float64)
    for rho in sorted({rho for rho in rhos if rho > 0}) if steps > 0 else []:
        points = torch.cat(
            [
                _pushed(loss, part, labels, rho, cost, domain, steps)
                for part, labels in zip(inputs.to(dtype).split(BATCH), targets.split(BATCH), strict=True)
            ]
        )
        points = real(points)
        height, wrong = _losses(judge, points, targets, clip, errors)
        spent = up(cost.value(points.double(), inputs), MANY)
        better = (height > start) & (spent <= rho)
        spent, height = torch.where(better, spent, 0.0), torch.where(better, height, start)
        pushes.append(Push(rho, min(float(up(spent.mean(), MANY)), rho), _mean_down(height)))
        costs = torch.where(wrong & better, torch.minimum(costs, spent), costs)
    if classes is None:
        return AttainedSide(
            _mean_down(start), attacked, tuple(pushes), None, len(inputs), None, price, width, caveat
        )
    costs = torch.where(_losses(judge, inputs.to(dtype), targets, clip, errors)[1], 0.0, costs)
    farthest = _FARTHEST * math.sqrt(max([rho for rho in rhos if rho > 0], default=0.01) / price)
    if ball.own and steps > 0:
        near = minimum_norm_attack(
            *(loss, inputs.to(dtype), targets),
            norm=ball.p,
            largest=farthest,
            domain=domain,
            steps=steps,
            rounds=_ROUNDS,
            random_start=False,
        ).inputs
        for beyond in (1.0, _BEYOND):  # an error may lie on the very edge, where it is none beyond doubt
            points = real(domain.project(inputs.to(dtype) + beyond * (near - inputs.to(dtype))))
            wrong = _losses(judge, points, targets, clip, errors)[1]
            spent = up(cost.value(points.double(), inputs), MANY)
            costs = torch.where(wrong, torch.minimum(costs, spent), costs)
    return AttainedSide(
        _mean_down(start), attacked, tuple(pushes), costs, len(inputs), classes, price, width, caveat
    )


def in_double(model: nn.Module, example: Tensor) -> tuple[nn.Module, torch.dtype]:
    """A copy of the model in float64 on the CPU, in eval mode, or the best that there is."""
    try:
        copied = copy.deepcopy(model).cpu().double().eval()
        with torch.no_grad():
            copied(example.clone())
        return copied, torch.float64
    except Exception:  # whatever a model of the user's may raise
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        return model, dtype


def _outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """What the model says in its own precision, in eval mode."""
    own = next((each for each in model.parameters() if each.is_floating_point()), inputs)
    with torch.no_grad(), eval_mode(model):
        outputs = [require_tensor(model(part.to(own, copy=True))) for part in inputs.split(BATCH)]
    return torch.cat(outputs).cpu().double()


def _caveat(model: nn.Module, inputs: Tensor) -> str:
    """What one answer of the model says less than it seems to."""
    first, again = _outputs(model, inputs), _outputs(model, inputs)
    if not _close(first, again):
        return (
            "Its outputs differ from call to call: what is attained was found in single draws of them, the "
            "luckiest of many, and can lie above their mean."
        )
    try:
        single = _outputs(model, inputs[:1])
    except Exception:  # a model that knows no batch of one
        single = first[:0]
    if not _close(first[:1], single):
        return (
            f"Its outputs depend on the batch: what is attained is of batches of up to {BATCH} samples in "
            "their order, and of no sample alone."
        )
    return ""


def _close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=_SAME, atol=_SAME, equal_nan=True)


def _has_gradient(loss: ModelLoss, inputs: Tensor, targets: Tensor) -> bool:
    try:
        GradientAttack(_BEYOND, 2.0, 1)(loss, inputs, targets)
    except LossError:
        return False
    return True


def _losses(
    loss: ModelLoss, points: Tensor, targets: Tensor, clip: float | None, errors: bool
) -> tuple[Tensor, Tensor]:
    """(n,) the losses, in float64, and whether a class other than the target is ahead."""
    outputs = _outputs(loss.model, points)
    heights = evaluate_loss(loss.criterion, outputs, targets).double()
    heights = heights if clip is None else heights.clamp_max(clip)
    if not errors:
        return heights, torch.zeros(len(heights), dtype=torch.bool)
    return heights, Margin()(outputs, targets) > MANY * (1 + outputs.flatten(1).abs().amax(1))


def _pushed(
    loss: ModelLoss, origin: Tensor, targets: Tensor, rho: float, cost: Cost, domain: Domain, steps: int
) -> Tensor:
    """PGD in an L2 ball that holds that of the cost, and back along the line until c ≤ ρ."""
    ball = cost.attack_ball(domain)
    scaled = ball.scale is not None
    radius = math.sqrt(2 * rho / cost.growth) / (1.0 if scaled else ball.floor)
    norm = 2.0 if scaled else ball.p

    def pinned_loss(points: Tensor, labels: Tensor) -> Tensor:
        return loss(cost.restore_frozen(points, origin), labels)

    attack = GradientAttack(radius, norm, steps, domain=domain)
    points = domain.project(cost.restore_frozen(attack(pinned_loss, domain.project(origin), targets), origin))
    share = cost.fraction((rho / cost.value(points, origin).clamp_min(1e-300)).clamp_max(1.0))
    back = per_sample(share * (1 - 4 * MANY), points) * (points - origin)
    return domain.project(cost.restore_frozen(origin + back, origin))


def _mean_down(losses: Tensor) -> float:
    mean = float(losses.mean())
    return mean - MANY * abs(mean) if mean < 0 else down(mean, MANY)
