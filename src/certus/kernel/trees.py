"""Ensembles of decision trees: s(x) = b + Σ_t v_t(leaf of tree t that x reaches).

A row x has a number, a category (a code 0, 1, …) or a missing value (NaN) in each column. At a node a number
goes left if x_f ≤ threshold, a category if it is in the set of the node, a missing value as the node says.
Every row reaches one leaf of each tree, whatever the arrays contain, so boxes of leaves cover all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.kernel.passes import Refused


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trees as arrays of nodes, those of all trees in one list; children stand after their parent.

    Attributes:
        roots: (trees,) int64, the first node of each tree.
        feature: (nodes,) int64, the column that is compared; −1 at a leaf.
        threshold: (nodes,) float64; a number goes left if it is at most this.
        left, right: (nodes,) int64; −1 at a leaf.
        missing_left: (nodes,) bool.
        category_set: (nodes,) int64, the row of ``sets`` of a categorical comparison; −1 of a number's.
        sets: (sets, codes) bool, the codes that go left; a code beyond the last column goes right.
        value: (nodes, outputs) float64, of leaves.
        bias: (outputs,) float64, b.
        rounding: (outputs,) float64, at least the difference between s and what the library's arithmetic
            makes of it, at any row.
        columns: the number of columns of a row.
    """

    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    missing_left: Tensor
    category_set: Tensor
    sets: Tensor
    value: Tensor
    bias: Tensor
    rounding: Tensor
    columns: int

    def __post_init__(self) -> None:
        nodes, inner = torch.arange(len(self.feature)), self.feature >= 0
        children = torch.stack([self.left, self.right])[:, inner]
        fits = bool((children > nodes[inner]).all() and (children < len(nodes)).all())
        fits = (
            fits
            and bool((self.feature < self.columns).all())
            and bool((self.category_set < len(self.sets)).all())
        )
        fits = fits and bool((self.roots >= 0).all() and (self.roots < len(nodes)).all())
        numbers = (self.value[~inner], self.bias, self.rounding)
        if not (fits and all(bool(torch.isfinite(part).all()) for part in numbers)):
            raise Refused("an ensemble needs children after their parents, and finite values")
        if bool(torch.isnan(self.threshold).any()) or bool((self.rounding < 0).any()):
            raise Refused("thresholds must be numbers, and roundings at least 0")

    def leaves(self, rows: Tensor) -> Tensor:
        """(n, columns) rows → (n, trees) the leaf that each reaches."""
        at = self.roots.expand(len(rows), -1)
        # A path has at most as many nodes as the list.
        for _ in range(len(self.feature)):
            feature = self.feature[at]
            if not bool((feature >= 0).any()):
                break
            value = rows.gather(1, feature.clamp_min(0))
            left = torch.where(value.isnan(), self.missing_left[at], self._goes_left(value, at))
            child = torch.where(left, self.left[at], self.right[at])
            at = torch.where(feature >= 0, child, at)
        return at

    def _goes_left(self, value: Tensor, at: Tensor) -> Tensor:
        number = value <= self.threshold[at]
        if not len(self.sets):
            return number
        known = (value >= 0) & (value < self.sets.shape[1])
        code = torch.where(known, value, 0.0).nan_to_num().long()
        listed = self.sets[self.category_set[at].clamp_min(0), code] & known
        return torch.where(self.category_set[at] >= 0, listed, number)

    def scores(self, rows: Tensor) -> Tensor:
        """(n, outputs) s, in float64 and some order of summation."""
        return self.value[self.leaves(rows)].sum(1) + self.bias
