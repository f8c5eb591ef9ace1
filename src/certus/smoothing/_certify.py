"""``certify_smoothed``: from predictions at noisy inputs to a certificate, for any model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from certus._progress import progress_bar
from certus._validation import check_batch, check_label_cost
from certus.certificates.batching import require_one_draw, row_keys
from certus.certificates.population import Move
from certus.certificates.progress import Work
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import (
    DataLike,
    Samples,
    SampleStream,
    choose_rows,
    fitted_names,
    gather_samples,
    in_fitted_order,
    random_order,
)
from certus.errors import (
    ArgumentError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
)
from certus.losses import Criterion, CrossEntropy, MissProbability, as_criterion, inferred_criterion
from certus.smoothing.binomial import MOST_DRAWS, Floats
from certus.smoothing.certificate import Quantity, SmoothedCertificate
from certus.smoothing.confidence import mean_low, move_of, upper_means
from certus.smoothing.design import make_design
from certus.smoothing.lower_bounds import BLIND_COPIES, COPIES, find_paths, spaced
from certus.smoothing.predictors import TRIED, UNKNOWN_TARGET, Predictor, encoded_samples
from certus.smoothing.sampling import (
    CALIBRATION,
    CERTIFIED,
    FRESH,
    ClippedLoss,
    Noise,
    NoisyPredictions,
    PredictionCache,
    noisy_batches,
    predict_noisy,
)
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, VotingRule

_L2 = SquaredL2()
_ABOVE = 0.8  # the share of δ that the upper sides have
_MOVES = 3  # γ that moves are looked for at
_REACH = 2.0  # how far a path goes, in units of the largest √ρ
_TRIED_COPIES = 16  # of each sample at which a model is asked again
_EIGHTH = 8  # calibration: an eighth of the samples, no more than ENOUGH
ENOUGH = 1000
"""Samples that choose a plan: more would cost predictions and change little."""


def certify_smoothed(
    model: object,
    data: DataLike,
    *,
    rho: float | Sequence[float],
    sigma: float,
    confidence: float = 0.95,
    draws: int = 100,
    votes: int = 100,
    abstain: float | None = 0.001,
    calibration: DataLike | None = None,
    criterion: Criterion | None = None,
    clip: float | None = None,
    cost: Cost = _L2,
    label_cost: LabelCost | None = None,
    seed: int = 0,
    attack_steps: int = 8,
    cache: PredictionCache | None = None,
    progress: bool | Callable[[float], None] | None = None,
) -> SmoothedCertificate:
    """Bracket the error rate of a model with Gaussian noise on its inputs, within transport cost ρ.

    Let h(x) be the probability that the model errs at x + σA^{−½}Z, A the matrix of the quadratic cost. With
    probability at least 1 − δ over the samples and the noise, for all ρ at once,

        sup {E_P h : W_c(P, P₀) ≤ ρ} ≤ min_γ γρ + U_γ,

    P₀ the distribution that the samples were drawn from, and U_γ a bound on the mean of the Neyman–Pearson
    envelope of h, from the errors of m noisy copies of each sample (docs/proofs_smoothing.md). The same holds
    for the error rate of a vote, and for the mean of a clipped loss. Nothing is asked of the model but that
    it answers for each input by itself, and the same whenever it is asked.

    Args:
        model: a torch module, an estimator with ``predict``, or a callable from arrays to labels or scores.
        data: inputs (n, …) with n targets, drawn independently; nothing may have been fitted or tuned on
            them.
        rho: mean transport costs of interest, one or several; the certificate answers for others, too.
        sigma: σ of the noise, in the units of the cost's norm.
        draws: m, the noisy copies of each sample that the bounds rest on.
        confidence: 1 − δ, for all quantities, both sides and all ρ together.
        votes: M, the draws of the deployed vote, which is certified beside the mean error; see ``Smoothed``.
        abstain: the level of the vote's test against the runner-up; None for a vote that abstains in ties
            only.
        criterion: certify the mean of min(ℓ, B), too. By default cross-entropy (squared error for a
            regression) if ``clip`` is given, else no loss.
        clip: B; 2 ln K by default for cross-entropy.
        cost: squared L2, weighted or full quadratic, masked or not.
        label_cost: the cost of changing a label; by default labels never change.
        calibration: other samples, which choose the grid of γ and the coefficients. By default a random
            eighth of the data, which the certificate then leaves out.
        seed: of the noise and of the order of the samples; fix it beforehand.
        attack_steps: points on each path that is searched for the lower bounds; 0 for none.
        progress: False for no progress bar; a function is called with the share of the work that is done.
        cache: stores the model's predictions, so that an interrupted certification can resume.

    Returns: a ``SmoothedCertificate``, which answers for any ρ.

    >>> inputs = torch.linspace(-2, 2, 400)[:, None]
    >>> labels = (inputs[:, 0] > 0).long()
    >>> def signs(x): return (x[:, 0] > 0).astype(int)
    >>> certificate = certify_smoothed(signs, (inputs, labels), rho=0.01, sigma=0.25)
    >>> certificate.lower(0.01) <= certificate.bound(0.01) < 0.2
    True
    """
    with progress_bar(progress, "certifying in noise") as report:
        rhos = require_numbers("rho", rho, zero=True)
        require_confidence(confidence)
        require_count("draws", draws)
        require(draws <= MOST_DRAWS, "draws", f"be at most {MOST_DRAWS:,}", draws)
        require_count("attack_steps", attack_steps, least=0)
        asked = _Asked.of(model, data, calibration, seed, cost, sigma, label_cost)
        rule, loss = VotingRule.of(votes, abstain), _clipped(criterion, clip, asked)
        if not asked.labelled and loss is None:
            raise ArgumentError(
                "`clip` must be given for a regression: a squared error has no bound; got None."
            )

        known = loss is None or not asked.labelled or bool((asked.data.targets != UNKNOWN_TARGET).all())
        require(known, "targets", "be labels that the model knows where a loss is certified", "others")

        checked = asked.predictor.check_apart(
            asked.tried(seed), labelled=asked.labelled, scored=loss is not None
        )

        attacked = attack_steps > 0 and max(rhos) > 0
        walked = BLIND_COPIES if asked.predictor.module is None else COPIES
        attacks = (attack_steps + 1) * walked + _MOVES * (draws + (votes if asked.labelled else 0))
        planned = draws * (len(asked.calibration) + len(asked.data)) + attacked * attacks * len(asked.data)
        work = Work(planned + checked, report)
        work.advance(checked)

        def observed(
            part: Samples, copies: int, stream: int, with_loss: ClippedLoss | None
        ) -> NoisyPredictions:
            return predict_noisy(
                asked.predictor,
                part,
                asked.noise,
                copies=copies,
                seed=seed,
                stream=stream,
                loss=with_loss,
                progress=work.advance,
                cache=cache,
            )

        before = observed(asked.calibration, draws, CALIBRATION, loss)
        kinds = _kinds(before, rule)
        failure = (1 - confidence) / len(kinds)
        above, below = _ABOVE * failure, (1 - _ABOVE) * failure
        price = None if label_cost is None else label_cost.price
        plans = {
            name: make_design(
                kind, bad, draws, rhos, asked.noise.sigma, price, samples=len(asked.data), failure=above
            )
            for name, (kind, bad) in kinds.items()
        }
        seen = observed(asked.data, draws, CERTIFIED, loss)
        order = random_order(len(asked.data), seed)
        quantities = {
            name: Quantity(name, 1.0, upper_means(designs, seen, order, above, of_loss=name == "loss"))
            for name, designs in plans.items()
        }
        each = below / (1 + _MOVES)
        for name, one in quantities.items():
            if name != "ideal_vote":
                start = mean_low(_badness(name, seen, rule, asked.data.targets), order, each)
                quantities[name] = replace(one, start=start)
        if attacked:
            gammas = {name: spaced([design.gamma for design in plans[name]], _MOVES) for name in plans}
            more = sum(copies * len(gammas[name]) for name, _, copies in _attacked(quantities, rule, draws))
            work.total = work.done + len(asked.data) * ((attack_steps + 1) * walked + more)
            reach = _REACH * math.sqrt(max(rhos))
            most = 1.001 * reach**2
            paths = find_paths(
                asked.predictor,
                asked.data,
                asked.noise,
                radius=reach,
                steps=attack_steps,
                seed=seed,
                criterion=loss.criterion if loss is not None and not asked.labelled else None,
                others=asked.calibration,
                loss=loss if not asked.labelled else None,
                encoding=asked.data.encoding,
                progress=work.advance,
            )
            stream = FRESH
            for name, kind, copies in _attacked(quantities, rule, draws):
                moves: dict[str, list[Move]] = {}
                for gamma in gammas[name]:
                    moved, costs = paths.moved(gamma, kind, most)
                    split = Samples(moved, asked.data.targets)
                    fresh = observed(split, copies, stream, loss if name != "vote" else None)
                    stream += 1
                    for quantity in (
                        [name] if name == "vote" else [one for one in ("error", "loss") if one in quantities]
                    ):
                        values = _badness(quantity, fresh, rule, asked.data.targets)
                        move = move_of(costs, values, most, order, each)
                        moves.setdefault(quantity, []).append(move)
                for quantity, several in moves.items():
                    quantities[quantity] = replace(quantities[quantity], moves=tuple(several))
        work.finish()
        return SmoothedCertificate(
            rhos=rhos,
            sigma=float(sigma),
            draws=draws,
            votes=votes,
            abstain=abstain,
            confidence=confidence,
            samples=len(asked.data),
            calibrated=len(asked.calibration),
            seed=seed,
            clip=None if loss is None else loss.clip,
            quantities=tuple(_scaled(one, loss) for one in quantities.values()),
            about={},
            repeats=len(asked.data) - len(row_keys(asked.data.inputs, asked.data.targets)),
        )


@dataclass(frozen=True, eq=False)
class _Asked:
    """The model, the samples and the noise, checked to go together."""

    predictor: Predictor
    data: Samples
    calibration: Samples
    noise: Noise
    labelled: bool

    @staticmethod
    def of(
        model: object,
        data: DataLike,
        calibration: DataLike | None,
        seed: int,
        cost: Cost,
        sigma: float,
        label_cost: LabelCost | None,
    ) -> _Asked:
        predictor, noise = Predictor.of(model), Noise(sigma, cost)
        require_one_draw(data)
        split = encoded_samples(_batches(model, data), predictor)
        check_batch(split.inputs, split.targets)
        cost.check_shape(split.inputs)
        if label_cost is not None:
            check_label_cost(split.targets, label_cost)
        if calibration is None:
            require(len(split) >= 2, "data", "hold at least two samples: one to calibrate", len(split))
            count = min(ENOUGH, max(1, len(split) // _EIGHTH))
            chosen = torch.zeros(len(split), dtype=torch.bool)
            chosen[choose_rows(len(split), count, seed)] = True
            others, split = split[chosen], split[~chosen]
        else:
            others = encoded_samples(_batches(model, calibration), predictor)
            check_batch(others.inputs, others.targets)
            require(
                others.inputs.shape[1:] == split.inputs.shape[1:],
                "calibration",
                f"have inputs of the shape {tuple(split.inputs.shape[1:])}",
                tuple(others.inputs.shape[1:]),
            )
        return _Asked(predictor, split, others, noise, not split.targets.is_floating_point())

    def tried(self, seed: int) -> Tensor:
        """Some of the samples, and noisy copies of them, as many as fit into one batch."""
        some = self.data.inputs[:TRIED]
        noisy = noisy_batches(some, self.noise, copies=_TRIED_COPIES, seed=seed, stream=CERTIFIED)
        return torch.cat([some, next(noisy).points])


def _batches(model: object, data: DataLike) -> list[Any]:
    """The batches of any data. Columns of frames stand in the order in which an estimator was fitted."""
    if isinstance(data, Dataset | SampleStream):
        data = gather_samples(data)
    pair = isinstance(data, tuple) and len(data) == 2
    batches: list[Any] = [data] if pair or isinstance(data, Samples) else list(data)
    named = fitted_names(model) is not None
    if not named and not callable(getattr(model, "get_params", None)):
        return batches

    def in_order(pair: Any) -> Any:
        if isinstance(pair, Samples):
            return pair
        inputs, targets = pair
        reorder = hasattr(inputs, "columns") or (named and isinstance(inputs, np.ndarray))
        return in_fitted_order(model, inputs) if reorder else inputs, targets

    return [in_order(pair) for pair in batches]


def _clipped(criterion: Criterion | None, clip: float | None, asked: _Asked) -> ClippedLoss | None:
    """The loss that is certified, if one is."""
    clip = None if clip is None else require_number("clip", clip)
    if criterion is None and clip is None:
        return None
    chosen = inferred_criterion(asked.data.targets) if criterion is None else as_criterion(criterion)
    if clip is None and isinstance(chosen, MissProbability):
        clip = 1.0
    if clip is None and isinstance(chosen, CrossEntropy):
        scores = asked.predictor.scores(asked.data.inputs[:1])
        clip = 2 * math.log(max(2, scores.shape[-1]))
    if clip is None:
        raise ArgumentError(
            f"`clip` must be given with {type(chosen).__name__}, which has no bound; got None."
        )
    return ClippedLoss(chosen, clip)


def _kinds(before: NoisyPredictions, rule: VotingRule) -> dict[str, tuple[VotingRule, Floats]]:
    """Quantity → what counts as a failure, and how the calibration samples did."""
    kinds: dict[str, tuple[VotingRule, Floats]] = {}
    if before.errors is not None:
        errors = np.asarray(before.errors.numpy(), dtype=np.float64)
        kinds = {"error": (ONE_DRAW, errors), "vote": (rule, errors), "ideal_vote": (IDEAL_VOTE, errors)}
    if before.losses is not None:
        kinds["loss"] = (ONE_DRAW, np.asarray(before.losses.sum(1).numpy()))
    return kinds


def _badness(name: str, observed: NoisyPredictions, rule: VotingRule, targets: Tensor) -> Tensor:
    """(n,) unbiased measurements of a quantity, between 0 and 1."""
    if name == "loss":
        assert observed.losses is not None
        return observed.losses.mean(1)
    assert observed.labels is not None
    if name == "error":
        return (observed.labels != targets[:, None]).double().mean(1)
    assert rule.votes is not None
    if observed.labels.shape[1] < rule.votes:
        return torch.zeros(len(targets), dtype=torch.float64)  # too few draws for one vote: nothing attained
    votes = replace(observed, labels=observed.labels[:, : rule.votes])
    return votes.lost(rule, targets).double()


def _attacked(
    quantities: dict[str, Quantity], rule: VotingRule, draws: int
) -> list[tuple[str, VotingRule, int]]:
    """What moves are looked for: quantity, rule, and copies that measure it. The loss rides along with the
    error."""
    if "error" not in quantities:
        return [("loss", ONE_DRAW, draws)]
    assert rule.votes is not None
    return [("error", ONE_DRAW, draws), ("vote", rule, rule.votes)]


def _scaled(one: Quantity, loss: ClippedLoss | None) -> Quantity:
    """A loss in its own units instead of shares of B."""
    if one.name != "loss" or loss is None:
        return one
    most = loss.clip
    means = {most * gamma: most * mean for gamma, mean in one.means.items()}
    moves = tuple(Move(move.cost, most * move.loss) for move in one.moves)
    return Quantity(one.name, most, means, most * one.start, moves)
