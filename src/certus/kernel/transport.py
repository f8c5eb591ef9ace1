"""Transport bounds between two samples: from below column by column, from above by a coupling.

The cost is c(x, x') + λ·1{y ≠ y'}, and every row of a sample has the same mass.

*From below.* c(x, x') ≥ (s/2)‖x − x'‖² ≥ (s/2) Σⱼ wⱼ(xⱼ − x'ⱼ)², with the growth s and the weights w of the
cost (``costs``). A coupling of the samples couples each of their columns, so that

    W_c(A, B) ≥ (s/2) Σⱼ wⱼ W(Aⱼ, Bⱼ) + λ TV(labels),

over any set of columns. In one dimension the k-th smallest numbers go to each other: W is found by sorting.

*From above.* W_c(A, B) is at most the cost of any coupling. A coupling is given in whole units: of the nm
units of mass, each of the n first rows has m and each of the m second rows has n, which is checked exactly.

*Rows of a table.* Over rows (``rows``) the cost is c̃ = c + Σ_G w·1{one of x_G and x'_G is unknown}, G the
discrete columns: c̃ ≥ c, so that the bound from below holds, and a coupling pays c̃.

*Rows that were moved.* Let today's rows B be coupled with the certified rows A at a cost of at most ρ, labels
apart. If each row of B had the label of the row of A that it is coupled with, then B would be within ρ of A,
and the bounds of the certificate at ρ would hold for it. A share t of mass with another label raises its
error rate by at most t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.kernel.costs import Claimed, Cost
from certus.kernel.evidence import Result, mark
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME, down, slack, up

Coupling = tuple[Tensor, Tensor, Tensor]
"""(k,) rows of the first sample, (k,) rows of the second, and (k,) whole units of mass, all int64."""

STAY = "columns that do not count stay as they are in the first sample"
_MOST_UNITS = 2**53  # of mass, which float64 counts exactly
_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class TransportBounds(Result):
    """Bounds on the transport cost between two samples, over the columns that count.

    Attributes:
        columns: (size,) at least (s/2) wⱼ W(Aⱼ, Bⱼ); 0 for columns that do not count.
        labels: total variation between the label shares, rounded down; None without labels or their price.
        low, high: at least and at most W_c; high is ∞ without a coupling.
        moved: at most the cost of the inputs alone under the coupling; relabelled: at most the share of its
            mass between rows of different labels, None without labels.
    """

    columns: Tensor
    labels: float | None
    low: float
    high: float = math.inf
    moved: float = math.inf
    relabelled: float | None = None
    assumptions: tuple[str, ...] = ()

    @staticmethod
    def of(
        first: Tensor,
        second: Tensor,
        cost: Cost,
        *,
        targets: tuple[Tensor, Tensor] | None = None,
        counted: Tensor | None = None,
        groups: Sequence[Sequence[int]] = (),
        coupling: Coupling | None = None,
    ) -> TransportBounds:
        """Bound the cost between (n, *shape) and (m, *shape) float64 rows.

        Args:
            targets: (n,) and (m,) labels; with a finite label price they count.
            counted: (*shape) bool, the columns that count: the cost of the others is taken as 0, a lower
                bound; None for all. Columns that cannot move are never counted.
            groups: the 0/1 inputs of each discrete column, if only rows of a table count.
            coupling: a proposal, of which the marginals are checked.
        """
        rows = (first.double(), second.double())
        fits = all(part.shape[1:] == cost.shape and len(part) > 0 for part in rows)
        if not (fits and all(bool(torch.isfinite(part).all()) for part in rows)):
            raise Refused("two samples of finite rows of the shape of the cost are needed")
        if targets is not None and [len(part) for part in targets] != [len(part) for part in rows]:
            raise Refused("a label for each row is needed")
        chosen = torch.ones(cost.shape, dtype=torch.bool) if counted is None else counted
        chosen = chosen if cost.free is None else chosen & cost.free.expand(cost.shape)
        weights = torch.as_tensor(cost.weights, dtype=torch.float64).expand(cost.shape)
        scale = down(cost.growth / 2 * torch.where(chosen, weights, 0.0), cost.rounding).flatten()
        moves = sorted_costs(*(part.flatten(1)[:, chosen.flatten()] for part in rows))
        columns = torch.zeros_like(scale)
        columns[chosen.flatten()] = scale[chosen.flatten()] * moves
        priced = targets is not None and cost.label_price < math.inf
        labels = _variation(*targets) if priced and targets is not None else None
        low = down(float(columns.sum()), slack(len(columns)))
        if labels is not None:
            low = down(low + cost.label_price * labels, SOME)
        if not math.isfinite(low):
            raise Refused("the samples are too far apart for float64")
        assumptions = cost.assumptions if isinstance(cost, Claimed) else ()
        if coupling is None:
            return mark(TransportBounds(columns, labels, low, assumptions=assumptions))
        moved, changed = _coupled(rows, cost, chosen, targets, coupling, [list(group) for group in groups])
        apart = rows[0][coupling[0]] != rows[1][coupling[1]]
        if bool(apart[:, ~chosen].any()):
            assumptions += (STAY,)
        high = up(moved + cost.label_price * changed, SOME) if priced and changed is not None else moved
        return mark(TransportBounds(columns, labels, low, high, moved, changed, assumptions))

    def error(self, bound: float) -> float:
        """At most the error rate of the second sample by its own labels, from a bound that holds within
        ``moved`` of the first for the labels of the rows that it is coupled with."""
        return min(1.0, up(bound + (1.0 if self.relabelled is None else self.relabelled), SOME))


def sorted_costs(first: Tensor, second: Tensor) -> Tensor:
    """(columns,) at least W(Aⱼ, Bⱼ) of squared differences, from (n, columns) and (m, columns) numbers."""
    a, b = first.sort(0).values, second.sort(0).values
    units = len(a) * len(b)
    if units >= _MOST_UNITS:
        raise Refused("the product of the sizes of both samples must be below 2^53")
    ends = [torch.arange(1, len(part) + 1) * (units // len(part)) for part in (a, b)]
    cuts = torch.cat(ends).unique()
    mass = cuts.diff(prepend=cuts.new_zeros(1)).double() / units
    left, right = (torch.searchsorted(end, cuts) for end in ends)
    costs: Tensor = mass @ (a[left] - b[right]) ** 2
    return down(costs, slack(len(cuts) + 4))


def _variation(first: Tensor, second: Tensor) -> float:
    """Total variation between the shares of labels, rounded down."""
    names = torch.cat([first, second]).unique()
    shares = [
        (part[:, None] == names).sum(0) * (len(first) * len(second) // len(part)) for part in (first, second)
    ]
    return down(float((shares[0] - shares[1]).abs().sum()) / (2 * len(first) * len(second)), SOME)


def _coupled(
    rows: tuple[Tensor, Tensor],
    cost: Cost,
    chosen: Tensor,
    targets: tuple[Tensor, Tensor] | None,
    coupling: Coupling,
    groups: list[list[int]],
) -> tuple[float, float | None]:
    """At most the mean cost of a coupling, and the share of its mass between different labels.

    A column that does not count stays as in the first sample.
    """
    left, right, units = coupling
    whole = len(rows[0]) * len(rows[1])
    kinds = {part.dtype for part in coupling} == {torch.int64}
    if not (kinds and len(left) == len(right) == len(units) and 0 < whole < _MOST_UNITS):
        raise Refused("a coupling has rows and whole units of mass, fewer than 2^53")
    marginals = (
        _has_marginal(place, units, len(part), whole) for place, part in zip((left, right), rows, strict=True)
    )
    # So that no sum of int64 overflows.
    bounded = bool((units > 0).all()) and float(units.double().sum()) <= 2 * whole
    if not (bounded and all(marginals)):
        raise Refused("the coupling does not have the marginals of both samples")
    total = 0.0
    for i, j, mass in zip(left.split(_AT_ONCE), right.split(_AT_ONCE), units.split(_AT_ONCE), strict=True):
        origin = rows[0][i]
        point = torch.where(chosen, rows[1][j], origin)
        prices = up(cost.raised(point, origin) + _unknown(cost, point, origin, groups))
        total += float((prices * (mass.double() / whole)).sum())
    moved = up(total, slack(len(left) + 8))
    if targets is None:
        return moved, None
    differing = units[targets[0][left] != targets[1][right]].sum()
    return moved, up(int(differing) / whole, SOME)


def _unknown(cost: Cost, point: Tensor, origin: Tensor, groups: list[list[int]]) -> Tensor:
    """(batch,) Σ_G w over the discrete columns that are unknown in one of two rows alone."""
    if not groups:
        return torch.zeros(len(point), dtype=torch.float64)
    weights = torch.as_tensor(cost.weights, dtype=torch.float64).expand(cost.shape)
    places = [place for group in groups for place in group]
    marks = torch.cat([point[:, places], origin[:, places]])
    known = [torch.stack([part[:, group].sum(1) for group in groups], 1) for part in (point, origin)]
    if not (bool(((marks == 0) | (marks == 1)).all()) and bool((torch.cat(known) <= 1).all())):
        raise Refused(
            "both samples must be rows of the table: 0 or 1 for each category, at most one 1 a column"
        )
    return (known[0] != known[1]).double() @ torch.stack([weights[group[0]] for group in groups])


def _has_marginal(place: Tensor, units: Tensor, size: int, whole: int) -> bool:
    """Whether each of the rows 0 … size − 1 has its share of the mass, and there are no other rows."""
    if not bool(((place >= 0) & (place < size)).all()):
        return False
    mass = torch.zeros(size, dtype=torch.int64).index_add(0, place, units)
    return bool((mass == whole // size).all())
