"""Features of a table between two samples: how far each of them moved alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.certificates.transport import column_shifts, wider_cost
from certus.costs import Cost
from certus.datasets import SplitDataset
from certus.runs.factory import default_cost, features_of


@dataclass(frozen=True)
class MovedFeature:
    """Distance of a single feature between two samples: W_c of its inputs alone, proven for the samples; its
    root mean square move in standard deviations, or the share of changed rows; and both means."""

    feature: str
    cost: float
    moved: float
    before: float | None
    after: float | None


def shifted_features(data: SplitDataset, first: Tensor, second: Tensor, cost: Cost) -> list[MovedFeature]:
    """Return the features of a table, the most moved first; none for data without names or another cost."""
    if data.feature_names is None:
        return []
    encoding, natural, unknown = data.train.encoding, default_cost(data), {}
    if encoding is not None and encoding.categories:
        width = first.shape[1]
        unknown = {column.name: [width + at] for at, column in enumerate(encoding.categories)}
        first, second = (torch.cat([part, encoding.unknown(part)], 1) for part in (first, second))
        cost, natural = wider_cost(cost, encoding), wider_cost(natural, encoding)
    costs, plain = column_shifts(first, second, cost), column_shifts(first, second, natural)
    if costs is None or plain is None:
        return []
    features = []
    for feature in features_of(data):
        columns = [*feature.columns, *unknown.get(feature.name, ())]
        means: list[float | None] = [None, None]
        if not feature.category:
            shift = 0.0 if data.input_scale is None else float(data.input_scale[0][columns[0]])
            means = [
                float(part[:, columns[0]].double().mean()) * feature.scale + shift for part in (first, second)
            ]
        away = float(plain[columns].sum()) if feature.category else math.sqrt(float(plain[columns[0]]))
        own_cost = float(costs[[*columns, *feature.mark]].sum())
        features.append(MovedFeature(feature.name, own_cost, away, *means))
    return sorted(features, key=lambda feature: -feature.cost)
