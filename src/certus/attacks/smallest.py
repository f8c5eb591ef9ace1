"""The smallest perturbations that make a model err: by γ (fig:mnist2 b, fig:mnist3), and by distance.

Each search brackets, sample by sample, between a strength at which an attack fails and one at which it
succeeds. What is returned is attained by an actual point, so a distance is an upper bound on the distance to
the nearest error: *estimated* from above, never from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.attacks.gradient import GradientAttack, pgm
from certus.batches import per_sample
from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require, require_count
from certus.losses import ModelLoss, evaluation_mode
from certus.norms import Lp
from certus.surrogate import WRM, BarzilaiBorwein, Maximizer

_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_CAREFUL = BarzilaiBorwein(tolerance=1e-3, max_gradients=20)


@dataclass(frozen=True)
class SmallestPerturbation:
    """For each sample the nearest error found.

    Attributes:
        inputs: (batch, …) a misclassified point, or the input itself where none was found.
        distance: (batch,) its distance from the input: 0 where the input itself is misclassified, and ∞
            where no error was found.
        found: (batch,) bool.
    """

    inputs: Tensor
    distance: Tensor
    found: Tensor


@dataclass(frozen=True)
class SmallestPenalty:
    """For each sample the largest γ_adv at which WRM as an attack makes the model err.

    Attributes:
        inputs, distance, found: as in ``SmallestPerturbation``; the distance is in the cost's norm.
        gamma: (batch,) the largest γ_adv found; ∞ where the input itself is misclassified, and 0 where no
            error was found.
    """

    inputs: Tensor
    distance: Tensor
    found: Tensor
    gamma: Tensor


def nearest_error(
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
) -> SmallestPerturbation:
    """The nearest error that PGM finds, by bisection on ε for each sample.

    Args:
        norm: p of the distance, 1, 2 or inf.
        largest: the largest distance to look at; twice the length of the longest input when None.
        steps, restarts: of each attack; rounds: of the bisection, each halving the bracket.
    """
    require_count("rounds", rounds)
    length = Lp(norm)
    if largest is None:
        largest = 2 * float(length(inputs).max()) or 1.0
    require(0 < largest < math.inf, "largest", "be positive and finite", largest)
    wrong = _errs(loss, inputs, targets)
    best, distance = inputs.detach().clone(), torch.where(wrong, 0.0, torch.inf).to(inputs.dtype)
    low = torch.zeros_like(distance)
    high = torch.full_like(distance, largest)
    # The first round tries the largest radius; the next ones halve the bracket.
    for turn in range(rounds + 1):
        radius = high if turn == 0 else (low + high) / 2
        open_ = (distance > low) & ((turn == 0) | torch.isfinite(distance))
        if not open_.any():
            break
        attack = pgm(radius[open_], norm, steps=steps, domain=domain, restarts=restarts)
        moved = _shorten(loss, inputs[open_], targets[open_], attack)
        success = _errs(loss, moved, targets[open_])
        reached = length(moved - inputs[open_])
        better = success & (reached < distance[open_])
        places = open_.nonzero().flatten()
        best[places[better]] = moved[better]
        distance[places[better]] = reached[better]
        high[places[success]] = torch.minimum(reached, radius[open_])[success]
        low[places[~success]] = radius[open_][~success]
    return SmallestPerturbation(best, distance, torch.isfinite(distance))


def largest_penalty(
    loss: ModelLoss,
    inputs: Tensor,
    targets: Tensor,
    *,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    smallest: float = 1e-4,
    largest: float = 1e4,
    maximizer: Maximizer = _CAREFUL,
    rounds: int = 20,
) -> SmallestPenalty:
    """The largest γ_adv at which T_γ is misclassified, by bisection on log γ for each sample.

    Errors need not come in order of γ, since the ascent is local: what is found is *a* γ with an error next
    to one without, starting from ``smallest`` and ``largest``.
    """
    require(0 < smallest < largest < math.inf, "smallest", "be positive and below `largest`", smallest)
    require_count("rounds", rounds)
    wrong = _errs(loss, inputs, targets)
    low = torch.full((len(inputs),), math.log(smallest), dtype=inputs.dtype, device=inputs.device)
    high = torch.full_like(low, math.log(largest))
    best, found = inputs.detach().clone(), wrong.clone()
    gamma = torch.where(wrong, torch.inf, 0.0).to(inputs.dtype)
    for turn in range(rounds + 1):
        trial = low if turn == 0 else (low + high) / 2
        open_ = ~wrong if turn == 0 else found & ~wrong
        if not open_.any():
            break
        wrm = WRM(trial[open_].exp(), cost=cost, domain=domain, maximizer=maximizer)
        moved = wrm.solve(loss, inputs[open_], targets[open_]).inputs
        success = _errs(loss, moved, targets[open_])
        places = open_.nonzero().flatten()
        hit, miss = places[success], places[~success]
        best[hit], gamma[hit], found[hit] = moved[success], trial[hit].exp(), True
        low[hit], high[miss] = trial[hit], trial[miss]
    distance = torch.where(found, cost.norm(best - inputs), torch.inf)
    return SmallestPenalty(best, distance, found, gamma)


def _errs(loss: ModelLoss, inputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether the model misclassifies."""
    if targets.is_floating_point():
        raise ArgumentError(f"`targets` must be int64 labels, for errors to be counted; got {targets.dtype}.")
    with torch.no_grad(), evaluation_mode():
        predicted: Tensor = loss.model(inputs).argmax(1)
    return predicted != targets


def shorten(errs: Callable[[Tensor], Tensor], inputs: Tensor, moved: Tensor) -> Tensor:
    """Go back along the straight line from misclassified points as far as the error lasts (Z is convex).

    Args:
        errs: says which of (batch, …) points are errors.
    """
    move, low = moved - inputs, torch.zeros(len(inputs), dtype=inputs.dtype, device=inputs.device)
    high = torch.ones_like(low)
    for _ in range(8):
        middle = (low + high) / 2
        still = errs(inputs + per_sample(middle, move) * move)
        low, high = torch.where(still, low, middle), torch.where(still, middle, high)
    return torch.where(per_sample(high < 1, moved), inputs + per_sample(high, move) * move, moved)


def _shorten(loss: ModelLoss, inputs: Tensor, targets: Tensor, attack: GradientAttack) -> Tensor:
    """Attack, and shorten what succeeded."""
    moved = attack(loss, inputs, targets)
    wrong = _errs(loss, moved, targets)
    shorter = shorten(lambda points: _errs(loss, points, targets), inputs, moved)
    return torch.where(per_sample(wrong, moved), shorter, moved)
