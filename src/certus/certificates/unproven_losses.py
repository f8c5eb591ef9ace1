"""Lower bounds on a loss that no upper bound is known of, by attacks.

Attacks run on the model itself, or on a copy of it in float64 if that runs. Their losses are lowered, and
their costs raised, by 10⁻⁹ of their size, because the rounding of such a criterion is unknown.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode, unwrapped
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.bounds.criteria import check_targets
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import AttackAggregate
from certus.certificates.lower_bounds import into_ball, settle_rows
from certus.certificates.problem import BATCH, gather
from certus.costs import Cost
from certus.costs.masked import masked_to
from certus.data import RowEncoding
from certus.domains import Domain
from certus.errors import LossError, UnsupportedError
from certus.kernel.rounding import MANY, down, up
from certus.kernel.statement import Statement
from certus.losses import (
    BinaryCrossEntropy,
    Criterion,
    MeanSquaredError,
    ModelLoss,
    evaluate_loss,
    is_labelled,
    predicted,
    require_tensor,
)

_PROBE = 1.001  # radius of the attack that shows whether there are gradients


def criterion_name(criterion: Criterion) -> str:
    """Return the name of a criterion's class, or of a function."""
    return getattr(criterion, "__name__", type(criterion).__name__)


def attack_criterion(
    model: nn.Module,
    data: tuple[Tensor, Tensor | None],
    rhos: Sequence[float],
    criterion: Criterion,
    cost: Cost,
    domain: Domain,
    *,
    clip: float | None,
    steps: int,
    encoding: RowEncoding | None = None,
) -> tuple[Certificate, int]:
    """Attack a model within each ρ of the data, to bound its worst loss from below.

    Attacks climb a copy of the model in float64; the losses that count are those of the model itself.

    Args:
        data: inputs (n, …) and n targets; None for the model's predictions.
        encoding: encoding of the rows of a table, of which only numbers move.

    Returns: a certificate without upper bounds and without errors, and the number of the model's outputs.
    """
    inputs, targets = gather(data)
    if encoding is not None and not encoding.plain:
        movable = masked_to(cost, encoding.movable())
        steps, cost = (0, cost) if movable is None else (steps, movable)
    network, dtype = _in_double(unwrapped(model), inputs[:1])
    loss, origin = ModelLoss(network, criterion), inputs.to(dtype)
    if targets is not None and isinstance(criterion, BinaryCrossEntropy):
        targets = check_targets(targets.flatten(), len(inputs), 2)
    outputs = model_outputs(model, origin)
    labelled = targets is None or is_labelled(criterion, targets)
    labelled = labelled and not isinstance(criterion, MeanSquaredError)
    if targets is None and not labelled:
        raise UnsupportedError("A regression has no predicted labels to certify: give `data` with targets.")
    targets = predicted(outputs) if targets is None else targets

    def losses(points: Tensor) -> Tensor:
        values = evaluate_loss(criterion, model_outputs(model, points), targets).double()
        return values if clip is None else values.clamp_max(clip)

    start = losses(origin)
    try:
        GradientAttack(_PROBE, 2.0, 1)(loss, origin[:1], targets[:1])
        differentiable = True
    except LossError:
        differentiable = False
    attacks = []
    for rho in sorted({rho for rho in rhos if rho > 0}) if differentiable and steps > 0 else []:
        parts = zip(origin.split(BATCH), targets.split(BATCH), strict=True)
        points = torch.cat([_attacked(loss, *part, rho, cost, domain, steps) for part in parts])
        if encoding is not None:
            points = settle_rows(encoding, points, origin, domain)
        values, costs = losses(points), up(cost.value(points.double(), inputs), MANY)
        better = (values > start) & (costs <= rho)
        mean_cost = float(up(torch.where(better, costs, 0.0).mean(), MANY))
        attacks.append(
            AttackAggregate(rho, min(mean_cost, rho), _mean_down(torch.where(better, values, start)))
        )
    reason = (
        f"The curvature of {criterion_name(criterion)} has no known bound, so its loss has no upper bound."
    )
    if labelled:
        reason += " The error rate does not depend on it."
    if not differentiable:
        reason += (
            " The model is not differentiable, so no attack was run: the lower bound is the loss on the "
            "unmoved data."
        )
    width = outputs.flatten(1).shape[1]
    certificate = Certificate(
        statement=Statement(samples=len(inputs), unit_cost=cost.growth / 2, clip=clip),
        rhos=tuple(rhos),
        aggregates=(),
        attacks=tuple(attacks),
        attained_clean_loss=_mean_down(start),
        classes=max(2, width) if labelled else None,
        no_proof=reason,
    )
    return certificate, width


def _in_double(model: nn.Module, example: Tensor) -> tuple[nn.Module, torch.dtype]:
    """A copy of the model in float64 on the CPU, in eval mode; the model itself if that does not run."""
    try:
        copied = copy.deepcopy(model).cpu().double().eval()
        with torch.no_grad():
            copied(example.clone())
        return copied, torch.float64
    except Exception:  # anything that a model of the user's may raise
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        return model, dtype


def model_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    """The model's outputs in its own precision, in eval mode."""
    own = next((each for each in model.parameters() if each.is_floating_point()), inputs)
    with torch.no_grad(), eval_mode(model):
        outputs = [require_tensor(model(part.to(own, copy=True))) for part in inputs.split(BATCH)]
    return torch.cat(outputs).cpu().double()


def _attacked(
    loss: ModelLoss, origin: Tensor, targets: Tensor, rho: float, cost: Cost, domain: Domain, steps: int
) -> Tensor:
    """Run PGD in an L2 ball that contains the ball c ≤ ρ, then move back along the line until c ≤ ρ."""
    ball = cost.attack_ball(domain)
    scaled = ball.scale is not None
    radius = math.sqrt(2 * rho / cost.growth) / (1.0 if scaled else ball.floor)

    def pinned_loss(points: Tensor, labels: Tensor) -> Tensor:
        return loss(cost.restore_frozen(points, origin), labels)

    attack = GradientAttack(radius, 2.0 if scaled else ball.p, steps, domain=domain)
    points = attack(pinned_loss, domain.project(origin), targets)
    return into_ball(cost, domain, points, origin, rho, 4 * MANY)


def _mean_down(losses: Tensor) -> float:
    mean = float(losses.mean())
    return mean - MANY * abs(mean) if mean < 0 else down(mean, MANY)
