"""The features of a table: numbers, and categories with all of their columns; and what moving one costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from certus.costs import Cost, Masked, SquaredL2, WeightedL2
from certus.data import DataSet
from certus.data.tables import ONE_HOT_WEIGHT
from certus.errors import ArgumentError, require


@dataclass(frozen=True)
class Feature:
    """A number, or a category with all of its columns.

    Attributes:
        columns: where it is among the inputs.
        category: whether it is one.
        scale: how many of the source's units a move by 1 is; 1 for a category.
    """

    name: str
    columns: tuple[int, ...]
    category: bool
    scale: float


def features_of(data: DataSet, option: str = "run") -> list[Feature]:
    """The features of a table: columns ``town=Bern``, ``town=Chur`` … that share a category are one."""
    if data.feature_names is None:
        rule = "be on a table" if option == "run" else "be left out but for a table"
        raise ArgumentError(f"`{option}` must {rule}, whose features have names; got {data.name}.")
    found: dict[str, list[int]] = {}
    weights = data.weights if data.weights is not None else torch.ones(len(data.feature_names))
    hot = (weights == ONE_HOT_WEIGHT).tolist()
    for at, name in enumerate(data.feature_names):
        found.setdefault(name.rpartition("=")[0] if hot[at] else name, []).append(at)
    scales = None if data.input_scale is None else data.input_scale[1]
    return [
        Feature(name, tuple(columns), hot[columns[0]], 1.0 if scales is None else float(scales[columns[0]]))
        for name, columns in found.items()
    ]


def named_feature(data: DataSet, name: str, option: str = "feature") -> Feature:
    """The feature of that name."""
    known = {one.name: one for one in features_of(data, "run" if option == "feature" else option)}
    require(name in known, option, f"be one of {', '.join(known)}", repr(name))
    return known[name]


def priced_cost(data: DataSet, prices: Mapping[str, float]) -> Cost:
    """Squared L2, weighted where the data have features of different kinds, times a price for some of them.

    Args:
        prices: of a move by one standard deviation, or of another category; ∞ freezes. Others cost 1.
    """
    width = math.prod(data.train.inputs.shape[1:])
    weights = torch.ones(width) if data.weights is None else data.weights.clone()
    free = torch.ones(width, dtype=torch.bool)
    for name, price in prices.items():
        columns = list(named_feature(data, name, "price").columns)
        if math.isinf(price):
            free[columns] = False
        else:
            weights[columns] *= price
    require(bool(free.any()), "price", "leave at least one feature free to move", dict(prices))
    plain = data.weights is None and bool((weights == 1).all())
    cost: Cost = SquaredL2() if plain else WeightedL2(weights)
    return cost if bool(free.all()) else Masked(cost, free)
