"""The noisy model in use: a vote of several draws, which may abstain, and a radius for each input."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from certus.costs import Cost, SquaredL2
from certus.errors import require, require_count, require_seed
from certus.rounding import MANY, down
from certus.smoothing.binomial import clopper_pearson_lower, normal_quantile_lower
from certus.smoothing.predictors import ABSTAINED, TRIED, Predictor
from certus.smoothing.sampling import Noise, vote_labels
from certus.smoothing.voting import VotingRule

_L2 = SquaredL2()
_POINTS = 16  # inputs near which a model is tried


@dataclass(frozen=True, eq=False)
class Radius:
    """Labels of the ideal vote, and how far they hold.

    Attributes:
        labels: (n,) codes, as ``Smoothed.predict`` gives them; where nothing could be shown, ``ABSTAINED``.
        radius: (n,) in the cost's norm: no input nearer than this gets another label of the ideal vote. Each
            holds with the confidence, by itself.
    """

    labels: Tensor
    radius: Tensor
    confidence: float


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A model with Gaussian noise on its inputs, which votes (Cohen, Rosenfeld and Kolter 2019).

    ``certus.certify_smoothed`` with the same sigma, votes and abstain certifies how often this very vote errs
    or abstains, under shift.

    Args:
        model: a torch module, an estimator with ``predict``, or a callable from arrays to labels or scores.
        sigma: of the noise, in the units of the cost's norm.
        votes: M, draws for each prediction.
        abstain: the level of the test against the runner-up; None never abstains but in ties.
        seed: of the noise. Every call draws fresh noise, from where the last call ended.

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
        VotingRule.of(self.votes, self.abstain)
        Noise(self.sigma, self.cost)
        Predictor.of(self.model)
        require_seed(self.seed)
        object.__setattr__(self, "_source", np.random.default_rng(self.seed))

    def predict(self, inputs: Tensor) -> Tensor:
        """(n, …) inputs → (n,) labels, ``Smoothed.ABSTAINED`` where the vote gives none.

        For an estimator with classes of its own, labels are their places in ``classes_``.
        """
        labels = torch.stack([self._labels(point, self.votes) for point in inputs])
        return vote_labels(labels, VotingRule.of(self.votes, self.abstain))

    def radius(self, inputs: Tensor, *, draws: int = 1000, confidence: float = 0.999) -> Radius:
        """How far each input can move before the ideal vote changes its label.

        A tenth of the draws names a label; the others bound its probability p from below (Clopper and
        Pearson). Where p > ½, the vote is that label within σΦ⁻¹(p).
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
            floor = clopper_pearson_lower(hits, draws, 1 - confidence)
            labels.append(label if floor > 0.5 else ABSTAINED)
            radii.append(down(self.sigma * normal_quantile_lower(floor), MANY))
        return Radius(torch.tensor(labels), torch.tensor(radii, dtype=torch.float64), confidence)

    def _labels(self, point: Tensor, copies: int) -> Tensor:
        """(copies,) labels at fresh noise."""
        noise = Noise(self.sigma, self.cost).draws(point, copies, self._source)
        return Predictor.of(self.model).labels(point + noise)
