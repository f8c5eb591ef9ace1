"""Sensitivity of a tree model to single columns: brackets where only one column moves.

A number moves at its price, in a mean of ρ; a category is replaced in some rows, at a price of 1 each, so
that ρ is their share. Missing values stay missing. Feature costs of the run are ignored, so that frozen
columns can be examined in their own units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.certificates import Certificate
from certus.certificates.trees import EncodedRows, certify_trees
from certus.data import Samples
from certus.errors import require, require_number, truncate
from certus.kernel.trees import Prices
from certus.runs.factory import Feature
from certus.runs.sensitivity import FeatureSensitivity, check_move_cost
from certus.runs.tree_run import TreeRun


@dataclass(frozen=True, eq=False)
class TreeMoves:
    """Moves of single columns of the rows of a tree model."""

    run: TreeRun
    rows: Samples

    @property
    def features(self) -> list[Feature]:
        """The columns that the model uses; the scale of a number is its standard deviation."""
        deviations = self.run.settings.deviations
        return [
            Feature(name, (place,), column.labels is not None, deviations.get(column.name, 1.0))
            for place, (name, column) in enumerate(zip(self.run.names, self.run.reading.columns, strict=True))
            if column.used
        ]

    def named(self, name: str) -> Feature:
        """Return the column of this name."""
        features = {feature.name: feature for feature in self.features}
        require(name in features, "feature", f"be one of {truncate(', '.join(features))}", repr(name))
        return features[name]

    @property
    def now(self) -> dict[str, float]:
        """Loss and, of classes, accuracy of the unmoved rows."""
        certificate = self._certificate(torch.full((len(self.run.prices.move),), math.inf).double(), 0.0)
        now = {"loss": certificate.clean_loss[1]}
        if self.run.reading.classes is not None:
            right = self.run.reading.encode_targets(self.run.reading.predict(self.rows.inputs))
            now["accuracy"] = float((right == self.rows.targets).double().mean())
        return now

    def cost_of_moving(self, feature: Feature, by: float) -> float:
        """Return ρ of a root mean square move in the table's units; for a category, the share of rows."""
        require_number("by", by)
        if feature.category:
            require(by <= 1, "by", "be a share of the rows, at most 1, for a category", by)
            return by
        return check_move_cost("by", by, (by / feature.scale) ** 2)

    def spread_cost(self, feature: Feature, share: float) -> float:
        """Return ρ of a root mean square move by a share of the column's standard deviation; of a category,
        of the probability that two rows differ."""
        cells: Tensor = self.rows.inputs[:, feature.columns[0]]
        cells = cells[~cells.isnan()]
        if not feature.category:
            return share**2 * float(cells.var(correction=0)) / feature.scale**2 if len(cells) else 0.0
        shares = torch.unique(cells, return_counts=True)[1] / max(1, len(cells))
        return share**2 * float(1 - (shares**2).sum())

    def move(self, feature: Feature, rho: float) -> FeatureSensitivity:
        """Bracket loss and error where only this column moves, at a mean cost of ρ."""
        move = torch.full((len(self.run.prices.move),), math.inf, dtype=torch.float64)
        move[feature.columns[0]] = 1.0 if feature.category else 1 / feature.scale**2
        certificate = self._certificate(move, rho)
        return FeatureSensitivity(feature, certificate.bracket(rho), str(certificate.evidence))

    def _certificate(self, move: Tensor, rho: float) -> Certificate:
        prices = Prices(move, torch.full_like(move, math.inf), self.run.prices.discrete)
        rows = EncodedRows(self.rows.inputs, self.rows.targets)
        return certify_trees(self.run.reading, rows, rho=rho, cost=prices, progress=False)
