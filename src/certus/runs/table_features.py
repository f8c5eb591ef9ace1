"""The features of a table: its columns with all of their inputs; and what moving one costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from certus.costs import Cost, Masked, SquaredL2, WeightedL2
from certus.datasets import DataSet
from certus.errors import ArgumentError, require


@dataclass(frozen=True)
class Feature:
    """A column of a table, and where it is among the inputs.

    Attributes:
        columns: a number has one, a date three (day and season), a category one for each value.
        category: whether it is one.
        scale: how many of the source's units a move by 1 is; 1 for a category.
        mark: the inputs that say whether its value is missing; empty if none is.
    """

    name: str
    columns: tuple[int, ...]
    category: bool
    scale: float
    mark: tuple[int, ...] = ()


def features_of(data: DataSet, option: str = "run") -> list[Feature]:
    """The features of a table: its columns, each with all inputs that were made of it."""
    if data.feature_names is None:
        rule = "be on a table" if option == "run" else "be left out but for a table"
        raise ArgumentError(f"`{option}` must {rule}, whose features have names; got {data.name}.")
    encoding = data.train.encoding
    if encoding is None:
        scales = torch.ones(len(data.feature_names)) if data.input_scale is None else data.input_scale[1]
        return [
            Feature(name, (place,), False, float(scales[place]))
            for place, name in enumerate(data.feature_names)
        ]
    return [
        Feature(one.name, one.inputs, one.kind == "category", float(encoding.scales[one.inputs[0]]), one.mark)
        for one in encoding.columns
    ]


def named_feature(data: DataSet, name: str, option: str = "feature") -> Feature:
    """The feature of that name."""
    known = {one.name: one for one in features_of(data, "run" if option == "feature" else option)}
    require(name in known, option, f"be one of {', '.join(known)}", repr(name))
    return known[name]


def priced_cost(data: DataSet, prices: Mapping[str, float]) -> Cost:
    """Squared L2, weighted where the data have features of different kinds, times a price for some of them.

    Args:
        prices: of a move by one standard deviation, of another category, or of a gap; ∞ freezes. Others
            cost 1. They hold for all inputs of a column: a date has the price of its day and of its season.
    """
    width = math.prod(data.train.inputs.shape[1:])
    weights = torch.ones(width) if data.weights is None else data.weights.clone()
    free = torch.ones(width, dtype=torch.bool)
    for name, price in prices.items():
        feature = named_feature(data, name, "price")
        columns = [*feature.columns, *feature.mark]
        if math.isinf(price):
            free[columns] = False
        else:
            weights[columns] *= price
    require(bool(free.any()), "price", "leave at least one feature free to move", dict(prices))
    plain = data.weights is None and bool((weights == 1).all())
    cost: Cost = SquaredL2() if plain else WeightedL2(weights)
    return cost if bool(free.all()) else Masked(cost, free)
