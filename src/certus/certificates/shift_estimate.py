"""How far the populations are apart, estimated; and how far each feature has moved.

W_c between two finite samples is mostly their own sparsity. What chance alone makes is measured on halves of
each sample, and taken off:

    Ŵ = mean over random disjoint halves of equal size of  ½(W(A₁, B₁) + W(A₂, B₂)) − ½(W(A₁, A₂) + W(B₁, B₂))

This is *estimated*: right for translations, too small where the spread changes, and never a place to read a
certificate at. For a separable cost the sum over the columns, Σ_j w_j W(A_j, B_j), is a proven floor of W_c;
its one-dimensional parts are exact, by sorting, and hardly biased.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from certus.certificates.transport import transport_distance
from certus.costs import Cost, SquaredL2, WeightedL2
from certus.errors import require
from certus.outward import SOME, down
from certus.split import Split
from certus.subsets import halves

_LARGEST = 500  # samples of a half that are coupled in one piece


def estimated_distance(
    first: Split,
    second: Split,
    cost: Cost,
    *,
    label_price: float | None = None,
    seed: int = 0,
    rounds: int = 3,
) -> float | None:
    """Ŵ between the populations of two samples without weights; without a label price, of the inputs alone.

    Returns: None where a half of a sample has fewer than 2 rows. It may come out negative, where nothing has
    moved.
    """
    for name, data in (("first", first), ("second", second)):
        require(data.weights is None, name, "have no weights: its halves would not be alike", "them")
    size = min(len(first), len(second)) // 2
    if size < 2:
        return None
    if label_price is None:
        first, second = (replace(part, targets=torch.zeros(len(part.inputs))) for part in (first, second))
    size, found = min(size, _LARGEST), []
    for turn in range(rounds):
        (a, b), (c, d) = (_equal_halves(part, size, seed + turn) for part in (first, second))
        if min(len(a), len(c)) < 2:  # labels that occur once have no second half
            return None

        def between(one: Split, other: Split) -> float:
            return transport_distance(one, other, cost, label_price=label_price, seed=seed).high

        found.append((between(a, c) + between(b, d) - between(a, b) - between(c, d)) / 2)
    return sum(found) / rounds


def column_shifts(first: Tensor, second: Tensor, cost: Cost) -> Tensor | None:
    """(features,) w_j W(A_j, B_j) of (n, features) and (m, features) inputs, rounded down: their sum is a
    proven floor of W_c between the samples. None for a cost that is not a sum over columns."""
    if not isinstance(cost, SquaredL2 | WeightedL2) or first.dim() != 2:
        return None
    weights = cost.weights.double() if isinstance(cost, WeightedL2) else torch.ones(first.shape[1]).double()
    moved = torch.stack(
        [_sorted_distance(a, b) for a, b in zip(first.double().T, second.double().T, strict=True)]
    )
    return down(weights.expand_as(moved) * moved, SOME)


def _sorted_distance(first: Tensor, second: Tensor) -> Tensor:
    """W of squared distances between numbers: the k-th smallest go to each other, in equal masses."""
    a, b = first.sort().values, second.sort().values
    ends = [torch.arange(1, len(part) + 1, dtype=torch.float64) / len(part) for part in (a, b)]
    cuts = torch.cat(ends).sort().values
    mass = cuts.diff(prepend=cuts.new_zeros(1))
    middle = cuts - mass / 2
    places = [torch.searchsorted(end, middle).clamp_max(len(end) - 1) for end in ends]
    return (mass * (a[places[0]] - b[places[1]]) ** 2).sum()


def _equal_halves(data: Split, size: int, seed: int) -> tuple[Split, Split]:
    """Halves cut down to a size; they are sorted by label, and spaced rows keep the shares."""
    one, other = halves(data, seed)
    rows = torch.linspace(0, len(one) - 1, min(size, len(one))).round().long()
    return one[rows], other[rows]
