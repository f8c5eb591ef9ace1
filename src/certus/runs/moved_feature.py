"""Which features a run is fragile in: what happens if one moves, and nothing else.

The cost is the run's own with a mask: only the columns of one feature may move, by ρ in the mean. A number
has one column, a category has one for each of its values; changing it altogether costs 1. Prices that the run
was trained with are left out: how far a feature moves is asked in its own units, frozen ones too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from certus.certificates.certificate import Bracket
from certus.certificates.certify import certify_network
from certus.costs import Masked
from certus.data import DataSet
from certus.errors import LARGEST, LEAST, require, require_number
from certus.losses import Criterion, CrossEntropy, MissProbability, SmoothMargin
from certus.runs.building import natural_cost
from certus.runs.held_out import named_split
from certus.runs.table_features import Feature
from certus.runs.trained import TrainedRun
from certus.split import Split
from certus.subsets import Subset


@dataclass(frozen=True)
class Fragile:
    """One feature, moved alone by ρ; start: loss and error as they are."""

    feature: Feature
    bracket: Bracket
    evidence: str

    @property
    def rank(self) -> tuple[float, float]:
        """The larger, the more fragile: by what is proven of the error, then of the loss."""
        return (self.bracket.error_high or 0.0, self.bracket.loss_high)


def cost_of_moving(data: DataSet, feature: Feature, by: float) -> float:
    """ρ of a move by so much in root mean square, in the source's units; of a category, the share of rows
    that change it."""
    require_number("by", by)
    if feature.category:
        require(by <= 1, "by", "be a share of the rows, at most 1, for a category", by)
        return by
    weight = 1.0 if data.weights is None else float(data.weights[feature.columns[0]])
    return bearable_cost("by", by, weight * (by / feature.scale) * (by / feature.scale))


def bearable_cost(name: str, value: float, rho: float) -> float:
    """ρ, if there is one to certify at; raises ``ArgumentError`` about the value that it comes from."""
    rule = f"be a move that costs from {LEAST:g} to {LARGEST:g}"
    require(LEAST <= rho <= LARGEST, name, rule, f"{value}, which costs {rho:g}")
    return rho


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
        cost=Masked(natural_cost(trained.data) if trained.settings.price else trained.cost, mask),
        domain=trained.domain,
        balls=2,
        refine=0,
        attack_steps=attack_steps,
    )
    return Fragile(feature, found.bracket(rho), str(found.evidence))
