"""``certify_smoothed``: from predictions at noisy inputs to a certificate, for any model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from certus._progress import progress_bar
from certus._validation import check_batch, check_label_cost
from certus.certificates.batching import repeats, require_one_draw, row_keys
from certus.certificates.population import Move
from certus.certificates.progress import Work
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import DataLike, Samples, choose_rows, random_order
from certus.errors import (
    ArgumentError,
    require,
    require_confidence,
    require_count,
    require_number,
    require_numbers,
)
from certus.kernel.binomial import Floats
from certus.kernel.smoothing import UPPER_SHARE, SmoothedStatement, VotingRule
from certus.losses import Criterion, CrossEntropy, MissProbability, as_criterion, inferred_criterion
from certus.smoothing.certificate import Quantity, SmoothedCertificate, rules_of, table_tensors
from certus.smoothing.design import bounded_move, make_design, mean_lower_bound, prove_means
from certus.smoothing.lower_bounds import BLIND_COPIES, COPIES, find_paths
from certus.smoothing.predictors import TRIED, UNKNOWN_TARGET, Predictor, read_samples
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
from certus.smoothing.voting import MOST_DRAWS, ONE_DRAW, vote_labels
from certus.storage.tensors import digest

_L2 = SquaredL2()
_MOVES = 3  # γ that moves are looked for at
_REACH = 2.0  # how far a path goes, in units of the largest √ρ
_TRIED_COPIES = 16  # of each sample at which a model is asked again
_EIGHTH = 8  # calibration: an eighth of the samples, no more than ENOUGH
ENOUGH = 1000  # samples that choose a design: more would cost predictions and change little


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

    where P₀ is the distribution that the samples were drawn from, and U_γ bounds the mean of the
    Neyman–Pearson envelope of h, from the errors of m noisy copies of each sample (docs/proofs_smoothing.md).
    The same holds for the error rate of a vote, and for the mean of a clipped loss. The model must be
    deterministic, and its output for an input must not depend on the rest of the batch.

    Args:
        model: a torch module, an estimator with ``predict``, or a callable from arrays to labels or scores.
        data: inputs (n, …) with n targets, drawn independently; nothing may have been fitted or tuned on
            them.
        rho: mean transport costs of interest, one or several; the certificate also answers for other ρ.
        sigma: σ of the noise, in the units of the cost's norm.
        draws: m, the noisy copies of each sample that the bounds rest on.
        confidence: 1 − δ, for all quantities, both sides and all ρ together.
        votes: M, number of draws of the deployed vote, whose error rate is certified too; see ``Smoothed``.
        abstain: the level of the vote's test against the runner-up; None for a vote that abstains in ties
            only.
        criterion: loss ℓ; the mean of min(ℓ, B) is certified too. By default cross-entropy (squared error for
            a regression) if ``clip`` is given, else no loss.
        clip: B; 2 ln K by default for cross-entropy.
        cost: squared L2, weighted or full quadratic, masked or not.
        label_cost: the cost of changing a label; by default labels never change.
        calibration: further samples, from which the grid of γ and the coefficients are chosen. By default a
            random eighth of the data, which is then not certified.
        seed: seed of the noise and of the order of the samples; fix it beforehand.
        attack_steps: number of points on each search path of the lower bounds; 0 for none.
        progress: False for no progress bar; a function is called with the finished share of the work, from 0
            to 1.
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
        predictor, noise = Predictor.of(model), Noise(sigma, cost)
        samples, others = _read(model, predictor, data, calibration, cost, label_cost, seed)
        targets, labelled = samples.targets, not samples.targets.is_floating_point()
        loss, every_rule = _clipped(criterion, clip, predictor, samples), rules_of(votes, abstain)
        rule = every_rule["vote"]
        if not labelled and loss is None:
            raise ArgumentError(
                "`clip` must be given for a regression: a squared error has no bound; got None."
            )
        labels_known = loss is None or not labelled or bool((targets != UNKNOWN_TARGET).all())
        require(labels_known, "targets", "be classes of the model if a loss is certified", "other labels")

        # Some of the samples, and noisy copies of them, as many as fit into one batch.
        tried = samples.inputs[:TRIED]
        copies_of = noisy_batches(tried, noise, copies=_TRIED_COPIES, seed=seed, stream=CERTIFIED)
        checked = predictor.check_apart(
            torch.cat([tried, next(copies_of).points]), labelled=labelled, scored=loss is not None
        )

        attacked = attack_steps > 0 and max(rhos) > 0
        walked = (attack_steps + 1) * (BLIND_COPIES if predictor.module is None else COPIES)
        measured = _MOVES * (draws + (votes if labelled else 0))
        planned = draws * (len(others) + len(samples)) + attacked * (walked + measured) * len(samples)
        work = Work(planned + checked, report)
        work.advance(checked)

        observed = partial(
            predict_noisy, predictor, noise=noise, seed=seed, progress=work.advance, cache=cache
        )
        before = observed(others, copies=draws, stream=CALIBRATION, loss=loss)
        names = (["error", "vote", "ideal_vote"] if labelled else []) + ([] if loss is None else ["loss"])
        rules = {name: every_rule[name] for name in names}
        failure = (1 - confidence) / len(rules)
        above, below = UPPER_SHARE * failure, (1 - UPPER_SHARE) * failure
        each = below / (1 + _MOVES)
        price = None if label_cost is None else label_cost.price
        plans = {
            name: make_design(
                kind, _counts(name, before), draws, rhos, sigma, price, samples=len(samples), failure=above
            )
            for name, kind in rules.items()
        }
        seen = observed(samples, copies=draws, stream=CERTIFIED, loss=loss)
        order = random_order(len(samples), seed)
        moves: dict[str, list[Move]] = {name: [] for name in plans}
        if attacked:
            # Quantities that are measured together, the rule that moves are chosen by, and the copies.
            searches = [([name for name in plans if name in ("error", "loss")], ONE_DRAW, draws)]
            searches += [(["vote"], rule, votes)] if labelled else []
            gammas = {}
            for name, designs in plans.items():  # some of Γ, from the first to the last
                places = np.linspace(0, len(designs) - 1, min(_MOVES, len(designs)))
                gammas[name] = [designs[place].gamma for place in np.unique(np.rint(places).astype(int))]
            more = sum(copies * len(gammas[names[0]]) for names, _, copies in searches)
            work.total = work.done + len(samples) * (walked + more)
            reach = _REACH * math.sqrt(max(rhos))
            most = 1.001 * reach**2
            paths = find_paths(
                predictor,
                samples,
                noise,
                radius=reach,
                steps=attack_steps,
                seed=seed,
                others=others,
                loss=None if labelled else loss,
                progress=work.advance,
            )
            streams = itertools.count(FRESH)
            for names, kind, copies in searches:
                for gamma in gammas[names[0]]:
                    points, costs = paths.moved(gamma, kind, most)
                    moved, of_loss = Samples(points, targets), None if names == ["vote"] else loss
                    fresh = observed(moved, copies=copies, stream=next(streams), loss=of_loss)
                    for name in names:
                        values = _measurements(name, fresh, rule, targets)
                        moves[name].append(bounded_move(costs, values, most, order, each))
        scales = {name: loss.clip if loss is not None and name == "loss" else 1.0 for name in plans}
        asked = (float(sigma), confidence, len(samples), draws, seed, price)
        claim = SmoothedStatement(*asked, {name: (rules[name], scales[name]) for name in plans}, {})
        observations = {name: seen.losses if name == "loss" else seen.errors for name in plans}
        proof, tables = prove_means(
            claim, {name: errors for name, errors in observations.items() if errors is not None}, plans
        )
        quantities = []
        for name, scale in scales.items():  # from shares of B
            start = 0.0
            if name != "ideal_vote":
                start = mean_lower_bound(_measurements(name, seen, rule, targets), order, each)
            quantities.append(
                Quantity(
                    name,
                    scale,
                    dict(proof.means[name]),
                    scale * start,
                    tuple(Move(move.cost, scale * move.loss) for move in moves[name]),
                )
            )
        work.finish()
        return SmoothedCertificate(
            rhos=rhos,
            sigma=float(sigma),
            draws=draws,
            votes=votes,
            abstain=abstain,
            confidence=confidence,
            samples=len(samples),
            calibrated=len(others),
            seed=seed,
            clip=None if loss is None else loss.clip,
            quantities=tuple(quantities),
            about={},
            repeats=repeats([row_keys(samples.inputs, targets)]),
            label_price=price,
            table=digest(table_tensors(tables)),
            proof=proof,
            tables=tables,
        )


def _read(
    model: object,
    predictor: Predictor,
    data: DataLike,
    calibration: DataLike | None,
    cost: Cost,
    label_cost: LabelCost | None,
    seed: int,
) -> tuple[Samples, Samples]:
    """Return the samples to certify and those for calibration, checked."""
    require_one_draw(data)
    samples = read_samples(model, data, predictor)
    check_batch(samples.inputs, samples.targets)
    cost.check_shape(samples.inputs)
    if label_cost is not None:
        check_label_cost(samples.targets, label_cost)
    if calibration is None:
        require(len(samples) >= 2, "data", "hold at least two samples: one to calibrate", len(samples))
        count = min(ENOUGH, max(1, len(samples) // _EIGHTH))
        chosen = torch.zeros(len(samples), dtype=torch.bool)
        chosen[choose_rows(len(samples), count, seed)] = True
        return samples[~chosen], samples[chosen]
    others = read_samples(model, calibration, predictor)
    check_batch(others.inputs, others.targets)
    shape, got = tuple(samples.inputs.shape[1:]), tuple(others.inputs.shape[1:])
    require(got == shape, "calibration", f"have inputs of the shape {shape}", got)
    return samples, others


def _clipped(
    criterion: Criterion | None, clip: float | None, predictor: Predictor, samples: Samples
) -> ClippedLoss | None:
    """Return the certified loss; None without one."""
    clip = None if clip is None else require_number("clip", clip)
    if criterion is None and clip is None:
        return None
    chosen = inferred_criterion(samples.targets) if criterion is None else as_criterion(criterion)
    if clip is None and isinstance(chosen, MissProbability):
        clip = 1.0
    if clip is None and isinstance(chosen, CrossEntropy):
        clip = 2 * math.log(max(2, predictor.scores(samples.inputs[:1]).shape[-1]))
    if clip is None:
        raise ArgumentError(
            f"`clip` must be given with {type(chosen).__name__}, which has no bound; got None."
        )
    return ClippedLoss(chosen, clip)


def _counts(name: str, observed: NoisyPredictions) -> Floats:
    """Return (n,) numbers of errors of the noisy copies, or sums of their losses between 0 and 1."""
    counts = observed.losses.sum(1) if name == "loss" and observed.losses is not None else observed.errors
    assert counts is not None
    return np.asarray(counts.numpy(), dtype=np.float64)


def _measurements(name: str, observed: NoisyPredictions, rule: VotingRule, targets: Tensor) -> Tensor:
    """Return (n,) unbiased measurements of a quantity, between 0 and 1."""
    if name == "loss":
        assert observed.losses is not None
        return observed.losses.mean(1)
    assert observed.labels is not None
    if name == "error":
        return (observed.labels != targets[:, None]).double().mean(1)
    assert rule.votes is not None
    if observed.labels.shape[1] < rule.votes:
        return torch.zeros(len(targets), dtype=torch.float64)  # too few draws for one vote: nothing attained
    return (vote_labels(observed.labels[:, : rule.votes], rule) != targets).double()
