"""Search for multipliers and partitions that bound costs of scores of trees, and for rows that reach them.

Nothing here proves anything: ``certus.kernel.trees.least_costs`` evaluates each proposal with outward
rounding. In one box the dual of the decomposition over trees is maximised by projected subgradients with
Polyak's step: for given weights w the best slope λ by bisection, then a step of w towards the columns in
which the trees disagree, and a projection on the simplex of each column (in the sup-norm, of all). Boxes are
split best first, on the column in which trees disagree most, until the least bound is within a factor of the
cost that was attained, or the budget of boxes is used up. A box that cannot be split remains, with its bound.
Rows are moved greedily, by the threshold with the largest gain of the score for its price.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from certus.certificates.flat_trees import Array, ascend, box_prices, flat_trees, move_greedily, score_of
from certus.kernel.rounding import slack
from certus.kernel.trees import Ensemble, Prices, Proof

_TRIED = 3  # columns that are tried before a box is split
_GREEDY = 32  # moves of a row
_EARLY = 60  # boxes whose leaves are tried as a row


class Question(NamedTuple):
    """A search for the least cost at which a row reaches a level of a score.

    Attributes:
        row: (columns,); score: direction and offset.
        boxes: of the partition, at most; attained: a cost from which on nothing is to be proven.
        width: the ratio of the attained cost to the bound at which the search ends.
        greedy: the level that a greedy search of rows is to reach first; None for none.
    """

    row: Tensor
    score: tuple[Tensor, float]
    level: float
    boxes: int
    attained: float = math.inf
    width: float = 1.0
    greedy: float | None = None


class Answer(NamedTuple):
    """A proof, and (m, columns) rows that were met: ``reached`` the level of the greedy search, or ``met``
    the level at a cost that is smaller still; ∞ if there is none."""

    proof: Proof
    rows: Tensor
    reached: float
    met: float


class TreeSearch:
    """Proposals for one ensemble and one cost."""

    def __init__(self, ensemble: Ensemble, prices: Prices) -> None:
        self.ensemble, self.prices = ensemble, prices
        self.flat, self.nodes = flat_trees(ensemble, prices)

    def answer(self, question: Question) -> Answer:
        """Search rows greedily, then a partition with multipliers."""
        row, score, level, boxes, attained, width, greedy = question
        rows, reached = row[None][:0], math.inf
        if greedy is not None:
            rows, reached = self.rows(row, score, greedy)
        proof, _, (point, met) = self.prove(
            row, score, level, boxes=boxes, attained=min(attained, reached), width=width
        )
        return Answer(proof, torch.cat([rows, point[None]]) if met < math.inf else rows, reached, met)

    def rows(self, row: Tensor, score: tuple[Tensor, float], level: float) -> tuple[Tensor, float]:
        """(m, columns) rows on the way to a level of a score, of which the last may reach it, at a cost."""
        origin = row.numpy().astype(np.float64)
        values = (self.ensemble.value @ score[0]).numpy()
        start = float(self.ensemble.bias @ score[0]) + score[1]
        stops = np.empty((_GREEDY, len(origin)))
        count, cost = move_greedily(self.flat, values, origin, origin, level - start, _GREEDY, stops)
        return torch.from_numpy(stops[:count].copy()), float(cost)

    def prove(
        self,
        row: Tensor,
        score: tuple[Tensor, float],
        level: float,
        *,
        boxes: int,
        attained: float = math.inf,
        width: float = 1.0,
        steps: tuple[int, int] = (120, 16),
    ) -> tuple[Proof, float, tuple[Tensor, float]]:
        """A partition with multipliers, the bound that they roughly prove, and a row that was met with its
        cost, ∞ if there is none."""
        branching = _Branching(self, row.numpy().astype(np.float64), score, level, boxes, attained)
        branching.run(width, steps)
        met = branching.incumbent if branching.incumbent < attained else math.inf
        return branching.proof(), branching.bound, (torch.from_numpy(branching.met), float(met))


class _Branching:
    """Best-first branch and bound for one row and level; arrays have an entry for each box."""

    def __init__(
        self,
        search: TreeSearch,
        x: Array,
        score: tuple[Tensor, float],
        level: float,
        boxes: int,
        attained: float,
    ) -> None:
        ensemble, t = search.ensemble, search.flat
        self.ensemble, self.t, self.x = ensemble, t, x
        self.leaf_value = (ensemble.value @ score[0]).numpy()
        self.v = self.leaf_value[search.nodes]
        self.need = level - float(ensemble.bias @ score[0]) - score[1]
        width = ensemble.paths.codes.shape[2]
        self.own = np.where(t.place >= 0, width - 1, -1)
        known = (t.place >= 0) & (x >= 0) & (x < width - 1)
        self.own[known] = x[known].astype(np.int64)
        size, columns, pairs = 2 * boxes + 1, ensemble.columns, len(t.pair_column)
        self.low, self.high = np.full((size, columns), -np.inf), np.full((size, columns), np.inf)
        self.gaps = np.ones((size, columns), dtype=np.bool_)
        self.codes = np.ones((size, max(1, len(ensemble.paths.categorical)), width), dtype=np.bool_)
        self.slope, self.bounds = np.zeros(size), np.full(size, np.inf)
        self.split = np.full((size, 2), -1)
        self.w = np.zeros((size, pairs))
        self.w[0] = 1 / np.bincount(t.pair_group, minlength=columns + 1)[t.pair_group]
        self.count, self.incumbent, self.met = 1, attained, x.copy()
        self.base, self.inc = np.zeros(columns), np.zeros(len(t.entry_column))
        self.alive = np.zeros(len(self.v), dtype=np.bool_)
        self.chosen = np.zeros(len(t.roots), dtype=np.int64)
        self.stops = np.empty((_GREEDY, columns))

    @property
    def bound(self) -> float:
        """The least bound of a box that is not split."""
        return float(self.bounds[: self.count][self.split[: self.count, 0] < 0].min())

    def run(self, width: float, steps: tuple[int, int]) -> None:
        """Split boxes until the bound is within a factor of the cost that was attained, or none is left."""
        if not self.expand(0):
            return
        self.bounds[0] = self.improve(0, self.goal(0.5), steps[0])
        while self.count + 2 <= len(self.bounds):
            leaf = self.split[: self.count, 0] < 0
            at = int(np.where(leaf, self.bounds[: self.count], np.inf).argmin())
            least = float(self.bounds[at])
            if not leaf[at] or least == np.inf or least * width >= self.incumbent:
                return
            self.expand(at)
            self.improve(at, self.goal(least), 2)
            if self.count < _EARLY:
                self.descend(at)
            entry = self.best_split(at, least)
            # A box that cannot be split stays the least, and ends the search.
            if entry < 0:
                return
            self.split[at] = self.count, entry
            for n in (self.count, self.count + 1):
                self.child(at, n, entry, n - self.count)
                if self.expand(n) and self.reach() >= -1e-9:
                    self.bounds[n] = max(self.improve(n, self.goal(least), steps[1]), least)
                    self.nearest(n)
            self.count += 2

    def goal(self, least: float) -> float:
        """A cost that bounds ascend towards."""
        return self.incumbent if self.incumbent < np.inf else 2 * least + 1e-9

    def expand(self, n: int) -> bool:
        box = self.low[n], self.high[n], self.gaps[n], self.codes[n]
        return bool(box_prices(self.t, self.x, self.own, *box, self.base, self.inc, self.alive))

    def improve(self, n: int, goal: float, steps: int) -> float:
        """Ascend in a box that was expanded last; return its bound."""
        about = self.t, self.v, self.need, float(goal), steps, float(self.slope[n]), self.w[n]
        self.slope[n], bound = ascend(*about, self.base, self.inc, self.alive, self.chosen)
        return float(bound)

    def reach(self) -> float:
        """The largest sum of leaves beyond what is needed."""
        values = np.where(self.alive, self.v, -np.inf)
        return float(np.maximum.reduceat(values, self.t.tree_start[:-1]).sum()) - self.need

    def entries(self) -> Array:
        """Return the entries of the chosen leaves, tree by tree."""
        start, end = self.t.leaf_start[self.chosen], self.t.leaf_start[self.chosen + 1]
        sizes = end - start
        return np.repeat(start - np.concatenate([[0], sizes.cumsum()[:-1]]), sizes) + np.arange(sizes.sum())

    def best_split(self, at: int, least: float) -> int:
        """The entry by which to split: of some columns in which the chosen leaves disagree most, by their
        prices, that with the largest bounds of both sides; −1 if there is none."""
        t, n = self.t, self.count
        entries = self.entries()
        spread = self.w[at, t.entry_pair[entries]] * self.inc[entries]
        column, prices = t.entry_column[entries], self.inc[entries]
        most = np.zeros(len(self.x))
        np.maximum.at(most, column, prices)
        order = np.argsort(-(most - np.bincount(column, spread, len(self.x))))
        best_gain, best = -1.0, -1
        chosen, top = self.chosen.copy(), self.incumbent if self.incumbent < np.inf else 4 * least + 1e-9
        for f in order[:_TRIED]:
            own = np.flatnonzero((column == f) & (prices == most[f]) & (prices > 0))
            if not len(own):
                break
            entry, sides = int(entries[own[0]]), []
            for side in (0, 1):
                self.child(at, n + side, entry, side)
                sides.append(np.inf)
                if self.expand(n + side):
                    sides[-1] = self.improve(n + side, np.inf, 1)
            gain = min(sides) + 1e-3 * sum(min(each, top) for each in sides)
            if gain > best_gain:
                best_gain, best = gain, entry
        self.chosen[:] = chosen
        return best if best >= 0 else self.any_split(at, entries)

    def any_split(self, at: int, entries: Array) -> int:
        """An entry of a chosen leaf that holds a part of the box alone, or else of any leaf that meets the
        box; −1 if there is none, where all rows of the box reach the same leaves."""
        t = self.t
        every = np.flatnonzero(np.repeat(self.alive, np.diff(t.leaf_start)))
        for some in (entries, every):
            f = t.entry_column[some]
            low, high, place = self.low[at, f], self.high[at, f], t.place[f]
            edges = t.entry_low[some], t.entry_high[some]
            parts = ((low < edges[0]) & (edges[0] < high)) | ((low < edges[1]) & (edges[1] < high))
            apart, present = (high <= edges[0]) | (edges[1] <= low), low < high
            own, listed = self.codes[at, place.clip(0)], t.entry_codes[some]
            coded, both = place >= 0, (own & listed).any(1)
            apart, present = np.where(coded, ~both, apart), np.where(coded, own.any(1), present)
            parts = np.where(coded, both & (own & ~listed).any(1), parts)
            good = parts | (self.gaps[at, f] & present & (t.entry_gap[some] == apart))
            if good.any():
                return int(some[np.where(good, self.inc[some], -1.0).argmax()])
        return -1

    def edge(self, at: int, e: int) -> tuple[float, bool]:
        """Threshold of a split by an entry, ∞ to part gaps from numbers; and whether its leaf is right."""
        t, f = self.t, self.t.entry_column[e]
        low, high, x = self.low[at, f], self.high[at, f], self.x[f]
        inside_low, inside_high = low < t.entry_low[e] < high, low < t.entry_high[e] < high
        if inside_low and (x <= t.entry_low[e] or not inside_high):
            return float(t.entry_low[e]), True
        if inside_high:
            return float(t.entry_high[e]), False
        return math.inf, bool(high <= t.entry_low[e] or t.entry_high[e] <= low)

    def child(self, at: int, n: int, e: int, side: int) -> None:
        """Write the box of one side of a split, and the multipliers of its parent."""
        t, f = self.t, self.t.entry_column[e]
        for part in (self.low, self.high, self.gaps, self.codes, self.w, self.slope):
            part[n] = part[at]
        if t.place[f] >= 0:
            # Codes that are not listed go right.
            listed = t.entry_codes[e] != t.entry_codes[e, -1]
            self.codes[n, t.place[f]] &= listed == (side == 0)
            mine = (side == 0) != t.entry_codes[e, -1]
        else:
            edge, leaf_right = self.edge(at, e)
            if side == 0:
                self.high[n, f] = min(self.high[n, f], edge)
            else:
                self.low[n, f] = max(self.low[n, f], edge)
            mine = (side == 1) == leaf_right
        self.gaps[n, f] &= mine == t.entry_gap[e]

    def descend(self, at: int) -> None:
        """Move the row where, in each column, the chosen leaf that weighs most wants it, and on greedily."""
        t, entries = self.t, self.entries()
        heavy = self.w[at, t.entry_pair[entries]] * self.inc[entries]
        heavy[(t.place[t.entry_column[entries]] >= 0) | t.discrete[t.entry_column[entries]]] = 0
        point = self.x.copy()
        for e in entries[np.argsort(heavy)][heavy[np.argsort(heavy)] > 0]:
            f = t.entry_column[e]
            below = self.x[f] <= t.entry_low[e]
            point[f] = np.nextafter(t.entry_low[e], np.inf) if below else t.entry_high[e]
        about = self.t, self.leaf_value, self.x, point, float(self.need)
        moved, cost = move_greedily(*about, _GREEDY, self.stops)
        if cost < self.incumbent:
            self.incumbent, self.met = float(cost), (self.stops[moved - 1] if moved else point).copy()

    def nearest(self, n: int) -> None:
        """Try the nearest row of a box that was expanded last."""
        t, x, low, high = self.t, self.x, self.low[n], self.high[n]
        far, number, gone = self.base > 0, t.place < 0, np.isnan(x)
        inside = np.where(gone, np.clip(0.0, np.nextafter(low, np.inf), high), np.nextafter(low, np.inf))
        inside = np.where(low < high, np.where(x > high, high, inside), np.nan)
        point = np.where(number & (far | (x == low)), inside, x)
        for f in np.flatnonzero(far & ~number):
            allowed = np.flatnonzero(self.codes[n, t.place[f], :-1])
            point[f] = allowed[0] if len(allowed) else np.nan
        with np.errstate(invalid="ignore"):
            moved = np.where(number & ~t.discrete, t.move * (point - x) ** 2, t.move)
        left = np.isnan(point)
        prices = np.where(left != gone, t.gap, np.where(left | (point == x), 0.0, moved))
        cost = float(prices.max() if t.largest else prices.sum())
        possible = not (left & ~gone & ~self.gaps[n]).any()
        if possible and cost < self.incumbent and score_of(t, self.leaf_value, point, 0, -1) >= self.need:
            self.incumbent, self.met = cost, point

    def proof(self) -> Proof:
        """The partition, with the multipliers of its leaves."""
        t, split = self.t, self.split[: self.count]
        inner, terminal = split[:, 0] >= 0, np.flatnonzero(split[:, 0] < 0)
        entry = np.where(inner, split[:, 1], 0)
        column = t.entry_column[entry] if len(t.entry_column) else np.zeros(len(split), dtype=np.int64)
        coded = inner & (t.place[column] >= 0)
        edges = [
            self.edge(n, entry[n]) if inner[n] and not coded[n] else (0.0, False) for n in range(len(split))
        ]
        flips = t.entry_codes[entry, -1] if len(t.entry_codes) else np.zeros(len(split), dtype=np.bool_)
        leaf_left = np.where(coded, ~flips, ~np.array([right for _, right in edges]))
        missing = leaf_left == (t.entry_gap[entry] if len(t.entry_gap) else False)
        sets = (t.entry_codes[entry[coded]] != flips[coded, None])[:, :-1]
        zeros = torch.zeros(1, dtype=torch.float64)
        partition = Ensemble(
            roots=torch.zeros(1, dtype=torch.int64),
            feature=torch.from_numpy(np.where(inner, column, -1)),
            threshold=torch.tensor([edge for edge, _ in edges], dtype=torch.float64),
            left=torch.from_numpy(split[:, 0].copy()),
            right=torch.from_numpy(np.where(inner, split[:, 0] + 1, -1)),
            missing_left=torch.from_numpy(missing),
            category_set=torch.from_numpy(np.where(coded, np.cumsum(coded) - 1, -1)),
            sets=torch.from_numpy(sets.copy()),
            value=torch.zeros(len(split), 1, dtype=torch.float64),
            bias=zeros,
            rounding=zeros,
            columns=self.ensemble.columns,
        )
        slope, w = self.slope[terminal], self.w[terminal]
        good = np.isfinite(slope) & np.isfinite(w).all(1)
        slopes, weights = np.where(good, np.maximum(slope, 0), 0.0), np.where(good[:, None], w.clip(0), 0.0)
        total = np.zeros((len(terminal), self.ensemble.columns + 1))
        np.add.at(total.T, t.pair_group, weights.T)
        # So that they sum to at most 1 with the kernel's rounding, and as float32.
        room = slack(len(t.pair_group) + self.ensemble.columns) + 2.0**-23
        weights *= (1 - 4 * room) / np.maximum(total, 1)[:, t.pair_group]
        return Proof(partition, torch.from_numpy(slopes), torch.from_numpy(weights.astype(np.float32)))
