"""Deployment of the noisy model: a vote of several draws, which may abstain, and a radius for each input.

A vote of M draws fails when at least t of them err (``certus.kernel.smoothing.VotingRule``):

| | M | t |
|---|---|---|
| the mean error: one draw | 1 | 1 |
| the vote of M draws, ties lost | M | ⌈M/2⌉ |
| the same, which abstains at level α, and abstentions are failures | M | the least K that may abstain |
| the ideal vote, which knows h | ∞ | lost for h ≥ ½ |

The vote that abstains (Cohen, Rosenfeld and Kolter) gives the most frequent label if the two-sided binomial
test against the runner-up rejects even odds at level α.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from certus.certificates.confidence import MARGINS, clopper_pearson, first_proven
from certus.costs import Cost, SquaredL2
from certus.errors import require, require_count, require_seed
from certus.kernel.binomial import gaussian_radius
from certus.kernel.smoothing import VotingRule
from certus.smoothing.predictors import ABSTAINED, TRIED, Predictor
from certus.smoothing.sampling import Noise

_L2 = SquaredL2()
_POINTS = 16  # inputs near which a model is tried
MOST_DRAWS = 10_000
ONE_DRAW, IDEAL_VOTE = VotingRule(1, 1), VotingRule(None)


def voting_rule(votes: int, abstain: float | None = None) -> VotingRule:
    """Return the rule of a deployed vote, which abstains at level α, or in ties only for None.

    >>> [voting_rule(*vote).failure_threshold for vote in ((100,), (100, 0.001), (1,))]
    [50, 34, 1]
    """
    require_count("votes", votes)
    require(votes <= MOST_DRAWS, "votes", f"be at most {MOST_DRAWS:,}", votes)
    if abstain is None:
        return VotingRule(votes, math.ceil(votes / 2))
    require(0 < abstain <= 1, "abstain", "lie in (0, 1], or be None", abstain)
    errors, ways, tail, level = 0, 1, 1, Fraction(abstain) * 2**votes
    while 2 * errors < votes and 2 * tail <= level:
        ways = ways * (votes - errors) // (errors + 1)
        tail, errors = tail + ways, errors + 1
    return VotingRule(votes, errors, abstain)


def gives_label(rule: VotingRule, most: int, second: int) -> bool:
    """Whether the vote returns the most frequent label, from the counts of the two most frequent ones."""
    if most <= second or rule.abstain is None:
        return most > second
    return _even_odds(most, second) <= Fraction(rule.abstain)


@cache
def _even_odds(most: int, second: int) -> Fraction:
    """Return the p-value of the exact two-sided binomial test of even odds."""
    both = most + second
    return Fraction(2 * sum(math.comb(both, errors) for errors in range(second + 1)), 2**both)


def vote_labels(labels: Tensor, rule: VotingRule) -> Tensor:
    """Apply a rule to (n, M) labels: the most frequent one, or ``ABSTAINED``. Returns (n,)."""
    names, codes = labels.unique(return_inverse=True)
    counts = torch.zeros(len(labels), len(names), dtype=torch.int64)
    counts.scatter_add_(1, codes, torch.ones_like(codes))
    ranked, places = counts.sort(1, descending=True)
    pairs = [(row[0], row[1] if len(names) > 1 else 0) for row in ranked[:, :2].tolist()]
    given = torch.tensor([gives_label(rule, most, second) for most, second in pairs])
    return torch.where(given, names[places[:, 0]].long(), ABSTAINED)


@dataclass(frozen=True, eq=False)
class Radius:
    """Labels of the ideal vote with their certified radii.

    Attributes:
        labels: (n,) codes, as from ``Smoothed.predict``; ``ABSTAINED`` where no radius was certified.
        radius: (n,) in the cost's norm: no nearer input has another label under the ideal vote. Each holds
            individually with the confidence.
    """

    labels: Tensor
    radius: Tensor
    confidence: float


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Majority vote of a model under Gaussian noise on its inputs (Cohen, Rosenfeld and Kolter 2019).

    ``certus.certify_smoothed`` with the same sigma, votes and abstain bounds how often this vote errs or
    abstains under shift.

    Args:
        model: a torch module, an estimator with ``predict``, or a callable from arrays to labels or scores.
        sigma: standard deviation of the noise, in the units of the cost's norm.
        votes: M, number of draws for each prediction.
        abstain: significance level of the test against the runner-up; None abstains in ties only.
        seed: seed of the noise. Every call draws fresh noise.

    >>> signs = Smoothed(lambda x: (x[:, 0] > 0).astype(int), sigma=0.5)
    >>> signs.predict(torch.tensor([[3.0], [-3.0], [0.0]])).tolist()
    [1, 0, -2]
    """

    model: object
    sigma: float
    votes: int = 100
    abstain: float | None = 0.001
    cost: Cost = _L2
    seed: int = 0
    _source: np.random.Generator = field(init=False, repr=False)

    ABSTAINED = ABSTAINED

    def __post_init__(self) -> None:
        # Each checks its own.
        voting_rule(self.votes, self.abstain)
        Noise(self.sigma, self.cost)
        Predictor.of(self.model)
        require_seed(self.seed)
        object.__setattr__(self, "_source", np.random.default_rng(self.seed))

    def predict(self, inputs: Tensor) -> Tensor:
        """Return (n,) labels for (n, …) inputs; ``Smoothed.ABSTAINED`` where the vote abstains.

        For an estimator with ``classes_``, labels are indices into them.
        """
        labels = torch.stack([self._labels(point, self.votes) for point in inputs])
        return vote_labels(labels, voting_rule(self.votes, self.abstain))

    def radius(self, inputs: Tensor, *, draws: int = 1000, confidence: float = 0.999) -> Radius:
        """Certify how far each input can move before the ideal vote changes its label.

        A tenth of the draws selects a label; the others bound its probability p from below (Clopper and
        Pearson). If p > ½, the ideal vote is that label within σΦ⁻¹(p).
        """
        require_count("draws", draws, least=2)
        require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence)
        noise, source = Noise(self.sigma, self.cost), np.random.default_rng(self.seed)
        tried = [point + noise.draws(point, TRIED, source) for point in inputs[:_POINTS]]
        if tried:
            Predictor.of(self.model).check_apart(torch.cat(tried))
        labels, radii = [], []
        for point in inputs:
            first = self._labels(point, max(1, draws // 10))
            names, counts = first.unique(return_counts=True)
            label = int(names[counts.argmax()])
            hits = int((self._labels(point, draws) == label).sum())
            floor = clopper_pearson(hits, draws, 1 - confidence)
            labels.append(label if floor > 0.5 else ABSTAINED)
            # σΦ⁻¹(p), rounded down; 0 where p is not above ½, or hardly.
            claims = (
                -self.sigma * float(ndtri(1 - floor)) * (1 - margin) for margin in MARGINS if floor > 0.5
            )
            radii.append(first_proven(partial(gaussian_radius, self.sigma, floor), claims) or 0.0)
        return Radius(torch.tensor(labels), torch.tensor(radii, dtype=torch.float64), confidence)

    def _labels(self, point: Tensor, copies: int) -> Tensor:
        """Return (copies,) labels with fresh noise."""
        noise = Noise(self.sigma, self.cost).draws(point, copies, self._source)
        return Predictor.of(self.model).labels(point + noise)
