"""Categories that a table's encoding does not know, as one more value of their column.

The encoding leaves all inputs of such a category at 0, at half the cost of any other change. That is enough
for upper bounds; a distance between tables must count the whole change.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from certus.costs import Cost, WeightedL2
from certus.row_encoding import RowEncoding
from certus.split import Split


def with_unknown(first: Split, second: Split, cost: Cost) -> tuple[Split, Split, Cost]:
    """Two samples with one more input for each category, 1 where its value is unknown, and their cost; as
    they are if all values are known."""
    encoding = first.encoding or second.encoding
    if encoding is None or not encoding.categories:
        return first, second, cost
    more = [encoding.unknown(part.inputs) for part in (first, second)]
    if not any(bool(part.any()) for part in more):
        return first, second, cost
    wide = [
        replace(part, inputs=torch.cat([part.inputs, marks], 1), encoding=None)
        for part, marks in zip((first, second), more, strict=True)
    ]
    return wide[0], wide[1], wider_cost(cost, encoding)


def wider_cost(cost: Cost, encoding: RowEncoding) -> Cost:
    """The cost with the weight of a category for the input that tells that its value is unknown."""
    if not isinstance(cost, WeightedL2):
        return cost
    weights = cost.weights.expand(len(encoding.means))
    more = weights[[column.inputs[0] for column in encoding.categories]]
    return WeightedL2(torch.cat([weights, more]))
