"""Losses and errors of tree ensembles under shift, from the costs at which scores are reached.

A loss is ℓ = H(S_1, …, S_m), H nondecreasing in scores S_k = offset + ⟨direction, s⟩ of the label or target:

| loss | scores | H |
|---|---|---|
| softmax | s_k − s_y for k ≠ y; of one output −s or s | log(1 + Σ_k exp S_k) |
| probabilities | 1 − s_y; errors by s_k − s_y | −log(1 − S), clipped |
| squared, absolute | s − y and y − s | max(S, 0)², max(S, 0) |

*Theorem.* Let D̲_k be nondecreasing lower bounds on D_k(a) = inf {c : S_k ≥ a} at levels a_1 ≤ … ≤ a_J, and
a_{J+1} ≥ S_k everywhere. At cost c, S_k ≤ Ū_k(c) = a_{j+1}, j the number of levels with D̲_k(a_j) ≤ c. So

    sup_x wℓ − γc ≤ max {w·H(Ū(c)) − γc : c = 0 or one of all D̲_k(a_j)},

since Ū is constant between these c. An error, ties included, has S_k ≥ −r_k for some k, r_k the rounding of
the library's scores; and its losses are those of scores that are larger by r_k at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.evidence import Result, mark
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, HUNDREDS, SOME, slack, up
from certus.kernel.rules import DualBounds, Rule, SampleBounds
from certus.kernel.trees import Ensemble, Prices, Proof, least_costs, per_tree


class TreeLoss(StrEnum):
    """The loss of an ensemble's scores."""

    SOFTMAX = "softmax"
    PROBABILITIES = "probabilities"
    SQUARED = "squared"
    ABSOLUTE = "absolute"


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """The loss of an ensemble at n rows.

    Attributes:
        rows: (n, columns) float64, NaN for missing values; targets: (n,) labels, or float64 numbers.
    """

    ensemble: Ensemble
    cost: Prices
    loss: TreeLoss
    rows: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        count, targets, outputs = len(self.rows), self.targets, len(self.ensemble.bias)
        fits = self.rows.shape == (count, self.ensemble.columns) and self.rows.dtype == torch.float64
        fits = fits and targets.shape == (count,) and len(self.cost.move) == self.ensemble.columns
        if self.classes is None:
            fits = fits and outputs == 1 and targets.dtype == torch.float64
        else:
            fits = fits and targets.dtype == torch.int64 and (outputs > 1 or self.loss is TreeLoss.SOFTMAX)
            fits = fits and bool(((targets >= 0) & (targets < self.classes)).all())
        if not fits or bool(self.rows.isinf().any()) or not bool(torch.isfinite(targets).all()):
            raise Refused("rows must have the ensemble's columns, without ∞, and a label or number each")

    @property
    def classes(self) -> int | None:
        """Number of labels; None for a regression."""
        if self.loss in (TreeLoss.SQUARED, TreeLoss.ABSOLUTE):
            return None
        return max(2, len(self.ensemble.bias))

    @property
    def inputs(self) -> Tensor:
        """(n, 2·columns) the rows without NaN, for comparisons."""
        return torch.cat([self.rows.nan_to_num(0.0), self.rows.isnan().double()], 1)

    @property
    def errors(self) -> int:
        """The number of scores, the first ones, by which a row can be an error."""
        return 0 if self.classes is None else self.classes - 1

    @cached_property
    def scores(self) -> tuple[Tensor, Tensor]:
        """(n, scores, outputs) directions and (n, scores) offsets."""
        count, outputs = len(self.rows), len(self.ensemble.bias)
        one = torch.eye(outputs, dtype=torch.float64)
        if self.classes is None:
            both = torch.cat([one, -one]).expand(count, 2, 1)
            return both, torch.stack([-self.targets, self.targets], 1)
        if outputs == 1:
            signs = 1.0 - 2.0 * self.targets.double()
            return signs.reshape(-1, 1, 1), torch.zeros(count, 1, dtype=torch.float64)
        others = torch.arange(outputs).expand(count, -1)
        others = others[others != self.targets[:, None]].reshape(count, -1)
        directions = one[others] - one[self.targets][:, None]
        offsets = torch.zeros(count, self.errors, dtype=torch.float64)
        if self.loss is TreeLoss.PROBABILITIES:
            directions = torch.cat([directions, -one[self.targets][:, None]], 1)
            offsets = torch.cat([offsets, torch.ones(count, 1, dtype=torch.float64)], 1)
        return directions, offsets

    @cached_property
    def lost(self) -> Tensor:
        """(n, scores) r, rounded up."""
        return up(self.scores[0].abs() @ self.ensemble.rounding, slack(len(self.ensemble.bias)))

    @cached_property
    def at_rows(self) -> tuple[Tensor, Tensor]:
        """(n, scores) the scores of the rows, and of the largest leaves of all trees; rounded up."""
        ensemble, (directions, offsets) = self.ensemble, self.scores
        reached, paths = ensemble.value[ensemble.leaves(self.rows)], ensemble.paths
        largest = per_tree(ensemble.value[paths.node].abs().mT, paths.tree, len(ensemble.roots), "amax").sum(
            1
        )
        sizes = directions.abs() @ (largest + ensemble.bias.abs()) + offsets.abs()
        exact = torch.einsum("nko,no->nk", directions, reached.sum(1) + ensemble.bias) + offsets
        raised = sizes * slack(len(ensemble.roots) + len(ensemble.bias) + 8)
        return exact + raised, up(sizes, slack(len(ensemble.roots) + 8))

    def values(self, scores: Tensor) -> Tensor:
        """(n, scores, …) → (n, …) at least H, of scores that the library may round up by r."""
        lost = self.lost.reshape(*self.lost.shape, *([1] * (scores.dim() - 2)))
        scores = (scores + lost) + FEW * (scores.abs() + lost)
        if self.loss is TreeLoss.SOFTMAX:
            values = torch.logsumexp(torch.cat([torch.zeros_like(scores[:, :1]), scores], 1), 1)
            return values + HUNDREDS * (1 + values)
        if self.loss is TreeLoss.PROBABILITIES:
            left = 1 - scores[:, -1] - FEW * (1 + scores[:, -1].abs())
            values = -left.clamp_min(0).log()
            return (values + HUNDREDS * (1 + values.abs())).clamp_min(0)
        worst = scores.amax(1).clamp_min(0)
        return up(worst**2, FEW) if self.loss is TreeLoss.SQUARED else worst


@dataclass(frozen=True, eq=False)
class Profiles(Result):
    """Lower bounds on the costs at which the scores of n rows reach levels; made by ``Profiles.trivial``.

    Attributes:
        levels: (n, scores, J) a, nondecreasing; costs: (n, scores, J) D̲.
        error_costs: (n, scores that can be errors) the same at −r.
    """

    problem: TreeProblem
    levels: Tensor
    costs: Tensor
    error_costs: Tensor
    assumptions: tuple[str, ...] = ()

    @staticmethod
    def trivial(problem: TreeProblem, levels: Tensor) -> Profiles:
        """Costs of 0, to be raised by proofs."""
        if levels.shape[:2] != problem.scores[1].shape or not bool((levels.diff(dim=2) >= 0).all()):
            raise Refused("levels must not decrease, for each row and score")
        errors = torch.zeros(len(levels), problem.errors, dtype=torch.float64)
        return mark(Profiles(problem, levels.double(), torch.zeros_like(levels.double()), errors))

    def raise_by(self, row: int, score: int, proof: Proof) -> None:
        """Raise the costs of one row and score to those that a proof shows."""
        problem, (directions, offsets) = self.problem, self.problem.scores
        levels = torch.cat([self.levels[row, score], -problem.lost[row, score : score + 1]])
        about = directions[row, score], float(offsets[row, score])
        costs = least_costs(problem.ensemble, problem.cost, problem.rows[row], about, levels, proof)
        self.costs[row, score] = torch.maximum(self.costs[row, score], costs[:-1])
        if score < problem.errors:
            self.error_costs[row, score] = torch.maximum(self.error_costs[row, score], costs[-1])

    def samples(self, weights: Tensor | None = None) -> SampleBounds:
        """Bounds at the rows themselves; (n,) weights of their labels."""
        self._require_mark(weights)
        loss = self.problem.values(self.problem.at_rows[0])
        loss = loss if weights is None else up(weights * loss, FEW)
        price = self.problem.cost.label_price
        costs = self.error_costs.amin(1).clamp_max(price) if self.problem.errors else None
        return mark(SampleBounds(loss, costs, 1.0, self.assumptions))

    def dual(self, gamma: float, weights: Tensor | None = None, clip: float | None = None) -> DualBounds:
        """φ̄_γ by the theorem, of min(wℓ, B) for (n,) weights w of the rows' labels and a clip B."""
        self._require_mark(weights)
        if not 0 < gamma < math.inf or not (clip is None or clip > 0):
            raise Refused(f"gamma must be positive and finite, and a clip positive; got gamma = {gamma}")
        costs = self.costs.cummax(2).values
        tops = torch.cat([self.levels, self.problem.at_rows[1][:, :, None]], 2)
        spent = torch.cat([torch.zeros_like(costs[:, 0, :1]), costs.flatten(1)], 1)
        below = torch.searchsorted(
            costs, spent[:, None].expand(-1, costs.shape[1], -1).contiguous(), right=True
        )
        losses = self.problem.values(tops.gather(2, below))
        losses = losses if weights is None else up(weights[:, None] * losses, FEW)
        losses = losses if clip is None else losses.clamp_max(clip)
        finite = torch.where(spent < math.inf, spent, 0.0)
        bound = losses - gamma * finite + SOME * gamma * finite + FEW * losses
        bound = torch.where(spent < math.inf, bound, -math.inf).amax(1)
        bound = bound if clip is None else bound.clamp_max(clip)
        rule = torch.full((len(bound),), int(Rule.ENSEMBLE))
        problem = self.problem
        return mark(DualBounds(gamma, bound, rule, clip, self.assumptions, problem))

    def _require_mark(self, weights: Tensor | None) -> None:
        if not self.marked or (weights is not None and not bool(((weights > 0) & weights.isfinite()).all())):
            raise Refused("profiles of the kernel are needed, and positive weights of labels")
