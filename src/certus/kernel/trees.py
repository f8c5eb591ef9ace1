"""Ensembles of decision trees: s(x) = b + Σ_t v_t(leaf of tree t that x reaches).

A row x has a number, a category (a code 0, 1, …) or a missing value (NaN) in each column. At a node a number
goes left if x_f ≤ threshold, a category if it is in the set of the node, a missing value as the node says.
Every row reaches one leaf of each tree, whatever the arrays contain, so boxes of leaves cover all rows.

The cost of reaching a score is bounded tree by tree (``least_costs``): any multipliers are a proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus.kernel.passes import Refused
from certus.kernel.rounding import TENS, down, slack, up

_NUMBERS = 1 << 20  # in one tensor


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
        count, feature = len(self.feature), self.feature
        parts = self.threshold, self.left, self.right, self.missing_left, self.category_set, self.value
        shapes = self.value.shape[1:] == self.bias.shape == self.rounding.shape and self.sets.dim() == 2
        if not shapes or {len(part) for part in parts} != {count}:
            raise Refused("an ensemble needs all entries of each node, and of each output")
        inner = (feature >= 0).nonzero()[:, 0]
        children = torch.stack([self.left, self.right])[:, inner]
        fits = [
            children > inner,
            children < count,
            feature < self.columns,
            self.category_set < len(self.sets),
        ]
        fits += [self.roots >= 0, self.roots < count, ~torch.isnan(self.threshold), self.rounding >= 0]
        fits += [torch.isfinite(part) for part in (self.value[feature < 0], self.bias, self.rounding)]
        if not all(bool(part.all()) for part in fits):
            raise Refused("an ensemble needs children after their parents, and finite values")

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

    @cached_property
    def paths(self) -> Paths:
        """The leaves of all trees as boxes."""
        categorical = self.feature[self.category_set >= 0].unique()
        width = self.sets.shape[1] + 1 if len(categorical) else 1
        return self.boxes(everything(1, self.columns, categorical, width))

    def boxes(self, space: Paths) -> Paths:
        """The leaves within a box, by the paths to them, so that they cover it by construction."""
        node, count, categorical = self.roots, len(self.roots), space.categorical
        coded, width = self.category_set[self.feature >= 0] >= 0, space.codes.shape[2]
        if not torch.equal(torch.isin(self.feature[self.feature >= 0], categorical), coded) or (
            bool(coded.any()) and self.sets.shape[1] + 1 != width
        ):
            raise Refused("columns must be compared all as numbers or all as categories, of the same codes")
        tree = torch.arange(count)
        low, high, gaps, codes = (part.expand(count, *part.shape[1:]).clone() for part in space.parts[2:])
        ends: list[tuple[Tensor, ...]] = []
        # A path has at most as many nodes as the list.
        for _ in range(len(self.feature) + 1):
            leaf = self.feature[node] < 0
            ends.append(tuple(part[leaf] for part in (node, tree, low, high, gaps, codes)))
            node, tree, low, high, gaps, codes = (
                part[~leaf].repeat_interleave(2, 0) for part in (node, tree, low, high, gaps, codes)
            )
            if not len(node):
                break
            here, left = torch.arange(len(node)), torch.arange(len(node)) % 2 == 0
            column, number = self.feature[node], self.category_set[node] < 0
            edge = self.threshold[node]
            upper, lower = high[here, column], low[here, column]
            high[here, column] = torch.where(number & left, torch.minimum(upper, edge), upper)
            low[here, column] = torch.where(number & ~left, torch.maximum(lower, edge), lower)
            gaps[here, column] &= self.missing_left[node] == left
            if bool(coded.any()):
                place = torch.searchsorted(categorical, column).clamp_max(len(categorical) - 1)
                listed = torch.zeros(len(node), width, dtype=torch.bool)
                listed[:, :-1] = self.sets[self.category_set[node].clamp_min(0)]
                codes[here, place] &= number[:, None] | (listed == left[:, None])
            node = torch.where(left, self.left[node], self.right[node])
        return Paths(categorical, *(torch.cat(parts) for parts in zip(*ends, strict=True)))


@dataclass(frozen=True, eq=False)
class Paths:
    """Boxes of rows: in each column an interval (low, high] of numbers, or some codes, or a missing value.

    Attributes:
        categorical: the columns with codes; node, tree: (m,) where each path ends, and in which tree.
        low, high, gaps: (m, columns); gaps: whether a value may be missing.
        codes: (m, categorical, codes + 1) bool; the last stands for all other codes.
    """

    categorical: Tensor
    node: Tensor
    tree: Tensor
    low: Tensor
    high: Tensor
    gaps: Tensor
    codes: Tensor

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.node, self.tree, self.low, self.high, self.gaps, self.codes

    def __getitem__(self, index: Tensor) -> Paths:
        return Paths(self.categorical, *(part[index] for part in self.parts))

    @cached_property
    def entries(self) -> tuple[Tensor, ...]:
        """Restrictions of boxes to parts of columns: (E,) box, column, and place of (tree, column) in pairs;
        pairs, (pairs, 2); (E,) place among the different restrictions, and one entry of each of these."""
        bound = (self.low > -math.inf) | (self.high < math.inf) | ~self.gaps
        bound[:, self.categorical] |= ~self.codes.all(2)
        path, column = bound.nonzero(as_tuple=True)
        pairs, place = torch.stack([self.tree[path], column], 1).unique(dim=0, return_inverse=True)
        codes, coded = torch.ones(len(path), self.codes.shape[2]), torch.isin(column, self.categorical)
        codes[coded] = self.codes[path[coded], torch.searchsorted(self.categorical, column[coded])].float()
        sides = [part[path, column].double() for part in (self.low, self.high, self.gaps)]
        whole = torch.cat([torch.stack([column.double(), *sides], 1), codes.double()], 1)
        different, kind = whole.unique(dim=0, return_inverse=True)
        example = torch.zeros(len(different), dtype=torch.int64).scatter(0, kind, torch.arange(len(path)))
        return path, column, place, pairs, kind, example


def everything(count: int, columns: int, categorical: Tensor, width: int) -> Paths:
    """Boxes that hold all rows."""
    zeros, high = torch.zeros(count).long(), torch.full((count, columns), math.inf, dtype=torch.float64)
    codes = torch.ones(count, len(categorical), width, dtype=torch.bool)
    return Paths(categorical, zeros, zeros, -high, high, torch.ones(count, columns, dtype=torch.bool), codes)


@dataclass(frozen=True, eq=False)
class Prices:
    """c(x, x₀) = Σ_f c_f or, in the sup-norm, max_f c_f: p_f(x_f − x₀_f)² for a number, π_f for another value
    of a discrete column, the price of a gap for a value that goes missing, or is filled, whatever it becomes.

    Attributes:
        move: (columns,) p_f or π_f, and gap: (columns,); ∞ where a column is frozen.
        discrete: (columns,) bool; codes are discrete. largest: whether the maximum counts.
        label_price: of replacing a label by another one.
    """

    move: Tensor
    gap: Tensor
    discrete: Tensor
    largest: bool = False
    label_price: float = math.inf

    def __post_init__(self) -> None:
        # At a price of 0 rows move within ρ = 0, where statements are about the sample alone.
        if not bool((torch.stack([self.move, self.gap]) > 0).all()) or not self.label_price > 0:
            raise Refused("prices must be positive")

    def total(self, prices: Tensor) -> Tensor:
        """(…) cost c of a row from the (…, columns) costs c_f of its columns, as computed."""
        return prices.amax(-1) if self.largest else prices.sum(-1)

    def value(self, points: Tensor, origins: Tensor) -> Tensor:
        """(n,) c, rounded up."""
        moved = (points != origins) & ~(points.isnan() & origins.isnan())
        square = (self.move.sqrt() * (points - origins)) ** 2
        price = torch.where(self.discrete, self.move, square)
        price = torch.where(points.isnan() | origins.isnan(), self.gap, price)
        return up(self.total(torch.where(moved, price, 0.0)), slack(len(self.move) + 8))

    def least(self, row: Tensor, boxes: Paths, path: Tensor, column: Tensor, other: Paths) -> Tensor:
        """(boxes of ``other``, E) the least c_f in the closure of a box of each, as computed, for (E,) paths
        and columns of ``boxes``; ∞ where they do not meet."""
        x, move, gap = row[column], self.move[column], self.gap[column]
        low = torch.maximum(boxes.low[path, column], other.low[:, column])
        high = torch.minimum(boxes.high[path, column], other.high[:, column])
        away = torch.maximum(low - x, x - high).clamp_min(0)
        price = torch.where(away > 0, (move.sqrt() * away) ** 2, 0.0)
        price = torch.where(self.discrete[column], torch.where((low < x) & (x <= high), 0.0, move), price)
        possible = low < high
        coded = torch.isin(column, boxes.categorical)
        if bool(coded.any()):
            place = torch.searchsorted(boxes.categorical, column[coded])
            both = boxes.codes[path[coded], place] & other.codes[:, place]
            width, code = both.shape[-1], x[coded].nan_to_num(-1.0)
            code = torch.where((code >= 0) & (code < width - 1), code, width - 1.0).long()
            own = both.gather(2, code.expand(len(both), -1).unsqueeze(2)).squeeze(2)
            price[:, coded], possible[:, coded] = torch.where(own, 0.0, move[coded]), both.any(2)
        missing = x.isnan()
        price = torch.where(possible, torch.where(missing, gap, price), math.inf)
        empty = boxes.gaps[path, column] & other.gaps[:, column]
        return torch.where(empty, torch.minimum(price, torch.where(missing, 0.0, gap)), price)


@dataclass(frozen=True, eq=False)
class Proof:
    """Multipliers for a partition of all rows, which is the one tree of an ensemble.

    Attributes:
        slope: (terminals,) λ, and weight: (terminals, pairs) w of the pairs of ``Paths.entries``; a terminal
            is a leaf of the partition, in the order of its nodes.
    """

    partition: Ensemble
    slope: Tensor
    weight: Tensor

    def at(self, boxes: Paths, pairs: Tensor, prices: Prices) -> tuple[Tensor, Tensor, Tensor]:
        """(boxes,) λ, (boxes, pairs) w and (boxes, columns) u, which must be those of the theorem."""
        columns, terminal = self.partition.columns, self.partition.feature < 0
        count, weight = int(terminal.sum()), self.weight.double()
        if self.slope.shape != (count,) or weight.shape != (count, len(pairs)):
            raise Refused("a proof needs a slope and weights for each terminal")
        used = torch.zeros(count, columns, dtype=torch.float64).index_add(1, pairs[:, 1], weight)
        used = up(used, slack(len(pairs)))
        total = up(used.sum(1), slack(columns)) if prices.largest else used
        fits = [self.slope >= 0, torch.isfinite(self.slope), weight >= 0, total <= 1]
        if len(self.partition.roots) != 1 or not all(bool(part.all()) for part in fits):
            raise Refused("multipliers must be at least 0, and weights sum to a share of at most 1")
        place = (terminal.cumsum(0) - 1)[boxes.node]
        share = used if prices.largest else torch.ones_like(used)
        return self.slope[place], weight[place], share[place]


def least_costs(
    ensemble: Ensemble, prices: Prices, row: Tensor, score: tuple[Tensor, float], levels: Tensor, proof: Proof
) -> Tensor:
    """(J,) lower bounds on D(a) = inf {c(x, row) : S(x) ≥ a}, S = offset + ⟨direction, s⟩, at (J,) levels a.

    *Theorem.* Let λ ≥ 0, w ≥ 0 and Σ_t w_tf ≤ u_f, with u_f = 1, or Σ_f u_f ≤ 1 in the sup-norm, where
    max_f c_f ≥ Σ_f u_f c_f. In a box N every x with S(x) ≥ a has

        c(x) ≥ Σ_f u_f κ_f(N) + λ(a − offset − b) + Σ_t min_l [Σ_f w_tf (κ_f(N ∩ B_l) − κ_f(N)) − λv_l],

    κ_f(B) the least c_f of a row in B, over leaves l with κ(N ∩ B_l) < ∞: x is in one leaf of each tree. Also
    c(x) ≥ κ(N), and no x is there if a is above the sum of the largest v_l. Boxes of the partition cover all
    rows, so the least of them is the bound.
    """
    direction, offset = score
    leaves, columns, trees = ensemble.paths, ensemble.columns, len(ensemble.roots)
    path, column, place, pairs, kind, example = leaves.entries
    path_of, column_of = path[example], column[example]
    space = everything(1, columns, leaves.categorical, leaves.codes.shape[2])
    boxes = proof.partition.boxes(space)
    slopes, weights, shares = proof.at(boxes, pairs, prices)
    value, size = ensemble.value[leaves.node] @ direction, ensemble.value[leaves.node].abs() @ direction.abs()
    start = float(ensemble.bias @ direction) + offset
    sizes = float(ensemble.bias.abs() @ direction.abs()) + abs(offset)
    lost, tiny = slack(trees + columns + len(direction)), torch.finfo(torch.float64).tiny
    every, bounds = torch.arange(columns), []
    # Boxes in parts, to bound the memory of one table.
    for part in torch.arange(len(boxes.node)).split(max(1, _NUMBERS // (len(path) + 1))):
        some, steep = boxes[part], slopes[part]
        own = prices.least(row, space, torch.zeros_like(every), every, some)
        near = prices.least(row, leaves, path_of, column_of, some)
        gain = (down(near, TENS) - up(own[:, column_of], TENS) - tiny).clamp_min(0)
        away = (near == math.inf).double()[:, kind]
        gain = torch.where(away > 0, 0.0, weights[part][:, place] * gain[:, kind])
        zeros = torch.zeros(len(part), len(leaves.node), dtype=torch.float64)
        gains, met = zeros.index_add(1, path, gain), zeros.index_add(1, path, away) == 0
        least = gains - steep[:, None] * value - lost * (gains + steep[:, None] * size)
        # An overflow proves nothing; a box without a leaf of some tree has no row.
        least = torch.where(met, torch.where(torch.isfinite(least), least, -math.inf), math.inf)
        best = per_tree(least, leaves.tree, trees, "amin")
        most = per_tree(torch.where(met, value + lost * size, -math.inf), leaves.tree, trees, "amax")
        reach = most.sum(1) + start + lost * (most.abs().sum(1) + sizes)
        share = shares[part]
        base = torch.where(share > 0, share * down(own, TENS), 0.0).sum(1)
        terms = base + best.abs().sum(1) + steep * sizes
        line = base + best.sum(1) - steep * start - lost * terms - tiny
        bound = line[:, None] + steep[:, None] * levels
        bound = bound - slack(4) * (line.abs()[:, None] + steep[:, None] * levels.abs())
        bound = torch.where(torch.isfinite(bound), bound, -math.inf)
        bound = torch.maximum(bound, down(prices.total(own), TENS + slack(columns))[:, None])
        empty = (best == math.inf).any(1) | (own == math.inf).any(1)
        bounds.append(torch.where(empty[:, None] | (levels > reach[:, None]), math.inf, bound).amin(0))
    return torch.stack(bounds).amin(0)


def per_tree(values: Tensor, tree: Tensor, trees: int, reduce: str) -> Tensor:
    """(m, leaves) → (m, trees) the least or largest of each tree."""
    start = torch.full((len(values), trees), math.inf if reduce == "amin" else -math.inf, dtype=torch.float64)
    return start.scatter_reduce(1, tree.expand_as(values), values, reduce)
