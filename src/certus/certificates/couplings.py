"""Proposed couplings of two samples, in whole units of mass, which the kernel checks.

Of the nm units of mass each of n rows has m, and each of m rows has n. Rows of one label go to each other
as far as the label shares allow. Large samples are cut into pieces of equal mass, again and again at the
median of the column that spreads most, so that near rows meet in the same piece; a row on a border is
split by its units. A piece is coupled exactly by a network simplex (POT), and a single column by sorting.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus.data import random_order
from certus.errors import UnsupportedError
from certus.kernel.costs import Cost, Lp
from certus.kernel.transport import Coupling

_EXACT, _PIECE = 1500, 500  # rows that are coupled in one piece, and rows of a piece of larger samples


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows of a sample and their units of mass, both (k,) int64."""

    rows: Tensor
    units: Tensor

    @property
    def total(self) -> int:
        return int(self.units.sum())

    def cut(self, mass: int) -> tuple[_Part, _Part]:
        """Split off the first rows, of this mass."""
        ends = self.units.cumsum(0)
        starts = ends - self.units
        first, rest = (
            (ends.clamp_max(mass) - starts).clamp_min(0),
            (ends - starts.clamp_min(mass)).clamp_min(0),
        )
        return _Part(self.rows[first > 0], first[first > 0]), _Part(self.rows[rest > 0], rest[rest > 0])

    def ordered(self, order: Tensor) -> _Part:
        return _Part(self.rows[order], self.units[order])

    def with_label(self, targets: Tensor, label: Tensor) -> _Part:
        inside = targets[self.rows] == label
        return self.ordered(inside.nonzero()[:, 0])


def propose_coupling(
    first: Tensor,
    second: Tensor,
    cost: Cost,
    *,
    targets: tuple[Tensor, Tensor] | None = None,
    counted: Tensor | None = None,
    seed: int = 0,
) -> Coupling:
    """Propose a cheap coupling of (n, *shape) and (m, *shape) rows, over the columns that count."""
    chosen = torch.ones(cost.shape, dtype=torch.bool) if counted is None else counted
    chosen = chosen if cost.free is None else chosen & cost.free.expand(cost.shape)
    weights = torch.as_tensor(cost.weights, dtype=torch.float64).expand(cost.shape)
    a, b = ((part.double() * weights.sqrt())[:, chosen] for part in (first, second))
    parts = []
    for rows, other in ((a, b), (b, a)):
        order = random_order(len(rows), seed)
        parts.append(_Part(order, torch.full((len(rows),), len(other), dtype=torch.int64)))
    exact = isinstance(cost, Lp) and cost.p == 2  # the cost is a sum of squares of these columns

    def costs(left: Tensor, right: Tensor) -> Tensor:
        if exact:
            return torch.cdist(a[left], b[right]) ** 2
        points = second[right].double()
        lines = [torch.where(chosen, points, row) for row in first[left].double()]
        pairs = zip(lines, first[left].double(), strict=True)
        return torch.stack([cost.value(line, row.expand_as(line)) for line, row in pairs])

    pieces = []
    for mine, yours in _by_label(parts[0], parts[1], targets):
        if a.shape[1] == 1:
            sorted_parts = (part.ordered(x[part.rows, 0].argsort()) for part, x in ((mine, a), (yours, b)))
            pieces.append(_in_order(*sorted_parts))
        elif max(len(mine.rows), len(yours.rows)) <= _EXACT or a.shape[1] == 0:
            pieces.append(_solved(mine, yours, costs))
        else:
            pieces += [_solved(*piece, costs) for piece in _near(mine, yours, a, b)]
    left, right, units = (torch.cat(side) for side in zip(*pieces, strict=True))
    return left, right, units


def _by_label(mine: _Part, yours: _Part, targets: tuple[Tensor, Tensor] | None) -> list[tuple[_Part, _Part]]:
    """Pairs of parts of equal mass: of each label as much as both have, and of the rest."""
    if targets is None:
        return [(mine, yours)]
    pairs, rests = [], []
    for label in torch.cat(targets).unique():
        own = mine.with_label(targets[0], label), yours.with_label(targets[1], label)
        mass = min(part.total for part in own)
        cut = [part.cut(mass) for part in own]
        pairs.append((cut[0][0], cut[1][0]))
        rests.append((cut[0][1], cut[1][1]))
    joined = (
        _Part(torch.cat([part.rows for part in side]), torch.cat([part.units for part in side]))
        for side in zip(*rests, strict=True)
    )
    rest = next(joined), next(joined)
    return [pair for pair in [*pairs, rest] if pair[0].total > 0]


def _near(mine: _Part, yours: _Part, a: Tensor, b: Tensor) -> list[tuple[_Part, _Part]]:
    """Cut two parts of equal mass at the medians of one column, until both are small."""
    if max(len(mine.rows), len(yours.rows)) <= _PIECE:
        return [(mine, yours)]
    spread = torch.stack([x[part.rows].var(0) for x, part in ((a, mine), (b, yours)) if len(part.rows) > 1])
    column = int(spread.sum(0).argmax())
    half = mine.total // 2
    cut = [
        part.ordered(x[part.rows, column].argsort(stable=True)).cut(half)
        for part, x in ((mine, a), (yours, b))
    ]
    return _near(cut[0][0], cut[1][0], a, b) + _near(cut[0][1], cut[1][1], a, b)


def _solved(mine: _Part, yours: _Part, costs: object) -> Coupling:
    """The cheapest coupling of two parts; that of their order if the solver's is not whole."""
    try:
        import ot
    except ImportError:
        raise UnsupportedError(
            "Couplings of several columns need POT: pip install 'certus[transport]'."
        ) from None
    assert callable(costs)
    table = costs(mine.rows, yours.rows).numpy()
    masses = [part.units.double().numpy() for part in (mine, yours)]
    plan = np.rint(ot.emd(*masses, table, numItermax=10_000_000)).astype(np.int64)
    whole = all(np.array_equal(plan.sum(axis), part.units.numpy()) for axis, part in ((1, mine), (0, yours)))
    if not whole or (plan < 0).any():
        return _in_order(mine, yours)
    i, j = (torch.from_numpy(place) for place in np.nonzero(plan))
    return mine.rows[i], yours.rows[j], torch.from_numpy(plan)[i, j]


def _in_order(mine: _Part, yours: _Part) -> Coupling:
    """Couple the first units with the first ones, and so on."""
    ends = [part.units.cumsum(0) for part in (mine, yours)]
    cuts = torch.cat(ends).unique()
    i, j = (torch.searchsorted(end, cuts) for end in ends)
    return mine.rows[i], yours.rows[j], cuts.diff(prepend=cuts.new_zeros(1))
