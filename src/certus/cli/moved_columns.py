"""Which columns of a table have moved, by how much, and how far the populations are apart, estimated."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus._format import at_least
from certus.certificates.transport import column_shifts, wider_cost
from certus.cli.output import console
from certus.costs import Cost
from certus.datasets import SplitDataset
from certus.display.text import make_table, number
from certus.runs.factory import features_of, natural_cost

_MOST = 10


@dataclass(frozen=True)
class MovedFeature:
    """One feature between two samples.

    Attributes:
        cost: W_c of its inputs alone, those that tell gaps and seasons included; proven for the samples.
        moved: in root mean square, in standard deviations (of a date, its day); of a category, the share of
            rows that changed. Whatever its price.
        before, after: means in the source's units; None for a category.
    """

    feature: str
    cost: float
    moved: float
    before: float | None
    after: float | None


def shifted_features(data: SplitDataset, first: Tensor, second: Tensor, cost: Cost) -> list[MovedFeature]:
    """The features of a table, the most moved first; none for data without names or another cost."""
    if data.feature_names is None:
        return []
    encoding, natural, unknown = data.train.encoding, natural_cost(data), {}
    if encoding is not None and encoding.categories:
        width = first.shape[1]
        unknown = {column.name: [width + at] for at, column in enumerate(encoding.categories)}
        first, second = (torch.cat([part, encoding.unknown(part)], 1) for part in (first, second))
        cost, natural = wider_cost(cost, encoding), wider_cost(natural, encoding)
    costs, plain = column_shifts(first, second, cost), column_shifts(first, second, natural)
    if costs is None or plain is None:
        return []
    found = []
    for one in features_of(data):
        columns = [*one.columns, *unknown.get(one.name, ())]
        means: list[float | None] = [None, None]
        if not one.category:
            shift = 0.0 if data.input_scale is None else float(data.input_scale[0][columns[0]])
            means = [
                float(part[:, columns[0]].double().mean()) * one.scale + shift for part in (first, second)
            ]
        away = float(plain[columns].sum()) if one.category else math.sqrt(float(plain[columns[0]]))
        found.append(MovedFeature(one.name, float(costs[[*columns, *one.mark]].sum()), away, *means))
    return sorted(found, key=lambda one: -one.cost)


def show_moved(moved: list[MovedFeature], estimate: float | None, second: str) -> None:
    """A table of the most moved features, and the estimate."""
    if moved:
        shown = make_table("feature", "moved by (rms)", "cost", "mean before", "after")
        for one in moved[:_MOST]:
            away = f"{one.moved:.1%} of rows" if one.before is None else f"{one.moved:.3g} deviations"
            shown.add_row(one.feature, away, number(one.cost, 3), number(one.before), number(one.after))
        console.print(shown)
        total = sum(one.cost for one in moved)
        more = f" ({len(moved) - _MOST} more moved less)" if len(moved) > _MOST else ""
        console.print(
            f"The transport cost between the samples is at least {at_least(total)}, the sum over all "
            f"features{more} (proven). rms: root mean square over the rows."
        )
    if estimate is not None:
        console.print(
            f"The transport cost between the populations is about {number(max(0.0, estimate), 3)} "
            f"(estimated, from halves of both samples). The estimate is too small if the spread of {second} "
            "has changed: do not use it as the rho of a certificate."
        )
