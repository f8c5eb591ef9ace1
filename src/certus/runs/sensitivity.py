"""Which features a run is fragile in: what happens if one moves, and nothing else.

A number moves in the natural cost of the table with a mask: only its own inputs may move, by ρ in the mean.
A date moves with its season: the proven side grants what so many days cost at most, and the attained side
keeps to these days. A missing value stays missing. A category is changed in a share of the rows, and every
value of it is tried. Prices that the run was trained with are left out: how far a feature moves is asked in
its own units, frozen ones too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from certus.certificates import certify
from certus.certificates.category_changes import bracket_category_changes
from certus.certificates.certificate import Bracket
from certus.certificates.proven.problem import Problem
from certus.costs import Masked
from certus.data import YEAR, Samples, Subset
from certus.datasets import SplitDataset
from certus.errors import LARGEST, LEAST, require, require_number
from certus.evidence import Evidence
from certus.losses import Criterion, CrossEntropy, MissProbability, SmoothMargin
from certus.runs.factory import Feature, default_cost
from certus.runs.loaded_run import LoadedRun, named_split


@dataclass(frozen=True)
class FeatureSensitivity:
    """One feature, moved alone by ρ; start: loss and error as they are."""

    feature: Feature
    bracket: Bracket
    evidence: str

    @property
    def rank(self) -> tuple[float, float]:
        """The larger, the more fragile: by what is proven of the error, then of the loss."""
        return (self.bracket.error_high or 0.0, self.bracket.loss_high)


def cost_of_moving(data: SplitDataset, feature: Feature, by: float) -> float:
    """ρ of a move by so much in root mean square, in the source's units; of a category, the share of rows
    that change it."""
    require_number("by", by)
    if feature.category:
        require(by <= 1, "by", "be a share of the rows, at most 1, for a category", by)
        return by
    return check_move_cost("by", by, by * by * _unit_cost(data, feature))


def _unit_cost(data: SplitDataset, feature: Feature) -> float:
    """The cost of a move by one of the source's units; of a date by a day, at most: on the circle of the year
    a chord is no longer than its arc."""
    prices = _unit_prices(data, feature)
    return prices[0] + (2 * math.pi / YEAR) ** 2 * max(prices[1:], default=0.0)


def _unit_prices(data: SplitDataset, feature: Feature) -> list[float]:
    """The cost of a move by one of the source's units in each input; of a date the day comes first."""
    encoding, columns = data.train.encoding, list(feature.columns)
    weights = torch.ones(len(columns)) if data.weights is None else data.weights[columns]
    scales = torch.tensor([feature.scale], dtype=torch.float64)
    if encoding is not None:
        scales = encoding.scales[columns]
    return [float(price) for price in weights.double() / scales**2]


def check_move_cost(name: str, value: float, rho: float) -> float:
    """ρ, if there is one to certify at; raises ``ArgumentError`` about the value that it comes from."""
    rule = f"be a move that costs from {LEAST:g} to {LARGEST:g}"
    require(LEAST <= rho <= LARGEST, name, rule, f"{value}, which costs {rho:g}")
    return rho


def spread_cost(data: SplitDataset, split: Samples, feature: Feature, share: float) -> float:
    """ρ of a move by this share of the feature's standard deviation in root mean square; of a category, of
    its spread in the cost's norm."""
    columns = list(feature.columns)
    variance = split.inputs[:, columns].double().var(0, correction=0)
    if not feature.category:
        return (share * feature.scale) ** 2 * float(variance[0]) * _unit_cost(data, feature)
    weights = torch.ones(len(columns)) if data.weights is None else data.weights[columns]
    return share**2 * float((weights.double() * variance).sum())


def choose_subset(trained: LoadedRun, split: str, samples: int | None, seed: int) -> Subset:
    """The rows that features are moved on."""
    data = named_split(trained.data, split)
    return Subset.of(data, f"{trained.data.name}@{split}", samples, seed=seed, stratify=True)


def move_feature(
    trained: LoadedRun, rows: Samples, feature: Feature, rho: float, attack_steps: int = 5
) -> FeatureSensitivity:
    """The bracket of loss and error where only this feature moves.

    Args:
        rho: mean cost of the moves; of a category, the share of rows that change it.
    """
    mask = torch.zeros(rows.inputs.shape[1], dtype=torch.bool)
    mask[list(feature.columns)] = True
    criterion: Criterion = trained.loss.criterion
    if isinstance(criterion, CrossEntropy | SmoothMargin | MissProbability):
        criterion = CrossEntropy()  # smoothing and margins are devices of training, not to be certified
    cost = Masked(default_cost(trained.data), mask)
    if feature.category:
        problem = Problem.of(trained.loss.model, rows, criterion, cost, trained.domain)
        bracket = bracket_category_changes(problem, feature.columns, rho * len(rows), rho)
        return FeatureSensitivity(feature, bracket, str(Evidence.resting_on(problem.assumptions)))
    found = certify(
        trained.loss.model,
        rows,
        rho=rho,
        criterion=criterion,
        cost=cost,
        domain=trained.domain,
        local_radii=2,
        gamma_rounds=0,
        attack_steps=attack_steps,
        progress=False,
    )
    bracket = found.bracket(rho)
    if len(feature.columns) > 1:
        # Every cost is at least that of its days: within this one, no more of them are moved than asked for.
        days = rho * _unit_prices(trained.data, feature)[0] / _unit_cost(trained.data, feature)
        bracket = replace(bracket, loss_low=found.lower(days), error_low=found.error_lower(days))
    return FeatureSensitivity(feature, bracket, str(found.evidence))
