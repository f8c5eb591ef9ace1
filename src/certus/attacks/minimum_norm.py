"""Minimum-norm attacks: the smallest perturbations that cause an error, by distance and by γ (fig:mnist2 b).

Each search brackets, sample by sample, between a strength at which an attack fails and one at which it
succeeds. The result is attained by an actual point, so its distance is an upper bound on the distance to the
nearest error: *estimated* from above, never from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from certus._eval_mode import loss_eval_mode
from certus._tensor import per_sample
from certus._validation import check_batch, check_domain, check_geometry
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import LossError, require, require_count
from certus.inner import WRM, Maximizer, default_maximizer
from certus.losses import ModelLoss, check_labels, predicted
from certus.norms import Lp


@dataclass(frozen=True)
class Margin:
    """max_{k ≠ y} F_k − F_y: positive exactly where the sample is misclassified.

    Its gradient does not vanish where the gradient of cross-entropy underflows: attack ``ModelLoss(model,
    Margin())``.

    >>> Margin()(torch.tensor([[3.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor([-2.])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.dim() == 2 and outputs.shape[1] == 1:  # one output stands for (0, F)
            outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
        if outputs.dim() != 2:
            raise LossError(f"Margin needs outputs of shape (batch, classes); got {tuple(outputs.shape)}.")
        check_labels("Margin", outputs, targets)
        own = outputs.gather(1, targets.unsqueeze(1)).squeeze(1)
        mine = torch.nn.functional.one_hot(targets, outputs.shape[1]).bool()
        return outputs.masked_fill(mine, -torch.inf).amax(1) - own


_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_TRIES = 4  # radii at which a first error is looked for, each a quarter of the one before


@dataclass(frozen=True)
class MinimumNormResult:
    """Nearest error found of each sample.

    Attributes:
        inputs: (batch, …) misclassified points; the input itself where none was found.
        distance: (batch,) its distance from the input: 0 where the input itself is misclassified, and ∞
            where no error was found.
        success: (batch,) bool, whether an error was found.
    """

    inputs: Tensor
    distance: Tensor
    success: Tensor


@dataclass(frozen=True)
class LargestPenalty(MinimumNormResult):
    """Largest γ_adv of each sample at which WRM as an attack causes an error.

    Attributes:
        inputs, distance, success: as in ``MinimumNormResult``; the distance is in the cost's norm.
        gamma: (batch,) the largest γ_adv found; ∞ where the input itself is misclassified, and 0 where no
            error was found.
    """

    gamma: Tensor


def minimum_norm_attack(
    loss: ModelLoss,
    inputs: Tensor,
    targets: Tensor,
    *,
    norm: float = 2.0,
    largest: float | None = None,
    domain: Domain = _EVERYWHERE,
    steps: int = 20,
    restarts: int = 1,
    rounds: int = 12,
    seed: int = 0,
    random_start: bool = True,
    free: Tensor | None = None,
) -> MinimumNormResult:
    """Search for the nearest error of each sample, by PGD and bisection on ε.

    The attack ascends the margin, whatever the criterion of ``loss``: the gradient of a confident
    cross-entropy vanishes in floating point.

    Args:
        norm: p of the distance, 1, 2 or inf.
        largest: the largest distance to search; twice the length of the longest input when None.
        steps, restarts: numbers for each attack; rounds: number of bisections, each of which halves the
            bracket.
        seed: seed of the random starts; torch's global generator is not changed.
        random_start: False starts at the inputs; if ``largest`` is given, the result is then a function of
            the input alone.
        free: the coordinates that may move; see ``GradientAttack``.
    """
    require_count("rounds", rounds)
    attack = GradientAttack(0.0, norm, steps, None, domain, random_start, restarts, free=free)
    _check(loss, inputs, targets)
    check_domain(inputs, domain)
    length = Lp(norm)
    if largest is None:
        longest = 2 * float(length(inputs.cpu().double()).max()) or 1.0
        largest = min(longest, torch.finfo(inputs.dtype).max / 4)
    require(0 < largest < math.inf, "largest", "be positive and finite", largest)
    margin = ModelLoss(loss.model, Margin())
    wrong = _misclassified(loss, inputs, targets)
    best, distance = inputs.detach().clone(), torch.where(wrong, 0.0, torch.inf).to(inputs.dtype)
    low, high = torch.zeros_like(distance), torch.full_like(distance, largest)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for turn in range(rounds + 1):
            bracketed = torch.isfinite(distance)
            # Until an error is found there is nothing to bisect. A long way may lead past all errors, so
            # shorter ones are tried too.
            active = bracketed & (distance > low) if turn >= _TRIES else ~bracketed | (distance > low)
            if not active.any():
                break
            radius = torch.where(bracketed, (low + high) / 2, largest / 4**turn)[active]
            origin, labels = inputs[active], targets[active]
            moved = replace(attack, epsilon=radius)(margin, origin, labels)
            moved = shorten(partial(_misclassified, margin, targets=labels), origin, moved)
            success = _misclassified(loss, moved, labels)
            reached = length(moved - origin)
            better = success & (reached < distance[active])
            places = active.nonzero().flatten()
            best[places[better]] = moved[better]
            distance[places[better]] = reached[better]
            high[places[success]] = torch.minimum(reached, radius)[success]
            failed = ~success & bracketed[active]
            low[places[failed]] = radius[failed]
    return MinimumNormResult(best, distance, torch.isfinite(distance))


def largest_penalty(
    loss: ModelLoss,
    inputs: Tensor,
    targets: Tensor,
    *,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    smallest: float = 1e-4,
    largest: float = 1e4,
    maximizer: Maximizer | None = None,
    rounds: int = 20,
) -> LargestPenalty:
    """Search for the largest γ_adv at which T_γ is misclassified, by bisection on log γ for each sample.

    The ascent is local, so an error at one γ does not imply one at every smaller γ. Bisection between
    ``smallest`` and ``largest`` finds a γ with an error just below one without; a larger γ may have one, too.
    ``maximizer`` is the cost's own when None.
    """
    require(0 < smallest < largest < math.inf, "smallest", "be positive and below `largest`", smallest)
    require_count("rounds", rounds)
    _check(loss, inputs, targets)
    check_geometry(inputs, cost, domain)
    maximizer = maximizer or default_maximizer(cost, domain, tolerance=1e-3, max_gradients=20)
    wrong = _misclassified(loss, inputs, targets)
    low = torch.full((len(inputs),), math.log(smallest), dtype=inputs.dtype, device=inputs.device)
    high = torch.full_like(low, math.log(largest))
    best, success = inputs.detach().clone(), wrong.clone()
    gamma = torch.where(wrong, torch.inf, 0.0).to(inputs.dtype)
    for turn in range(rounds + 1):
        trial = low if turn == 0 else (low + high) / 2
        active = ~wrong if turn == 0 else success & ~wrong
        if not active.any():
            break
        wrm = WRM(trial[active].exp(), cost=cost, domain=domain, maximizer=maximizer)
        moved = wrm.solve(loss, inputs[active], targets[active]).inputs
        is_error = _misclassified(loss, moved, targets[active])
        places = active.nonzero().flatten()
        hit, miss = places[is_error], places[~is_error]
        best[hit], gamma[hit], success[hit] = moved[is_error], trial[hit].exp(), True
        low[hit], high[miss] = trial[hit], trial[miss]
    distance = torch.where(success, cost.norm(best - inputs), torch.inf)
    return LargestPenalty(best, distance, success, gamma)


def _check(loss: ModelLoss, inputs: Tensor, targets: Tensor) -> None:
    """Check the arguments even if every sample is misclassified as it is."""
    require(isinstance(loss, ModelLoss), "loss", "be a ModelLoss, whose model is attacked", type(loss))
    check_batch(inputs, targets)
    labels = isinstance(targets, Tensor) and targets.dtype == torch.long and targets.dim() == 1
    kind = getattr(targets, "dtype", None)
    require(labels, "targets", "be (batch,) int64 labels, for errors to be counted", kind)


def _misclassified(loss: ModelLoss, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return (batch,) whether the model misclassifies; outputs that are not finite count as no error."""
    with torch.no_grad(), loss_eval_mode(loss):
        outputs = loss.outputs(inputs)
    return (predicted(outputs) != targets) & torch.isfinite(outputs).flatten(1).all(1)


def shorten(is_error: Callable[[Tensor], Tensor], inputs: Tensor, moved: Tensor) -> Tensor:
    """Move back along the straight line, which stays in a convex domain, as far as ``is_error`` of the points
    holds; points without an error stay."""
    move, nearest = moved - inputs, moved
    low = torch.zeros(len(inputs), dtype=inputs.dtype, device=inputs.device)
    high = torch.ones_like(low)
    for _ in range(8):
        middle = (low + high) / 2
        between = inputs + per_sample(middle, move) * move
        still = is_error(between)
        nearest = torch.where(per_sample(still, between), between, nearest)
        low, high = torch.where(still, low, middle), torch.where(still, middle, high)
    return nearest
