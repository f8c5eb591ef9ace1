"""Sensitivity of a run to single features: brackets where only one feature moves.

A number moves in the default cost of the table, masked to its own inputs, by ρ in the mean. A date moves
with its season: the upper bound allows the largest cost of that many days, the lower bound moves by these
days exactly. A missing value stays missing. A category is changed in a share of the rows, to every other
value. Feature costs of the run are ignored, so that frozen features can be examined in their own units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from certus.certificates import certify
from certus.certificates.category_changes import bracket_category_changes
from certus.certificates.certificate import Bracket
from certus.certificates.problem import Problem
from certus.costs import Masked
from certus.data import YEAR, Samples
from certus.datasets import SplitDataset
from certus.errors import LARGEST, LEAST, require, require_number
from certus.runs.factory import Feature, default_cost, features_of, named_feature
from certus.runs.loaded_run import LoadedRun
from certus.training.metrics import clean_metrics


@dataclass(frozen=True)
class FeatureSensitivity:
    """Bracket of loss and error where one feature moves alone by ρ."""

    feature: Feature
    bracket: Bracket
    evidence: str

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key, larger for more sensitive features: upper bound of the error, then of the loss."""
        return (self.bracket.error_high or 0.0, self.bracket.loss_high)


def cost_of_moving(data: SplitDataset, feature: Feature, by: float) -> float:
    """Return ρ of a root mean square move in the source's units; for a category, the share of changed
    rows."""
    require_number("by", by)
    if feature.category:
        require(by <= 1, "by", "be a share of the rows, at most 1, for a category", by)
        return by
    return check_move_cost("by", by, by * by * _unit_cost(data, feature))


def _unit_cost(data: SplitDataset, feature: Feature) -> float:
    """Cost of a move by one unit of the source; for a date at most that of a day, since on the circle of
    the year a chord is no longer than its arc."""
    prices = _unit_prices(data, feature)
    return prices[0] + (2 * math.pi / YEAR) ** 2 * max(prices[1:], default=0.0)


def _unit_prices(data: SplitDataset, feature: Feature) -> list[float]:
    """Costs of a move by one unit of the source, in each input; the day of a date comes first."""
    encoding, columns = data.train.encoding, list(feature.columns)
    weights = torch.ones(len(columns)) if data.weights is None else data.weights[columns]
    scales = torch.tensor([feature.scale], dtype=torch.float64)
    if encoding is not None:
        scales = encoding.scales[columns]
    return [float(price) for price in weights.double() / scales**2]


def check_move_cost(name: str, value: float, rho: float) -> float:
    """Return ρ if it can be certified; raise ``ArgumentError`` about the value that it was derived from."""
    rule = f"be a move that costs from {LEAST:g} to {LARGEST:g}"
    require(LEAST <= rho <= LARGEST, name, rule, f"{value}, which costs {rho:g}")
    return rho


def spread_cost(data: SplitDataset, split: Samples, feature: Feature, share: float) -> float:
    """Return ρ of a root mean square move by this share of the feature's standard deviation; for a
    category, of its spread in the norm of the cost."""
    columns = list(feature.columns)
    variance = split.inputs[:, columns].double().var(0, correction=0)
    if not feature.category:
        return (share * feature.scale) ** 2 * float(variance[0]) * _unit_cost(data, feature)
    weights = torch.ones(len(columns)) if data.weights is None else data.weights[columns]
    return share**2 * float((weights.double() * variance).sum())


def move_feature(
    trained: LoadedRun, rows: Samples, feature: Feature, rho: float, attack_steps: int = 5
) -> FeatureSensitivity:
    """Bracket loss and error where only this feature moves: at a mean cost of ``rho``, or for a category in
    that share of the rows."""
    mask = torch.zeros(rows.inputs.shape[1], dtype=torch.bool)
    mask[list(feature.columns)] = True
    criterion, cost = trained.certified_criterion, Masked(default_cost(trained.data), mask)
    if feature.category:
        problem = Problem.of(trained.loss.model, rows, criterion, cost, trained.domain)
        bracket, evidence = bracket_category_changes(problem, feature.columns, rho * len(rows), rho)
        return FeatureSensitivity(feature, bracket, str(evidence))
    certificate = certify(
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
    bracket = certificate.bracket(rho)
    if len(feature.columns) > 1:
        # Every cost is at least that of its days: within this one, no more of them are moved than asked for.
        days = rho * _unit_prices(trained.data, feature)[0] / _unit_cost(trained.data, feature)
        bracket = replace(bracket, loss_low=certificate.lower(days), error_low=certificate.error_lower(days))
    return FeatureSensitivity(feature, bracket, str(certificate.evidence))


@dataclass(frozen=True, eq=False)
class NetworkMoves:
    """Moves of single features of the rows of a network's table."""

    run: LoadedRun
    rows: Samples

    @property
    def features(self) -> list[Feature]:
        return features_of(self.run.data)

    def named(self, name: str) -> Feature:
        """Return the feature of this name."""
        return named_feature(self.run.data, name)

    @property
    def now(self) -> dict[str, float]:
        """Loss and, of classes, accuracy of the unmoved rows."""
        return clean_metrics(self.run.loss, self.rows)

    def cost_of_moving(self, feature: Feature, by: float) -> float:
        return cost_of_moving(self.run.data, feature, by)

    def spread_cost(self, feature: Feature, share: float) -> float:
        return spread_cost(self.run.data, self.rows, feature, share)

    def move(self, feature: Feature, rho: float) -> FeatureSensitivity:
        return move_feature(self.run, self.rows, feature, rho)
