"""Which features a run is fragile in: what happens if one moves, and nothing else.

The cost is the run's own with a mask: only the columns of one feature may move, by ρ in the mean. A number
has one column, a category has one for each of its values; changing it altogether costs 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from certus.certificates.certificate import Bracket
from certus.certificates.certify import certify_network
from certus.costs import Masked
from certus.data import DataSet
from certus.data.tables import ONE_HOT_WEIGHT
from certus.errors import ArgumentError, require
from certus.losses import Criterion, CrossEntropy, MissProbability, SmoothMargin
from certus.runs.held_out import named_split
from certus.runs.trained import TrainedRun
from certus.split import Split
from certus.subsets import Subset


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


@dataclass(frozen=True)
class Fragile:
    """One feature, moved alone by ρ; start: loss and error as they are."""

    feature: Feature
    bracket: Bracket
    evidence: str


def features_of(data: DataSet) -> list[Feature]:
    """The features of a table: columns ``town=Bern``, ``town=Chur`` … that share a category are one."""
    if data.feature_names is None:
        raise ArgumentError(f"`run` must be on a table, whose features have names; got one on {data.name}.")
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


def named_feature(data: DataSet, name: str) -> Feature:
    """The feature of that name."""
    known = {one.name: one for one in features_of(data)}
    require(name in known, "feature", f"be one of {', '.join(known)}", repr(name))
    return known[name]


def cost_of_moving(data: DataSet, feature: Feature, by: float) -> float:
    """ρ of a move by so much in root mean square, in the source's units; of a category, the share of rows
    that change it."""
    require(0 < by < math.inf, "by", "be positive and finite", by)
    if feature.category:
        require(by <= 1, "by", "be a share of the rows, at most 1, for a category", by)
        return by
    weight = 1.0 if data.weights is None else float(data.weights[feature.columns[0]])
    return weight * (by / feature.scale) ** 2


def spread_cost(data: DataSet, split: Split, feature: Feature, share: float) -> float:
    """ρ of a move by this share of the feature's spread, its standard deviation in the cost's norm."""
    columns = list(feature.columns)
    weights = torch.ones(len(columns)) if data.weights is None else data.weights[columns]
    variance = split.inputs[:, columns].double().var(0, correction=0)
    return share**2 * float((weights.double() * variance).sum())


def chosen_rows(trained: TrainedRun, split: str, samples: int | None, seed: int) -> Subset:
    """The rows that features are moved on."""
    data = named_split(trained.data, split)
    return Subset.of(data, f"{trained.data.name}@{split}", samples, seed=seed, stratify=True)


def move_feature(
    trained: TrainedRun, rows: Split, feature: Feature, rho: float, attack_steps: int = 5
) -> Fragile:
    """The bracket of loss and error where only this feature moves."""
    mask = torch.zeros(rows.inputs.shape[1], dtype=torch.bool)
    mask[list(feature.columns)] = True
    criterion: Criterion = trained.loss.criterion
    if isinstance(criterion, CrossEntropy | SmoothMargin | MissProbability):
        criterion = CrossEntropy()  # smoothing and margins are devices of training, not to be certified
    found = certify_network(
        trained.loss.model,
        rows,
        rho=rho,
        criterion=criterion,
        cost=Masked(trained.cost, mask),
        domain=trained.domain,
        balls=2,
        refine=0,
        attack_steps=attack_steps,
    )
    return Fragile(feature, found.bracket(rho), str(found.evidence))
