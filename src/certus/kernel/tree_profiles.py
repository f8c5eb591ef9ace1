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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.evidence import Result, mark
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, HUNDREDS, MANY, SOME, slack, up
from certus.kernel.rules import DualBounds, Rule, SampleBounds, over_labels
from certus.kernel.trees import Ensemble, Prices, Proof, least_costs, per_tree

SPLITS = ("feature", "threshold", "left", "right", "missing_left", "category_set")
"""The entries of the nodes of a stored partition."""
_AT_ONCE = 64
_NUMBERS = 1 << 19  # in one tensor


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
        fits = fits and bool(self.cost.discrete[self.ensemble.paths.categorical].all())
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
        """(n, 2·columns) the rows with 0 for NaN, and flags of NaN: finite numbers that identify a row."""
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
    def start(self) -> Tensor:
        """(n, scores) the scores of the rows, rounded up."""
        (directions, offsets), values = self.scores, self.ensemble.value[self.ensemble.leaves(self.rows)]
        sizes = torch.einsum("nko,no->nk", directions.abs(), values.abs().sum(1) + self.ensemble.bias.abs())
        exact = torch.einsum("nko,no->nk", directions, values.sum(1) + self.ensemble.bias) + offsets
        return exact + self._slack * (sizes + offsets.abs())

    @cached_property
    def top(self) -> Tensor:
        """(n, scores) at least the scores of all rows: those of the largest leaf of each tree."""
        (directions, offsets), ensemble = self.scores, self.ensemble
        different, place = directions.flatten(0, 1).unique(dim=0, return_inverse=True)
        paths, tops = ensemble.paths, []
        for part in different.split(_AT_ONCE):
            each = part @ ensemble.value[paths.node].mT, part.abs() @ ensemble.value[paths.node].abs().mT
            most, sizes = (per_tree(one, paths.tree, len(ensemble.roots), "amax").sum(1) for one in each)
            sizes = sizes + part.abs() @ ensemble.bias.abs()
            tops.append(torch.stack([most + part @ ensemble.bias + self._slack * sizes, self._slack * sizes]))
        top, raised = torch.cat(tops, 1)[:, place].reshape(2, *offsets.shape)
        return torch.maximum(top + offsets + self._slack * offsets.abs() + raised, self.start)

    @property
    def _slack(self) -> float:
        return slack(len(self.ensemble.roots) + 2 * len(self.ensemble.bias) + 8)

    def levels(self, count: int) -> Tensor:
        """Return (n, scores, count) levels between the scores of the rows and the largest scores."""
        steps = torch.arange(count, dtype=torch.float64) / count
        return self.start[:, :, None] + (self.top - self.start)[:, :, None] * steps

    @property
    def predicts(self) -> bool:
        """Whether all labels are those of the largest scores, as far as rounding allows."""
        return bool((self.start <= 2 * self.lost + MANY)[:, : self.errors].all())

    def values(self, scores: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        """(m, scores, …) of some rows → (m, …) at least H, of scores that the library may round up by r."""
        lost = self.lost[rows].reshape(*scores.shape[:2], *([1] * (scores.dim() - 2)))
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

    def raise_by(self, row: int, score: int, proof: Proof) -> Tensor:
        """Raise the costs of one row and score to those that a proof shows: (J + 1,), the last at −r."""
        problem, (directions, offsets) = self.problem, self.problem.scores
        if not (0 <= row < len(offsets) and 0 <= score < offsets.shape[1]):
            raise Refused(f"there must be a row {row} with a score {score}")
        levels = torch.cat([self.levels[row, score], -problem.lost[row, score : score + 1]])
        about = directions[row, score], float(offsets[row, score])
        costs = least_costs(problem.ensemble, problem.cost, problem.rows[row], about, levels, proof)
        self.costs[row, score] = torch.maximum(self.costs[row, score], costs[:-1])
        if score < problem.errors:
            self.error_costs[row, score] = torch.maximum(self.error_costs[row, score], costs[-1])
        return costs

    def samples(self, weights: Tensor | None = None) -> SampleBounds:
        """Bounds at the rows themselves; (n,) weights of their labels."""
        self._require_mark(weights)
        loss = self.problem.values(self.problem.start)
        loss = loss if weights is None else up(weights * loss, FEW)
        price = self.problem.cost.label_price
        costs = self.error_costs.amin(1).clamp_max(price) if self.problem.errors else None
        bounds = SampleBounds(loss, costs, 1.0, self.assumptions, self._traits(weights))
        return mark(bounds.by_class(self.problem, self.class_costs))

    def _traits(self, weights: Tensor | None) -> Tensor:
        """(n, 3) losses, sums of the rows and of prices, by which bounds of one problem are matched."""
        loss, cost = self.problem.values(self.problem.start), self.problem.cost
        prices = (cost.move + cost.gap).nan_to_num(posinf=0.0).sum().expand_as(loss)
        loss = loss if weights is None else weights * loss
        return torch.stack([loss, self.problem.inputs.sum(1), prices], 1)

    @property
    def class_costs(self) -> Tensor | None:
        """(n, classes) costs of errors by what is predicted, ∞ for the label itself; None without classes."""
        if not self.problem.errors:
            return None
        own = torch.arange(self.problem.errors + 1) == self.problem.targets[:, None]
        return torch.full(own.shape, math.inf).double().masked_scatter(~own, self.error_costs)

    def dual(
        self, gammas: Sequence[float], weights: Tensor | None = None, clip: float | None = None
    ) -> list[DualBounds]:
        """φ̄_γ by the theorem at each γ, of min(wℓ, B) for (n,) weights w of the rows' labels and a clip B."""
        self._require_mark(weights)
        if not all(0 < gamma < math.inf for gamma in gammas) or not (clip is None or clip > 0):
            raise Refused(f"each gamma must be positive and finite, and a clip positive; got {gammas}")
        count, rule = len(self.levels), torch.full((len(self.levels),), int(Rule.ENSEMBLE))
        bounds = torch.empty(len(gammas), count, dtype=torch.float64)
        for part in torch.arange(count).split(max(1, _NUMBERS // (self.costs[0].numel() + 1))):
            spent, losses = self.spent(part)
            losses = losses if weights is None else up(weights[part, None] * losses, FEW)
            losses = losses if clip is None else losses.clamp_max(clip)
            for place, gamma in enumerate(gammas):
                price = gamma * spent
                bound = losses - price + SOME * price + FEW * losses
                bounds[place, part] = torch.where(spent < math.inf, bound, -math.inf).amax(1)
        bounds = bounds if clip is None else bounds.clamp_max(clip)
        about = rule, clip, self.assumptions, self.problem, self._traits(weights)
        return [mark(DualBounds(gamma, own, *about)) for gamma, own in zip(gammas, bounds, strict=True)]

    def spent(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """(rows, 1 + scores·J) the costs c of the theorem, and H(Ū(c))."""
        costs = self.costs[part].cummax(2).values
        spent = torch.cat([torch.zeros_like(costs[:, 0, :1]), costs.flatten(1)], 1)
        every = spent[:, None].expand(-1, costs.shape[1], -1).contiguous()
        tops = torch.cat([self.levels[part], self.problem.top[part, :, None]], 2)
        scores = tops.gather(2, torch.searchsorted(costs, every, right=True))
        return spent, self.problem.values(scores, part)

    def _require_mark(self, weights: Tensor | None) -> None:
        if not self.marked or (weights is not None and not bool(((weights > 0) & weights.isfinite()).all())):
            raise Refused("profiles of the kernel are needed, and positive weights of labels")


def proven_bounds(
    problem: TreeProblem,
    stored: Mapping[str, Tensor],
    gammas: Sequence[float],
    clip: float | None,
    by_class: Sequence[float] | None,
) -> list[tuple[SampleBounds, list[DualBounds]]]:
    """Bounds at all rows, and φ̄_γ at each γ, from stored proofs: from those of fixed searches, then from all.

    Args:
        stored: ``proofs``, (P, 6): label, counted from the row's own; row; score; whether its search was
            fixed; and the numbers of nodes and of sets of the partition; ``levels``, (1,) the number of
            levels; and one behind the other the entries of partitions (``Ensemble``) and ``Proof``.
    """
    classes = (problem.classes or 1) if problem.cost.label_price < math.inf else 1
    others = [replace(problem, targets=(problem.targets + shift) % classes) for shift in range(1, classes)]
    labels = [problem, *others]
    profiles = [Profiles.trivial(each, each.levels(int(stored["levels"][0]))) for each in labels]
    prices = None if by_class is None else torch.tensor(by_class, dtype=torch.float64)
    weights = [None if prices is None else prices[each.targets] for each in labels]
    proofs, bounds = list(_proofs(problem.ensemble, stored)), []
    for fixed in (1, 0):
        for (label, row, score, early), proof in proofs:
            if early == fixed:
                profiles[label].raise_by(row, score, proof)
        duals = [each.dual(gammas, weight, clip) for each, weight in zip(profiles, weights, strict=True)]
        whole = [over_labels(own, rest) if rest else own for own, *rest in zip(*duals, strict=True)]
        bounds.append((profiles[0].samples(weights[0]), whole))
    return bounds


def _proofs(ensemble: Ensemble, stored: Mapping[str, Tensor]) -> Iterator[tuple[list[int], Proof]]:
    at, one, zeros = [0, 0, 0], torch.zeros(1).long(), torch.zeros(1, dtype=torch.float64)
    for *about, nodes, sets in stored["proofs"].tolist():
        part = slice(at[0], at[0] + nodes)
        entries = {name: stored[name][part] for name in SPLITS}
        terminals = slice(at[1], at[1] + int((entries["feature"] < 0).sum()))
        listed, value = stored["sets"][at[2] : at[2] + sets], torch.zeros(nodes, 1, dtype=torch.float64)
        partition = Ensemble(
            roots=one,
            sets=listed,
            value=value,
            bias=zeros,
            rounding=zeros,
            columns=ensemble.columns,
            **entries,
        )
        yield about, Proof(partition, stored["slope"][terminals], stored["weight"][terminals])
        at = [part.stop, terminals.stop, at[2] + sets]
