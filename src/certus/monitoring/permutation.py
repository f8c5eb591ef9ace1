"""The permutation test of two samples, by the transport cost between their columns.

    S = meanⱼ W(Aⱼ, Bⱼ) / mⱼ,        p = (1 + #{S_b ≥ S}) / (B + 1),

with S_b of the pooled rows dealt out again at random, in samples of the same sizes, and mⱼ the mean of W of
column j over all of these deals and the observed one: S is 1 where the columns moved as far as chance moves
them, whatever their prices. If both samples are independent draws from one law, p is at most α with
probability at most α, whatever that law is, since mⱼ depends on the pooled rows alone. Rows that belong
together, such as those of one customer or one day, are dealt out as whole clusters, as many to each side as
there were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from certus.data import random_keys
from certus.errors import require

Array = np.ndarray[Any, Any]
_TIE = 1e-12  # of statistics that differ by rounding alone
_STREAM = 7


@dataclass(frozen=True, eq=False)
class PermutationTest:
    """Outcome of the test.

    Attributes:
        statistic: S; line: the (1 − level)-quantile of S_b, the alarm line.
        columns: (columns,) wⱼ W(Aⱼ, Bⱼ); chance_columns: (columns,) wⱼ mⱼ.
        rounds: B.
    """

    statistic: float
    p_value: float
    line: float
    columns: Array
    chance_columns: Array
    rounds: int

    @property
    def chance(self) -> float:
        """Mean cost of all columns by chance alone."""
        return float(self.chance_columns.sum())


def rounds_for(level: float) -> int:
    """Number of permutations: at least 199, and enough for p-values of a fifth of the level."""
    return max(199, int(np.ceil(5 / level)) - 1)


def permutation_test(
    first: Array,
    second: Array,
    weights: Array,
    *,
    level: float = 0.05,
    clusters: tuple[Array, Array] | None = None,
    rounds: int | None = None,
    seed: int = 0,
) -> PermutationTest:
    """Test whether (n, columns) and (m, columns) rows have one law, with (columns,) weights.

    Args:
        clusters: (n,) and (m,) numbers of the clusters; a cluster lies in one of the samples.
    """
    count = rounds_for(level) if rounds is None else rounds
    columns = _Columns(np.concatenate([first, second]), weights)
    own = columns.costs(np.arange(len(first) + len(second)) < len(first))
    deals = [columns.costs(role) for role in _roles(len(first), len(second), clusters, count, seed)]
    costs = np.stack([own, *deals])
    means = costs.mean(0)
    moving = means > 0  # others are the same in all rows
    ratios = (costs[:, moving] / means[moving]).mean(1) if moving.any() else np.zeros(len(costs))
    exceeding = int((ratios[1:] >= ratios[0] * (1 - _TIE)).sum())
    return PermutationTest(
        statistic=float(ratios[0]),
        p_value=(1 + exceeding) / (count + 1),
        line=float(np.quantile(ratios[1:], 1 - level, method="higher")),
        columns=own,
        chance_columns=means,
        rounds=count,
    )


def _roles(n: int, m: int, clusters: tuple[Array, Array] | None, count: int, seed: int) -> Iterator[Array]:
    """Yield (n + m,) masks of the rows that are dealt to the first sample."""
    source = random_keys(seed, _STREAM)
    if clusters is None:
        names, number, first = np.arange(n + m), n + m, n
    else:
        inside = np.unique(clusters[0]), np.unique(clusters[1])
        rule = "lie in one of the samples each, so that they can be dealt out whole"
        both = np.intersect1d(inside[0], inside[1])
        require(len(both) == 0, "clusters", rule, f"{len(both)} in both, such as {both[:1]}")
        distinct, names = np.unique(np.concatenate(clusters), return_inverse=True)
        number, first = len(distinct), len(inside[0])
    for _ in range(count):
        keys = source(number)
        yield (keys <= np.partition(keys, first - 1)[first - 1])[names]


class _Columns:
    """Columns of pooled rows, sorted once."""

    def __init__(self, rows: Array, weights: Array) -> None:
        low, high = rows.min(0), rows.max(0)
        binary = ((rows == low) | (rows == high)).all(0)  # such as inputs of a category
        self.binary, self.shape = binary, rows.shape
        self.high = (rows[:, binary] == high[binary]).astype(np.float64)
        self.scale = (weights * np.where(binary, (high - low) ** 2, 1.0)).astype(np.float64)
        numbers = np.ascontiguousarray(rows[:, ~binary].T)
        self.order = numbers.argsort(axis=1, kind="stable")
        self.sorted = np.take_along_axis(numbers, self.order, axis=1)
        self._cuts: dict[int, tuple[Array, Array, Array]] = {}

    def costs(self, role: Array) -> Array:
        """(columns,) weighted costs between the rows with this role and the others."""
        total, costs = self.shape[0], np.empty(self.shape[1])
        n = int(role.sum())
        shares = role @ self.high / n, (~role) @ self.high / (total - n)
        costs[self.binary] = abs(shares[0] - shares[1])
        if len(self.order):
            inside = role[self.order]
            a, b = (self.sorted[mask].reshape(len(self.order), -1) for mask in (inside, ~inside))
            left, right, mass = self._cut(n)
            costs[~self.binary] = ((a[:, left] - b[:, right]) ** 2) @ mass
        return costs * self.scale

    def _cut(self, n: int) -> tuple[Array, Array, Array]:
        """Return the coupling of sorted rows of both samples, with masses."""
        if n not in self._cuts:
            m = self.shape[0] - n
            ends = np.arange(1, n + 1) * m, np.arange(1, m + 1) * n
            cuts = np.unique(np.concatenate(ends))
            left, right = (np.searchsorted(end, cuts) for end in ends)
            self._cuts = {n: (left, right, np.diff(cuts, prepend=0) / (n * m))}
        return self._cuts[n]
