"""Evaluation of models under attack: error rates and losses with intervals, fair budgets, sweeps.

Attacks of different methods are compared at fair budgets: each may move as far as WRM did,

    ε² = ρ̂_n(θ_WRM) = E_n[c(T_γ(θ_WRM; Z), Z)]  for p = 2, and for c = ‖·‖_p²          [eqn:fgm-fair]
    ε = E_n‖T_γ(θ_WRM; Z) − Z‖_p                 for p = 1, ∞ and other costs          [eq:inf-from-2]

Both are *estimated*, by the ascent. The paper's figures give ε in units of C_p = E‖X‖_p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from scipy.special import ndtri
from torch import Tensor, nn

from certus._defaults import ATTACK_STEPS
from certus._eval_mode import loss_eval_mode
from certus._names import ATTACK_OPTIONS, GRADIENT_ATTACKS, NORMS, PAPER_NAMES
from certus._validation import check_batch
from certus.attacks.projected_gradient_descent import GradientAttack, check_norm, default_step
from certus.costs import Cost, SquaredL2
from certus.costs.masked import masked_to
from certus.data import DataLike, Samples, gather_samples
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, LossError, format_samples, require, require_count, require_seed
from certus.inner import WRM, default_maximizer
from certus.inner.methods import ERM, Method, MethodLike, as_method
from certus.kernel.evidence import Evidence
from certus.losses import AnyLoss, Criterion, ModelLoss, as_criterion, evaluate_loss, is_labelled, predicted
from certus.norms import L2, SUP, Lp


@dataclass(frozen=True)
class Interval:
    """Estimate with a confidence interval for the population that the samples were drawn from."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model under attack, sample by sample, on the CPU; every number is *attained* by an actual point.

    Attributes:
        losses: (n,) losses at the moved inputs.
        errors: (n,) bool, whether the moved inputs are misclassified; None in regression.
        l2, sup: (n,) distances of the moves in both norms.
        confidence: confidence of the intervals, which are for the population of the samples.
    """

    losses: Tensor
    errors: Tensor | None
    l2: Tensor
    sup: Tensor
    confidence: float = 0.95

    @property
    def loss(self) -> Interval:
        """Mean loss, with its normal interval."""
        return normal_interval(self.losses, self.confidence)

    @property
    def error(self) -> Interval | None:
        """Error rate, with its Wilson interval; None in regression."""
        if self.errors is None:
            return None
        return wilson(int(self.errors.sum()), len(self.errors), self.confidence)

    @property
    def accuracy(self) -> Interval | None:
        """Accuracy, with its Wilson interval; None in regression."""
        error = self.error
        return None if error is None else Interval(1 - error.value, 1 - error.high, 1 - error.low)

    @property
    def rho_test(self) -> float:
        """Mean squared distance E‖x̂ − x‖₂², the ρ̂_test of fig:mnist2."""
        return float((self.l2.cpu().double() ** 2).mean())

    def __repr__(self) -> str:
        intervals = [
            f"{name}={each.value:.4g} [{each.low:.4g}, {each.high:.4g}]"
            for name, each in (("error", self.error), ("loss", self.loss))
            if each
        ]
        return f"Evaluation({', '.join(intervals)}, samples={len(self.losses)}, confidence={self.confidence})"


def evaluate(
    model: nn.Module,
    data: DataLike,
    attack: MethodLike,
    *,
    criterion: Criterion | None = None,
    batch_size: int = 256,
    confidence: float = 0.95,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Evaluate a model under an attack on every sample; the state of the model is restored.

    Rows of a table (``Samples.encoding``) stay valid: only numbers move; categories, missing values and dates
    do not.

    Args:
        model: runs in eval mode.
        data: ``Samples``, (inputs, targets), or any other form that ``fit`` takes; it is read into
            memory, and batches are brought to the model's device and precision.
        attack: any method, such as ``PGD(0.1)`` or ``WRM(gamma=2.0)``; ``ERM()`` evaluates unmoved inputs.
            A radius or penalty per sample must fit every batch.
        criterion: the loss that the attack raises, and that is reported; cross-entropy for labels and squared
            error for numbers when None.
        confidence: confidence level of the intervals.
        seed: seed of random starts; torch's global generator is not changed.
        progress: called with the number of samples of each batch that is done.

    >>> import torch, certus
    >>> model = torch.nn.Linear(2, 2)
    >>> data = torch.zeros(50, 2), torch.zeros(50, dtype=torch.long)
    >>> result = certus.evaluate(model, data, certus.attacks.PGD(0.1, norm=2))
    >>> result.accuracy.low <= result.accuracy.value <= result.accuracy.high
    True
    """
    loss = ModelLoss(model, as_criterion(criterion))
    require_count("batch_size", batch_size)
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    require_seed(seed)
    rule = "be a method, such as certus.attacks.FGSM(0.1), or a function of (loss, inputs, targets)"
    require(attack is not None, "attack", rule, attack)
    attack, data = as_method(attack, "attack"), gather_samples(data)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    check_batch(data.inputs, data.targets)
    labelled = is_labelled(loss.criterion, data.targets)
    weight = next((each for each in model.parameters() if each.is_floating_point()), None)
    parts: list[tuple[Tensor, ...]] = []
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for first in range(0, len(data), batch_size):
            inputs, targets = (part[first : first + batch_size] for part in (data.inputs, data.targets))
            if weight is not None:
                inputs = inputs.to(weight.device, weight.dtype)
                targets = targets.to(weight.device, weight.dtype if targets.is_floating_point() else None)
            moved = attack(loss, inputs, targets)
            if data.encoding is not None and not data.encoding.plain:
                moved = data.encoding.with_numbers(moved, inputs)
            with torch.no_grad(), loss_eval_mode(loss):
                outputs = loss.outputs(moved)
                losses = evaluate_loss(loss.criterion, outputs, targets)
            if not torch.isfinite(losses).all():
                bad = (~torch.isfinite(losses)).nonzero().flatten() + first
                raise LossError(
                    f"The loss is not finite after the attack, at {format_samples(bad.tolist())}: "
                    "check that the weights are finite, and reduce epsilon to the range of the inputs' dtype."
                )
            errors = predicted(outputs) != targets.flatten() if labelled else torch.zeros_like(losses)
            move = moved.cpu().double() - inputs.cpu().double()
            parts.append((losses.cpu(), errors.cpu(), L2(move), SUP(move)))
            if progress is not None:
                progress(len(inputs))
    losses, errors, l2, sup = (torch.cat(column) for column in zip(*parts, strict=True))
    return Evaluation(losses, errors if labelled else None, l2, sup, confidence)


def worst_of(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Combine evaluations by the strongest attack on each sample: by error first, then by loss."""
    require(len(evaluations) > 0, "evaluations", "not be empty", list(evaluations))
    worst = evaluations[0]
    for other in evaluations[1:]:
        if other.losses.shape != worst.losses.shape:
            raise ArgumentError("`evaluations` must be of the same samples; they differ in number.")
        higher = other.losses > worst.losses
        errors = None
        if worst.errors is not None and other.errors is not None:
            higher = (other.errors & ~worst.errors) | ((other.errors == worst.errors) & higher)
            errors = worst.errors | other.errors
        losses, l2, sup = (
            torch.where(higher, getattr(other, name), getattr(worst, name))
            for name in ("losses", "l2", "sup")
        )
        worst = Evaluation(losses, errors, l2, sup, worst.confidence)
    return worst


def wilson(count: int, total: int, confidence: float = 0.95) -> Interval:
    """Return a proportion with Wilson's score interval, which is sensible at 0 and 1 too.

    >>> interval = wilson(0, 100)
    >>> interval.low, round(interval.high, 4)
    (0.0, 0.037)
    """
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    require_count("total", total)
    require(0 <= count <= total, "count", f"lie between 0 and {total}", count)
    from scipy.stats import binomtest  # inside: slow to import

    interval = binomtest(count, total).proportion_ci(confidence, method="wilson")
    low = 0.0 if count == 0 else float(interval.low)  # SciPy's ends differ from 0 and 1 by rounding
    return Interval(count / total, low, 1.0 if count == total else float(interval.high))


def normal_interval(values: Tensor, confidence: float = 0.95) -> Interval:
    """Return a mean with its interval from the normal approximation."""
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    require(len(values) > 0, "values", "not be empty", f"{len(values)} values")
    values = values.cpu().double()
    mean = float(values.mean())
    spread = float(values.std()) if len(values) > 1 else math.inf
    half = float(ndtri((1 + confidence) / 2)) * spread / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Difference:
    """Paired difference of two models' error rates, or mean losses in regression, with its interval."""

    of: str
    value: float
    low: float
    high: float


def paired_differences(first: Evaluation, second: Evaluation, confidence: float = 0.95) -> Difference:
    """Return the error rate of ``first`` minus that of ``second`` on the same samples; losses in regression.

    Samples that are hard for both models cancel. For losses the interval is the normal one of the mean of
    per-sample differences. For errors half a sample is added to each of the four cells of the table first
    (Agresti and Min), or the interval would have length 0 where the models agree on every sample.
    """
    same = first.losses.shape == second.losses.shape
    require(
        same, "second", "be of the same samples", f"{len(second.losses)} samples, not {len(first.losses)}"
    )
    if first.errors is None or second.errors is None:
        changes = first.losses.cpu().double() - second.losses.cpu().double()
        return Difference("loss", **asdict(normal_interval(changes, confidence)))
    return paired_errors(first.errors, second.errors, confidence)


def paired_errors(first: Tensor, second: Tensor, confidence: float = 0.95) -> Difference:
    """Return the share of True in ``first`` minus that in ``second``, two (n,) bool tensors about the same
    samples, with the interval of ``paired_differences``.

    >>> paired_errors(torch.tensor([True] * 9 + [False]), torch.tensor([True] * 5 + [False] * 5)).value
    0.4
    """
    require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
    same = first.shape == second.shape and len(first) > 0
    require(same, "second", "be about the same samples", f"{len(second)} samples, not {len(first)}")
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    change, count = only_first - only_second, len(first) + 2
    centre = change / count
    spread = math.sqrt((only_first + only_second + 1) / count - centre**2)
    half = float(ndtri((1 + confidence) / 2)) * spread / math.sqrt(count)
    return Difference("error", change / len(first), max(-1.0, centre - half), min(1.0, centre + half))


def fair_epsilon(wrm: WRM, loss: AnyLoss, data: Samples, norm: float, batch_size: int = 256) -> float:
    """Return the ε at which an attack in the norm p moves these data as far as this WRM does.

    >>> import torch
    >>> slope = torch.tensor([3.0, 4.0])
    >>> data = Samples(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    >>> fair_epsilon(WRM(0.5), lambda x, y: x @ slope, data, norm=2.0)      # ‖slope‖/2γ
    5.0
    """
    check_norm(norm)
    require_count("batch_size", batch_size)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    total, length = 0.0, Lp(norm)
    ball = wrm.cost.attack_ball(wrm.domain)
    squared = norm == 2 or (ball.own and ball.p == norm)  # the cost is the square of this norm
    for batch in data.batches(batch_size):
        move = wrm.solve(loss, batch.inputs, batch.targets).inputs - batch.inputs
        lengths = length(move).cpu().double()
        total += float((lengths**2 if squared else lengths).sum())
    mean = total / len(data)
    return mean**0.5 if squared else mean


def typical_length(data: Samples, norm: float) -> float:
    """Return C_p = E‖X‖_p, the unit of ε in the paper's figures.

    >>> import torch
    >>> typical_length(Samples(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([0, 1])), norm=2.0)
    3.0
    """
    check_norm(norm)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    return float(Lp(norm)(data.inputs).cpu().double().mean())


ATTACKS = (*GRADIENT_ATTACKS, "wrm")
WORST = "worst"
_UNUSED = {"fgsm": ("restarts",), "bim": ("restarts",), "wrm": ("steps", "restarts")}


@dataclass(frozen=True)
class Trial:
    """An attack with one strength: ε for fgsm, bim and pgd, γ_adv for wrm. A ``step_size`` of None is
    2.5·ε/steps; ``clipped`` keeps inputs in the data's domain."""

    attack: str
    norm: float | None
    epsilon: float | None
    gamma: float | None = None
    steps: int = ATTACK_STEPS
    step_size: float | None = None
    restarts: int = 1
    clipped: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "attack", PAPER_NAMES.get(self.attack, self.attack))
        legal = (*ATTACKS, WORST)
        require(self.attack in legal, "attack", f"be one of {', '.join(ATTACKS)}", repr(self.attack))
        for name in ("gamma", "epsilon", "norm", "step_size", "restarts"):
            value, default = getattr(self, name), getattr(Trial, name, None)
            used = value == default or self.attack in (*ATTACK_OPTIONS[name], WORST)
            require(used, name, f"be left out for the attack {self.attack}", value)
        if self.attack == "wrm":
            if self.gamma is None:
                raise ArgumentError("`gamma` must be given for the attack wrm; got None.")
            return
        if self.epsilon is None or self.norm is None:
            values = f"{self.epsilon} and {self.norm}"
            raise ArgumentError(
                f"`epsilon` and `norm` must be given for the attack {self.attack}; got {values}."
            )
        require(0 <= self.epsilon < math.inf, "epsilon", "be finite and not negative", self.epsilon)
        check_norm(self.norm)
        require_count("steps", self.steps)
        require_count("restarts", self.restarts)
        if self.step_size is not None:
            valid = 0 <= self.step_size < math.inf
            require(valid, "step_size", "be finite and not negative", self.step_size)

    @property
    def step_taken(self) -> float | None:
        """Step size that is used; None for wrm, which chooses its own."""
        if self.attack == "wrm":
            return None
        assert self.epsilon is not None
        if self.attack == "fgsm":
            return self.epsilon
        return default_step(self.epsilon, self.steps) if self.step_size is None else self.step_size

    @property
    def strength(self) -> float:
        """Quantity that a sweep varies: γ for wrm, else ε."""
        strength = self.gamma if self.attack == "wrm" else self.epsilon
        assert strength is not None
        return strength

    def method(self, domain: Domain, cost: Cost, free: Tensor | None = None) -> Method:
        """Return the attack, in the domain if it is clipped; ``free`` are the coordinates that may move."""
        where = domain if self.clipped else Unbounded()
        if self.attack == "wrm":
            moving = cost if free is None else masked_to(cost, free)
            if moving is None:
                return ERM()
            careful = default_maximizer(moving, where, tolerance=1e-3, max_gradients=30)
            return WRM(self.gamma, cost=moving, domain=where, maximizer=careful)
        require(self.attack in ATTACKS, "attack", f"be one of {', '.join(ATTACKS)}", repr(self.attack))
        assert self.epsilon is not None
        assert self.norm is not None
        if self.epsilon == 0:
            return ERM()
        steps, step = (1, self.epsilon) if self.attack == "fgsm" else (self.steps, self.step_size)
        random, restarts = self.attack == "pgd", self.restarts
        return GradientAttack(self.epsilon, self.norm, steps, step, where, random, restarts, free=free)


def sweep(
    loss: ModelLoss,
    data: Samples,
    trials: Sequence[Trial],
    *,
    domain: Domain | None = None,
    cost: Cost | None = None,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> list[tuple[Trial, Evaluation]]:
    """Evaluate every trial; where several attacks share a strength, also the worst of them. Rows of a table
    with categories, missing values or dates move in their other numbers alone."""
    require(len(data) >= 2, "data", "have at least 2 samples, for intervals", len(data))
    done: list[tuple[Trial, Evaluation]] = []
    where, price = domain or Unbounded(), cost or SquaredL2()
    free = None if data.encoding is None else data.encoding.attackable
    shared: dict[tuple[Any, ...], list[tuple[Trial, Evaluation]]] = {}
    for trial in trials:
        attack = trial.method(where, price, free)
        result = evaluate(loss.model, data, attack, criterion=loss.criterion, seed=seed, progress=progress)
        done.append((trial, result))
        if trial.attack != "wrm":
            shared.setdefault((trial.norm, trial.epsilon, trial.clipped), []).append((trial, result))
    for group in shared.values():
        if len(group) > 1:
            strongest = max((trial for trial, _ in group), key=lambda trial: (trial.steps, trial.restarts))
            done.append((replace(strongest, attack=WORST), worst_of([evaluation for _, evaluation in group])))
    return done


def as_row(trial: Trial, evaluation: Evaluation) -> dict[str, Any]:
    """Return one row of a table or a JSON file; None for options that the attack does not use."""
    return {
        **asdict(trial),
        **dict.fromkeys(_UNUSED.get(trial.attack, ())),
        "step_size": trial.step_taken,
        "norm": next((name for name, p in NORMS.items() if p == trial.norm), None),
        "samples": len(evaluation.losses),
        "error": None if evaluation.error is None else asdict(evaluation.error),
        "loss": asdict(evaluation.loss),
        "rho_test": evaluation.rho_test,
        "confidence": evaluation.confidence,
        "evidence": Evidence.ATTAINED,
    }
