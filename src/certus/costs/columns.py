"""Prices of the columns of a table, for models that compare columns with thresholds: tree ensembles.

The cost of a row is c = Σ_f c_f or, in the sup-norm, max_f c_f, where

| column f | c_f |
|---|---|
| a number moves | p_f (x_f − x₀_f)² |
| a discrete column gets another value | p_f |
| a value goes missing, or a gap is filled, whatever it becomes | g_f |

A price of ∞ freezes: a column with p_f = ∞ keeps its values, one with g_f = ∞ its gaps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus.errors import require, truncate
from certus.kernel.trees import Prices

ByColumn = Mapping[str, float] | Sequence[float] | Tensor
"""Numbers by the names of columns, others by default; or one for each column."""


@dataclass(frozen=True)
class ColumnPrices:
    """Cost of moving the rows of a table, column by column.

    Attributes:
        move: p, 1 by default.
        gap: g, ∞ by default.
        discrete: names of columns of numbers of which every other value costs the same, such as dummies and
            codes of answers; columns that the model compares as categories are discrete in any case.
        largest: whether the largest c_f counts, and not the sum.

    >>> cost = ColumnPrices({"age": 0.01, "town": math.inf}, gap={"income": 0.5})
    >>> cost.prices(["age", "town", "income"], categorical=[1]).move.tolist()
    [0.01, inf, 1.0]
    """

    move: ByColumn = field(default_factory=dict)
    gap: ByColumn = field(default_factory=dict)
    discrete: Collection[str] = ()
    largest: bool = False

    def prices(
        self, names: Sequence[str], categorical: Collection[int], label_price: float = math.inf
    ) -> Prices:
        """Return the prices for a model with columns of these names, some of them of categories."""
        unknown = [name for name in self.discrete if name not in names]
        words = truncate(", ".join(names))
        require(not unknown, "discrete", f"name columns of the model, {words}", ", ".join(unknown))
        discrete = [name in self.discrete or place in categorical for place, name in enumerate(names)]
        return Prices(
            _by_column("move", self.move, names, 1.0),
            _by_column("gap", self.gap, names, math.inf),
            torch.tensor(discrete, dtype=torch.bool),
            self.largest,
            label_price,
        )


def _by_column(option: str, given: ByColumn, names: Sequence[str], default: float) -> Tensor:
    """(columns,) float64."""
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        rule = f"name columns of the model, {truncate(', '.join(names))}"
        require(not unknown, option, rule, ", ".join(map(str, unknown)))
        values = torch.tensor([float(given.get(name, default)) for name in names], dtype=torch.float64)
    else:
        values = torch.as_tensor(given, dtype=torch.float64)
        require(values.shape == (len(names),), option, f"have {len(names)} prices", tuple(values.shape))
    require(bool((values > 0).all()), option, "be positive, ∞ for what stays", values.tolist())
    return values
