"""Rows of a table that attained sides rest on: numbers moved, and single categories swapped.

The hull of the encoded rows is enough for upper bounds. A lower side needs rows that exist: written to a
file, read by the table's own encoder, and predicted. The numbers of a row move by an ascent, from the row
itself and from the row with its best single swap; seasons follow the day, and gaps stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.costs import Cost
from certus.costs.masked import masked_to
from certus.domains import Domain
from certus.losses import AnyLoss, evaluate_loss
from certus.row_encoding import RowEncoding


def settled(encoding: RowEncoding, points: Tensor, base: Tensor, domain: Domain) -> Tensor:
    """(n, features) rows of the domain near some points, with the categories and gaps of ``base``."""
    rows = encoding.settle(points, base)
    return torch.where(per_sample(domain.contains(rows), rows), rows, base)


def best_swap(
    encoding: RowEncoding, rows: Tensor, worth: Callable[[Tensor], Tensor], cost: Cost, domain: Domain
) -> Tensor:
    """(n, features) the rows after the single swap that is worth most, or as they are.

    Args:
        worth: (n, features) rows → (n,), and −∞ for rows that are out of the question.
    """
    best, height = rows, worth(rows)
    for other in encoding.swaps(rows):
        allowed = torch.isfinite(cost.value(other, rows)) & domain.contains(other)
        if not allowed.any():
            continue
        found = torch.where(allowed, worth(other), -math.inf)
        best = torch.where(per_sample(found > height, best), other, best)
        height = torch.maximum(found, height)
    return best


def real_transport(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None,
    encoding: RowEncoding,
    climb: Callable[[Tensor, Cost], Tensor],
    *,
    gamma: float,
    cost: Cost,
    domain: Domain,
) -> Tensor:
    """(n, features) rows at which ℓ − γc is large: T̂_γ over rows of the table (eqn:inner-sup).

    Args:
        climb: rows and a cost → points that an ascent with this cost reaches from them.
    """

    def worth(rows: Tensor) -> Tensor:
        price = gamma * cost.value(rows, inputs)
        return (evaluate_loss(loss, rows, targets) - price).nan_to_num(-math.inf, math.inf, -math.inf)

    with torch.no_grad():
        best, height = inputs, worth(inputs)
        swapped = best_swap(encoding, inputs, worth, cost, domain)
        free = masked_to(cost, encoding.movable())
        bases = [inputs] if torch.equal(swapped, inputs) else [inputs, swapped]
        for base in bases:
            candidates = [base]
            if free is not None:
                candidates.append(settled(encoding, climb(base, free), base, domain))
            for rows in candidates:
                found = worth(rows)
                best = torch.where(per_sample(found > height, best), rows, best)
                height = torch.maximum(found, height)
        return best
