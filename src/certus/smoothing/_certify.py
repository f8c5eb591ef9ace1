"""``certify_smoothed``: from predictions at noisy inputs to a certificate, for any model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

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
from certus.kernel.smoothing import UPPER_SHARE, GammaDesign, SmoothedStatement, VotingRule
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
        if not labelled and loss is None:
            raise ArgumentError(
                "`clip` must be given for a regression: a squared error has no bound; got None."
            )
        labels_known = loss is None or not labelled or bool((targets != UNKNOWN_TARGET).all())
        require(labels_known, "targets", "be classes of the model if a loss is certified", "other labels")
        names = (["error", "vote", "ideal_vote"] if labelled else []) + ([] if loss is None else ["loss"])
        rules = {name: every_rule[name] for name in names}
        failure = (1 - confidence) / len(rules)
        above, below = UPPER_SHARE * failure, (1 - UPPER_SHARE) * failure
        experiment = _Experiment(
            *(predictor, noise, samples, others, loss, every_rule["vote"], draws, seed),
            *(below / (1 + _MOVES), cache, Work(1.0, report)),
        )
        checked = experiment.check_model()
        attacked = attack_steps > 0 and max(rhos) > 0
        measured = _MOVES * (draws + (votes if labelled else 0))
        planned = draws * (len(others) + len(samples))
        planned += attacked * (experiment.walked(attack_steps) + measured) * len(samples)
        experiment.work.total = planned + checked
        experiment.work.advance(checked)
        before = experiment.predict(others, draws, CALIBRATION, loss)
        price = None if label_cost is None else label_cost.price
        plans = {
            name: make_design(
                rule, _counts(name, before), draws, rhos, sigma, price, samples=len(samples), failure=above
            )
            for name, rule in rules.items()
        }
        seen = experiment.predict(samples, draws, CERTIFIED, loss)
        moves = experiment.moves(plans, rhos, attack_steps) if attacked else {name: [] for name in plans}
        scales = {name: loss.clip if loss is not None and name == "loss" else 1.0 for name in plans}
        asked = (float(sigma), confidence, len(samples), draws, seed, price)
        claim = SmoothedStatement(*asked, {name: (rules[name], scales[name]) for name in plans}, {})
        observations = {name: seen.losses if name == "loss" else seen.errors for name in plans}
        proof, tables = prove_means(
            claim, {name: errors for name, errors in observations.items() if errors is not None}, plans
        )
        quantities = [
            Quantity(
                name,
                scale,
                dict(proof.means[name]),
                scale * experiment.unmoved(name, seen),
                tuple(Move(move.cost, scale * move.loss) for move in moves[name]),
            )
            for name, scale in scales.items()  # from shares of B
        ]
        experiment.work.finish()
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


@dataclass(frozen=True, eq=False)
class _Experiment:
    """Predictions of noisy copies: of the samples to certify, of those for calibration, and of moved ones.

    Attributes:
        rule: of the deployed vote.
        failure: δ of each lower bound.
    """

    predictor: Predictor
    noise: Noise
    samples: Samples
    others: Samples
    loss: ClippedLoss | None
    rule: VotingRule
    draws: int
    seed: int
    failure: float
    cache: PredictionCache | None
    work: Work

    @property
    def labelled(self) -> bool:
        """Whether targets are labels."""
        return not self.samples.targets.is_floating_point()

    @cached_property
    def order(self) -> Tensor:
        """(n,) order in which lower bounds take the samples."""
        return random_order(len(self.samples), self.seed)

    def check_model(self) -> int:
        """Refuse a model whose answers depend on chance or on the batch; return the copies that it took."""
        # Some of the samples, and noisy copies of them, as many as fit into one batch.
        some, seed = self.samples.inputs[:TRIED], self.seed
        copies = noisy_batches(some, self.noise, copies=_TRIED_COPIES, seed=seed, stream=CERTIFIED)
        points = torch.cat([some, next(copies).points])
        return self.predictor.check_apart(points, labelled=self.labelled, scored=self.loss is not None)

    def walked(self, steps: int) -> int:
        """The predictions that the paths from one sample take."""
        return (steps + 1) * (BLIND_COPIES if self.predictor.module is None else COPIES)

    def predict(
        self, samples: Samples, copies: int, stream: int, loss: ClippedLoss | None
    ) -> NoisyPredictions:
        """Predict noisy copies of samples."""
        return predict_noisy(
            *(self.predictor, samples, self.noise),
            copies=copies,
            seed=self.seed,
            stream=stream,
            loss=loss,
            progress=self.work.advance,
            cache=self.cache,
        )

    def unmoved(self, name: str, seen: NoisyPredictions) -> float:
        """Bound a quantity of the unmoved samples from below, as a share of its largest value."""
        if name == "ideal_vote":
            return 0.0
        return mean_lower_bound(self._measurements(name, seen), self.order, self.failure)

    def moves(
        self, plans: Mapping[str, Sequence[GammaDesign]], rhos: Sequence[float], steps: int
    ) -> dict[str, list[Move]]:
        """Move the samples at a few γ of each plan; bound what is attained there, in fresh noise."""
        # Quantities that are measured together, the rule that moves are chosen by, and the copies.
        searches = [([name for name in plans if name in ("error", "loss")], ONE_DRAW, self.draws)]
        if self.labelled:
            assert self.rule.votes is not None
            searches += [(["vote"], self.rule, self.rule.votes)]
        gammas = {}
        for name, designs in plans.items():  # some of Γ, from the first to the last
            places = np.linspace(0, len(designs) - 1, min(_MOVES, len(designs)))
            gammas[name] = [designs[place].gamma for place in np.unique(np.rint(places).astype(int))]
        more = sum(copies * len(gammas[names[0]]) for names, _, copies in searches)
        self.work.total = self.work.done + len(self.samples) * (self.walked(steps) + more)
        reach = _REACH * math.sqrt(max(rhos))
        most = 1.001 * reach**2
        paths = find_paths(
            *(self.predictor, self.samples, self.noise),
            radius=reach,
            steps=steps,
            seed=self.seed,
            others=self.others,
            loss=None if self.labelled else self.loss,
            progress=self.work.advance,
        )
        moves: dict[str, list[Move]] = {name: [] for name in plans}
        streams = itertools.count(FRESH)
        for names, rule, copies in searches:
            for gamma in gammas[names[0]]:
                points, costs = paths.moved(gamma, rule, most)
                moved = Samples(points, self.samples.targets)
                loss = None if names == ["vote"] else self.loss
                fresh = self.predict(moved, copies, next(streams), loss)
                for name in names:
                    values = self._measurements(name, fresh)
                    moves[name].append(bounded_move(costs, values, most, self.order, self.failure))
        return moves

    def _measurements(self, name: str, observed: NoisyPredictions) -> Tensor:
        """Return (n,) unbiased measurements of a quantity, between 0 and 1."""
        if name == "loss":
            assert observed.losses is not None
            return observed.losses.mean(1)
        assert observed.labels is not None
        targets, rule = self.samples.targets, self.rule
        if name == "error":
            return (observed.labels != targets[:, None]).double().mean(1)
        assert rule.votes is not None
        if observed.labels.shape[1] < rule.votes:
            return torch.zeros(len(targets), dtype=torch.float64)  # too few draws for one vote
        return (vote_labels(observed.labels[:, : rule.votes], rule) != targets).double()


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
        require(
            len(samples) >= 2, "data", "hold at least two samples, one of them for calibration", len(samples)
        )
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
