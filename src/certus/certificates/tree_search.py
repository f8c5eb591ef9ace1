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
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.kernel.rounding import slack
from certus.kernel.trees import Ensemble, Prices, Proof

Array = NDArray[Any]
F = TypeVar("F", bound=Callable[..., object])

_TRIED = 3  # columns that are tried before a box is split
_GREEDY = 32  # moves of a row
_EARLY = 60  # boxes whose leaves are tried as a row


def compiled(function: F) -> F:
    """Return the function, compiled at its first call where numba is installed (the extra ``trees``)."""
    try:
        import numba
    except ImportError:
        return function
    try:
        return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]  # called alike
    except RuntimeError:  # no folder to keep it in can be written
        return numba.njit(error_model="numpy")(function)  # type: ignore[return-value]  # called alike


class FlatTrees(NamedTuple):
    """An ensemble as arrays for compiled loops; leaves stand tree by tree, entries leaf by leaf.

    ``entry_*`` are the columns that leaves restrict, ``pair_*`` the multipliers w; groups are those whose
    sum is at most 1.
    """

    tree_start: Array
    leaf_start: Array
    entry_column: Array
    entry_pair: Array
    entry_low: Array
    entry_high: Array
    entry_gap: Array
    entry_codes: Array
    place: Array
    pair_column: Array
    pair_group: Array
    roots: Array
    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    category_set: Array
    sets: Array
    move: Array
    gap: Array
    discrete: Array
    largest: bool
    trial_column: Array
    trial_value: Array
    trial_start: Array
    user_start: Array
    user_tree: Array
    most_leaves: int


def flat_trees(ensemble: Ensemble, prices: Prices) -> tuple[FlatTrees, Array]:
    """The arrays, and the leaf nodes in their order."""
    paths = ensemble.paths
    path, column, place, pairs = (part.numpy() for part in paths.entries[:4])
    tree = paths.tree.numpy()
    order = np.argsort(tree, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    by_leaf = np.argsort(rank[path], kind="stable")
    path, column, place = path[by_leaf], column[by_leaf], place[by_leaf]
    trees, leaves = len(ensemble.roots), len(order)
    where = np.full(ensemble.columns, -1)
    where[paths.categorical.numpy()] = np.arange(len(paths.categorical))
    codes = np.ones((len(path), paths.codes.shape[2]), dtype=np.bool_)
    coded = where[column] >= 0
    codes[coded] = paths.codes.numpy()[path[coded], where[column[coded]]]
    trials = _trials(ensemble, where, prices)
    users = [np.unique(pairs[pairs[:, 1] == f, 0]) for f in range(ensemble.columns)]
    sets = ensemble.sets.numpy() if len(ensemble.sets) else np.zeros((1, 1), dtype=np.bool_)
    flat = FlatTrees(
        tree_start=np.searchsorted(tree[order], np.arange(trees + 1)),
        leaf_start=np.searchsorted(rank[path], np.arange(leaves + 1)),
        entry_column=column,
        entry_pair=place,
        entry_low=paths.low.numpy()[path, column],
        entry_high=paths.high.numpy()[path, column],
        entry_gap=paths.gaps.numpy()[path, column],
        entry_codes=codes,
        place=where,
        pair_column=pairs[:, 1].copy(),
        pair_group=np.zeros(len(pairs), dtype=np.int64) if prices.largest else pairs[:, 1].copy(),
        roots=ensemble.roots.numpy(),
        feature=ensemble.feature.numpy(),
        threshold=ensemble.threshold.numpy(),
        left=ensemble.left.numpy(),
        right=ensemble.right.numpy(),
        missing_left=ensemble.missing_left.numpy(),
        category_set=ensemble.category_set.numpy(),
        sets=sets,
        move=prices.move.double().numpy(),
        gap=prices.gap.double().numpy(),
        discrete=prices.discrete.numpy(),
        largest=prices.largest,
        trial_column=trials[0],
        trial_value=trials[1],
        trial_start=np.searchsorted(trials[0], np.arange(ensemble.columns + 1)),
        user_start=np.cumsum([0, *(len(each) for each in users)]),
        user_tree=np.concatenate([*users, np.zeros(0, dtype=np.int64)]).astype(np.int64),
        most_leaves=int(np.bincount(tree).max()),
    )
    return flat, paths.node.numpy()[order]


def _trials(ensemble: Ensemble, where: Array, prices: Prices) -> tuple[Array, Array]:
    """Columns and values to move to: thresholds, which go left, and the numbers after them, in their order;
    codes; gaps, the last of a column."""
    columns, values = [], []
    for f in range(ensemble.columns):
        if float(prices.move[f]) < math.inf:
            if where[f] >= 0:
                new = np.arange(float(ensemble.sets.shape[1]))
            elif bool(prices.discrete[f]):
                new = np.array([0.0, 1.0])
            else:
                edges = ensemble.threshold[ensemble.feature == f].unique().numpy()
                edges = edges[np.isfinite(edges)]
                new = np.unique(np.concatenate([edges, np.nextafter(edges, np.inf)]))
            columns += [f] * len(new)
            values += new.tolist()
        if float(prices.gap[f]) < math.inf:
            columns.append(f)
            values.append(math.nan)
    return np.array(columns, dtype=np.int64), np.array(values, dtype=np.float64)


@compiled
def _least(
    x: Any,
    move: Any,
    gap: Any,
    discrete: Any,
    own: Any,
    low: Any,
    high: Any,
    may_miss: Any,
    left: Any,
    right: Any,
) -> Any:
    """The least price in the closure of a box: κ of one column; ``own`` is the row's code, or −1."""
    best = np.inf
    if own >= 0:
        possible, stays = False, False
        for code in range(len(left)):
            if left[code] and right[code]:
                possible = True
                if code == own:
                    stays = True
        if possible:
            best = gap if np.isnan(x) else (0.0 if stays else move)
    elif low < high:
        if np.isnan(x):
            best = gap
        elif discrete:
            best = 0.0 if low < x <= high else move
        else:
            away = max(low - x, x - high)
            best = move * away * away if away > 0 else 0.0
    if may_miss:
        best = min(best, 0.0 if np.isnan(x) else gap)
    return best


@compiled
def _expand(
    t: Any, x: Any, own: Any, low: Any, high: Any, gaps: Any, codes: Any, base: Any, inc: Any, alive: Any
) -> Any:
    """Prices within a box: κ of the box, increments of entries, and which leaves meet it; False if none."""
    none = np.ones(1, dtype=np.bool_)
    for f in range(len(x)):
        p = t.place[f]
        mine = codes[p] if p >= 0 else none
        base[f] = _least(
            x[f], t.move[f], t.gap[f], t.discrete[f], own[f], low[f], high[f], gaps[f], mine, mine
        )
        if base[f] == np.inf:
            return False
    for tree in range(len(t.roots)):
        met = False
        for leaf in range(t.tree_start[tree], t.tree_start[tree + 1]):
            alive[leaf] = True
            for e in range(t.leaf_start[leaf], t.leaf_start[leaf + 1]):
                f = t.entry_column[e]
                p = t.place[f]
                price = _least(
                    x[f],
                    t.move[f],
                    t.gap[f],
                    t.discrete[f],
                    own[f],
                    max(low[f], t.entry_low[e]),
                    min(high[f], t.entry_high[e]),
                    gaps[f] and t.entry_gap[e],
                    t.entry_codes[e],
                    codes[p] if p >= 0 else none,
                )
                if price == np.inf:
                    alive[leaf] = False
                    break
                inc[e] = price - base[f]
            met = met or alive[leaf]
        if not met:
            return False
    return True


@compiled
def _leaf_costs(t: Any, w: Any, inc: Any, alive: Any, cost: Any) -> Any:
    for leaf in range(len(alive)):
        if alive[leaf]:
            total = 0.0
            for e in range(t.leaf_start[leaf], t.leaf_start[leaf + 1]):
                total += w[t.entry_pair[e]] * inc[e]
            cost[leaf] = total


@compiled
def _line(t: Any, v: Any, slope: Any, need: Any, cost: Any, alive: Any, chosen: Any) -> Any:
    """λ·need + Σ_t min_l [cost − λv], its derivative in λ, and the leaves chosen."""
    total, rise = slope * need, need
    for tree in range(len(t.roots)):
        best, at = np.inf, -1
        for leaf in range(t.tree_start[tree], t.tree_start[tree + 1]):
            if alive[leaf]:
                each = cost[leaf] - slope * v[leaf]
                if each < best or (each == best and v[leaf] > v[at]):
                    best, at = each, leaf
        chosen[tree] = at
        total += best
        rise -= v[at]
    return total, rise


@compiled
def _best_slope(
    t: Any, v: Any, slope: Any, need: Any, cost: Any, alive: Any, low_leaves: Any, high_leaves: Any
) -> Any:
    """The best λ, its value, and the share of the leaves chosen at its left end in a supergradient."""
    left, right, near = 0.0, -1.0, 1e-11 * (1 + abs(need))  # a level that the leaves just reach
    left_value, left_rise = _line(t, v, 0.0, need, cost, alive, low_leaves)
    if left_rise <= near:
        return 0.0, left_value, 1.0
    right_value, right_rise = 0.0, 0.0
    slope = slope if slope > 0 else 1.0
    scratch = low_leaves.copy()
    for _ in range(60):
        value, rise = _line(t, v, slope, need, cost, alive, scratch)
        if rise > near:
            left, left_value, left_rise = slope, value, rise
            low_leaves[:] = scratch
        else:
            right, right_value, right_rise = slope, value, rise
            high_leaves[:] = scratch
        if right < 0:
            slope = 4 * slope
            continue
        if rise >= -near:
            return slope, value, 0.0
        # Where the tangents meet; f is at most that.
        meet = (right_value - left_value + left_rise * left - right_rise * right) / (left_rise - right_rise)
        top = left_value + left_rise * (meet - left)
        if top - max(left_value, right_value) <= 1e-9 * (1e-12 + abs(top)) or not left < meet < right:
            break
        slope = meet
    if right < 0:
        return left, left_value, 1.0
    share = -right_rise / (left_rise - right_rise)
    if left_value > right_value:
        return left, left_value, share
    return right, right_value, share


@compiled
def _project(w: Any, group: Any, groups: Any) -> Any:
    """Project on {w ≥ 0, Σ w = 1} in each group (Michelot)."""
    active = np.ones(len(w), dtype=np.bool_)
    for _ in range(len(w)):
        total, count = np.zeros(groups), np.zeros(groups)
        for p in range(len(w)):
            if active[p]:
                total[group[p]] += w[p]
                count[group[p]] += 1
        changed = False
        for p in range(len(w)):
            if active[p]:
                w[p] -= (total[group[p]] - 1) / count[group[p]]
        for p in range(len(w)):
            if active[p] and w[p] < 0:
                active[p], w[p], changed = False, 0.0, True
        if not changed:
            break


@compiled
def _improve(
    t: Any,
    v: Any,
    need: Any,
    target: Any,
    steps: Any,
    slope: Any,
    w: Any,
    base: Any,
    inc: Any,
    alive: Any,
    chosen: Any,
) -> Any:
    """Ascend the dual in one box from (λ, w), which are replaced by the best; returns λ and the bound."""
    groups = len(base)
    away = 0.0
    if not t.largest:
        for f in range(len(base)):
            away += base[f]
    cost, low, high = np.zeros(len(alive)), chosen.copy(), chosen.copy()
    best, best_slope, best_w, trial = -np.inf, slope, w.copy(), w.copy()
    step, stalled = 1.0, 0
    for done in range(int(steps)):
        _leaf_costs(t, trial, inc, alive, cost)
        slope, value, share = _best_slope(t, v, slope, need, cost, alive, low, high)
        value += away
        if t.largest:
            for p in range(len(trial)):
                value += trial[p] * base[t.pair_column[p]]
        if value > best:
            stalled = 0 if value > best + 0.002 * (target - best) else stalled + 1
            best, best_slope = value, slope
            best_w[:] = trial
            chosen[:] = high if share < 1.0 else low
        else:
            stalled += 1
        if best >= target or done + 1 == steps:
            break
        if stalled >= 3:
            step, stalled = step / 2, 0
            trial[:] = best_w
            if step < 0.02:
                break
            continue
        gradient = np.zeros(len(trial))
        if t.largest:
            for p in range(len(trial)):
                gradient[p] = base[t.pair_column[p]]
        for tree in range(len(t.roots)):
            if share > 0:
                leaf = low[tree]
                for e in range(t.leaf_start[leaf], t.leaf_start[leaf + 1]):
                    gradient[t.entry_pair[e]] += share * inc[e]
            if share < 1:
                leaf = high[tree]
                for e in range(t.leaf_start[leaf], t.leaf_start[leaf + 1]):
                    gradient[t.entry_pair[e]] += (1 - share) * inc[e]
        mean, size = np.zeros(groups), np.zeros(groups)
        for p in range(len(trial)):
            if trial[p] > 0 or gradient[p] > 0:
                mean[t.pair_group[p]] += gradient[p]
                size[t.pair_group[p]] += 1
        square = 0.0
        for p in range(len(trial)):
            if trial[p] > 0 or gradient[p] > 0:
                square += (gradient[p] - mean[t.pair_group[p]] / size[t.pair_group[p]]) ** 2
        if square <= 0:
            break
        length = step * (target - value) / square
        for p in range(len(trial)):
            trial[p] += length * gradient[p]
        _project(trial, t.pair_group, groups)
    w[:] = best_w
    return best_slope, best


@compiled
def _score(t: Any, leaf_value: Any, row: Any, first: Any, last: Any) -> Any:
    """Σ v of the leaves that a row reaches in some trees, ``user_tree[first:last]``; of all for last < 0."""
    total = 0.0
    for place in range(first, last if last >= 0 else len(t.roots)):
        node = t.roots[t.user_tree[place] if last >= 0 else place]
        while t.feature[node] >= 0:
            x = row[t.feature[node]]
            if np.isnan(x):
                goes = t.missing_left[node]
            elif t.category_set[node] < 0:
                goes = x <= t.threshold[node]
            else:
                goes = 0 <= x < t.sets.shape[1] and t.sets[t.category_set[node], int(x)]
            node = t.left[node] if goes else t.right[node]
        total += leaf_value[node]
    return total


@compiled
def _price(t: Any, f: Any, old: Any, new: Any) -> Any:
    if np.isnan(old) and np.isnan(new):
        return 0.0
    if np.isnan(old) or np.isnan(new):
        return t.gap[f]
    if old == new:
        return 0.0
    return t.move[f] if t.discrete[f] else t.move[f] * (new - old) ** 2


@compiled
def _join(t: Any, prices: Any) -> Any:
    return np.max(prices) if t.largest else np.sum(prices)


@compiled
def _try_column(t: Any, leaf_value: Any, row: Any, f: Any, after: Any, stack: Any) -> Any:
    """Write Σ v of the trees that use a column, at each value that is tried in it."""
    first, last, old = t.trial_start[f], t.trial_start[f + 1], row[f]
    users, end = t.user_start[f], t.user_start[f + 1]
    numbers = first if t.place[f] >= 0 else last
    if numbers > first and np.isnan(t.trial_value[numbers - 1]):
        numbers -= 1
    for k in range(numbers, last):
        row[f] = t.trial_value[k]
        after[k] = _score(t, leaf_value, row, users, end)
    row[f] = old
    after[first:numbers] = 0.0
    if numbers == first:
        return
    # Each leaf holds a range of the numbers, which are in their order.
    for user in range(users, end):
        stack[0, 0], stack[0, 1], stack[0, 2] = t.roots[t.user_tree[user]], first, numbers
        height = 1
        while height > 0:
            height -= 1
            node, low, high = stack[height]
            while t.feature[node] >= 0:
                x, edge = row[t.feature[node]], t.threshold[node]
                if t.feature[node] == f:
                    middle = low + np.searchsorted(t.trial_value[low:high], edge, side="right")
                    goes = middle > low
                    if low < middle < high:
                        stack[height] = t.right[node], middle, high
                        height, high = height + 1, middle
                elif np.isnan(x):
                    goes = t.missing_left[node]
                elif t.category_set[node] < 0:
                    goes = x <= edge
                else:
                    goes = 0 <= x < t.sets.shape[1] and t.sets[t.category_set[node], int(x)]
                node = t.left[node] if goes else t.right[node]
            after[low:high] += leaf_value[node]


@compiled
def _greedy(t: Any, leaf_value: Any, origin: Any, start: Any, level: Any, moves: Any, stops: Any) -> Any:
    """Move a row until its score is at least a level, then back where that is not needed.

    Returns the rows on the way, their number, and the cost of the last one; ∞ if the level is not reached.
    """
    row, prices = start.copy(), np.zeros(len(start))
    for f in range(len(row)):
        prices[f] = _price(t, f, origin[f], row[f])
    score = _score(t, leaf_value, row, 0, -1)
    after, stack = np.zeros(len(t.trial_value)), np.zeros((t.most_leaves + 1, 3), dtype=np.int64)
    count = 0
    for _ in range(moves):
        reached, now = score >= level, _join(t, prices)
        best, at, best_score = np.inf if not reached else now * (1 - 1e-12), -1, score
        ratio = 0.0
        for f in range(len(row)):
            first, last = t.trial_start[f], t.trial_start[f + 1]
            if first == last:
                continue
            kept, prices[f] = prices[f], 0.0
            others = _join(t, prices)
            prices[f] = kept
            if reached and others >= best:
                continue
            _try_column(t, leaf_value, row, f, after, stack)
            rest = score - _score(t, leaf_value, row, t.user_start[f], t.user_start[f + 1])
            for k in range(first, last):
                price = _price(t, f, origin[f], t.trial_value[k])
                cost, gained = max(others, price) if t.largest else others + price, rest + after[k]
                if gained >= level:
                    if cost < best:
                        best, at, best_score = cost, k, gained
                elif not reached and best == np.inf and gained > score:
                    gain = (gained - score) / (max(cost - now, 0.0) + 1e-9 * (1e-12 + cost))
                    if gain > ratio:
                        ratio, at, best_score = gain, k, gained
        if reached:
            # The row's own value, which may cost less than the numbers that are tried.
            for f in range(len(row)):
                if prices[f] > 0:
                    kept, old = prices[f], row[f]
                    prices[f], row[f] = 0.0, origin[f]
                    cost = _join(t, prices)
                    gained = _score(t, leaf_value, row, 0, -1) if cost < best else -np.inf
                    if gained >= level:
                        best, at, best_score = cost, -2 - f, gained
                    prices[f], row[f] = kept, old
        if at == -1:
            break
        f = t.trial_column[at] if at >= 0 else -2 - at
        row[f] = t.trial_value[at] if at >= 0 else origin[f]
        prices[f] = _price(t, f, origin[f], row[f])
        score = best_score
        stops[count] = row
        count += 1
    return count, (_join(t, prices) if score >= level else np.inf)


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
        count, cost = _greedy(self.flat, values, origin, origin, level - start, _GREEDY, stops)
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
        return bool(_expand(self.t, self.x, self.own, *box, self.base, self.inc, self.alive))

    def improve(self, n: int, goal: float, steps: int) -> float:
        """Ascend in a box that was expanded last; return its bound."""
        about = self.t, self.v, self.need, float(goal), steps, float(self.slope[n]), self.w[n]
        self.slope[n], bound = _improve(*about, self.base, self.inc, self.alive, self.chosen)
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
        moved, cost = _greedy(*about, _GREEDY, self.stops)
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
        if possible and cost < self.incumbent and _score(t, self.leaf_value, point, 0, -1) >= self.need:
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
