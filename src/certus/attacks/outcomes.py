"""What a model loses to an attack: sample by sample, with intervals, alone or as the worst of several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from certus.checks import check_batch
from certus.errors import ArgumentError, LossError, require, require_count, require_seed, sample_list
from certus.losses import ModelLoss, evaluate_loss, is_labelled, predicted
from certus.modes import evaluation_mode
from certus.norms import L2, SUP
from certus.perturbers import AnyPerturber, as_perturber
from certus.samples import AnySamples, read_whole


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval for the population that the samples were drawn from."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """Each sample after an attack, on the CPU; every number is attained by an actual point.

    Attributes:
        loss: (n,) the loss at the moved input.
        wrong: (n,) bool, misclassified there; None in regression.
        l2, sup: (n,) how far the input moved, in both norms.
    """

    loss: Tensor
    wrong: Tensor | None
    l2: Tensor
    sup: Tensor

    @property
    def rho_test(self) -> float:
        """Mean squared distance E‖x̂ − x‖₂², the ρ̂_test of fig:mnist2."""
        return float((self.l2.cpu().double() ** 2).mean())

    def error(self, confidence: float = 0.95) -> Interval | None:
        """Share of wrong samples, with its Wilson interval; None in regression."""
        if self.wrong is None:
            return None
        return wilson(int(self.wrong.sum()), len(self.wrong), confidence)

    def mean_loss(self, confidence: float = 0.95) -> Interval:
        """Mean loss, with its normal interval."""
        return normal_interval(self.loss, confidence)


def attack_data(
    loss: ModelLoss,
    data: AnySamples,
    attack: AnyPerturber,
    *,
    batch_size: int = 256,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Attack every sample of the data. Random starts are drawn from ``seed``, and nothing else is changed.

    Rows of a table (``Split.encoding``) stay rows: of a moved one the numbers count, while categories, gaps
    and dates are as they were.

    Args:
        loss: what the attack raises, and what is reported; its model runs in eval mode.
        data: a ``Split``, (inputs, targets), or what else ``fit`` takes; it is read into memory.
        attack: any perturber; what it holds for each sample, such as an ε, must fit every batch.
        progress: called with the number of samples just done.
    """
    check_model_loss(loss)
    require_count("batch_size", batch_size)
    require_seed(seed)
    rule = "be a perturber, such as certus.attacks.fgm(0.1), or a function of (loss, inputs, targets)"
    require(attack is not None, "attack", rule, attack)
    attack, data = as_perturber(attack, "attack"), read_whole(data)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    check_batch(data.inputs, data.targets)
    labelled = is_labelled(loss.criterion, data.targets)
    parts: list[tuple[Tensor, ...]] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for first in range(0, len(data), batch_size):
            batch = data[first : first + batch_size]
            moved = attack(loss, batch.inputs, batch.targets)
            if data.encoding is not None and not data.encoding.plain:
                moved = data.encoding.with_numbers(moved, batch.inputs)
            with torch.no_grad(), evaluation_mode(loss):
                outputs = loss.outputs(moved)
                losses = evaluate_loss(loss.criterion, outputs, batch.targets)
            if not torch.isfinite(losses).all():
                bad = (~torch.isfinite(losses)).nonzero().flatten() + first
                raise LossError(
                    f"The loss is not finite after the attack, at {sample_list(bad.tolist())}: "
                    "the weights are useless, or the attack moves too far for the inputs' dtype."
                )
            wrong = predicted(outputs) != batch.targets.flatten() if labelled else torch.zeros_like(losses)
            move = moved.cpu().double() - batch.inputs.cpu().double()
            parts.append((losses.cpu(), wrong.cpu(), L2(move), SUP(move)))
            if progress is not None:
                progress(len(batch))
    losses, wrong, l2, sup = (torch.cat(column) for column in zip(*parts, strict=True))
    return Outcome(losses, wrong if labelled else None, l2, sup)


def check_model_loss(loss: object) -> None:
    """Raise ``ArgumentError`` unless the loss tells its model, whose errors are counted."""
    require(isinstance(loss, ModelLoss), "loss", "be a ModelLoss, whose model is attacked", type(loss))


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """Sample by sample the attack that did most: wrong if any makes it so, and then the largest loss."""
    require(len(outcomes) > 0, "outcomes", "not be empty", list(outcomes))
    worst = outcomes[0]
    for other in outcomes[1:]:
        if other.loss.shape != worst.loss.shape:
            raise ArgumentError("`outcomes` must be of the same samples; they differ in number.")
        higher = other.loss > worst.loss
        if worst.wrong is not None and other.wrong is not None:
            higher = (other.wrong & ~worst.wrong) | ((other.wrong == worst.wrong) & higher)
        columns = [
            None if mine is None or theirs is None else torch.where(higher, theirs, mine)
            for mine, theirs in (
                (worst.loss, other.loss),
                (worst.wrong, other.wrong),
                (worst.l2, other.l2),
                (worst.sup, other.sup),
            )
        ]
        worst = Outcome(*columns)  # type: ignore[arg-type]  # only `wrong` can be None
    return worst


def wilson(count: int, total: int, confidence: float = 0.95) -> Interval:
    """A share with Wilson's score interval, which is sensible at 0 and 1 too.

    >>> interval = wilson(0, 100)
    >>> interval.low, round(interval.high, 4)
    (0.0, 0.037)
    """
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    require_count("total", total)
    require(0 <= count <= total, "count", f"lie between 0 and {total}", count)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = count / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z / (1 + z**2 / total) * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2))
    low = 0.0 if count == 0 else centre - half
    return Interval(share, low, 1.0 if count == total else centre + half)


def normal_interval(values: Tensor, confidence: float = 0.95) -> Interval:
    """A mean with its interval from the normal approximation."""
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    require(len(values) > 0, "values", "not be empty", f"{len(values)} values")
    values = values.cpu().double()
    mean = float(values.mean())
    spread = float(values.std()) if len(values) > 1 else math.inf
    half = NormalDist().inv_cdf((1 + confidence) / 2) * spread / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)
