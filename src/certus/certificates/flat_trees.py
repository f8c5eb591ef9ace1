"""Trees as arrays, for compiled loops: prices in a box, bounds by subgradients, and greedy moves of a row.

Arrays of the search are written in place, so that a box costs no allocation.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from certus._compiled import compiled
from certus.kernel.trees import Ensemble, Prices

Array = NDArray[Any]


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
def box_prices(
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
def ascend(
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
def score_of(t: Any, leaf_value: Any, row: Any, first: Any, last: Any) -> Any:
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
        after[k] = score_of(t, leaf_value, row, users, end)
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
def move_greedily(
    t: Any, leaf_value: Any, origin: Any, start: Any, level: Any, moves: Any, stops: Any
) -> Any:
    """Move a row until its score is at least a level, then back where that is not needed.

    Returns the rows on the way, their number, and the cost of the last one; ∞ if the level is not reached.
    """
    row, prices = start.copy(), np.zeros(len(start))
    for f in range(len(row)):
        prices[f] = _price(t, f, origin[f], row[f])
    score = score_of(t, leaf_value, row, 0, -1)
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
            rest = score - score_of(t, leaf_value, row, t.user_start[f], t.user_start[f + 1])
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
                    gained = score_of(t, leaf_value, row, 0, -1) if cost < best else -np.inf
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
