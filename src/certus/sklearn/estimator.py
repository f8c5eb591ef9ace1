"""What ``RobustClassifier`` and ``RobustRegressor`` share: training, certificates and files.

Training minimises the robust surrogate on the (weighted) sample,

    Σᵢ wᵢ φ_γ(θ; (xᵢ, yᵢ)) / Σᵢ wᵢ,      φ_γ = sup_x ℓ(θ; (x, y)) − γ c(x, xᵢ)          [eqn:inner-sup]

by Algorithm 1 in float64, at a given γ or at the γ that moves the sample by a mean cost of ρ.
"""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from certus.bounds import input_smoothness
from certus.certificates import Certificate, certify_straight
from certus.costs import LabelCost
from certus.errors import ArgumentError, as_count, require, require_number
from certus.inner import WRM, default_maximizer
from certus.losses import Criterion
from certus.sklearn.fragility import FeatureBracket, fragile
from certus.sklearn.prices import cost_of, feature_spreads, read_prices
from certus.sklearn.watching import EarlyStopping, EpochLines
from certus.sklearn.wiring import fold_inputs, is_sizes, make_network
from certus.sklearn.worst import WorstCase
from certus.split import Split
from certus.training import Observer, fit

_RHO = 0.01
_GRADIENTS = 5  # of one inner problem: more buy little on small networks


class RobustEstimator(BaseEstimator):  # type: ignore[misc]
    """Everything but what targets are; see its two kinds."""

    module_: nn.Module

    @abstractmethod
    def _criterion(self) -> Criterion: ...

    @abstractmethod
    def _encoded(self, y: Any) -> Tensor:
        """(n,) targets as the network is certified with them."""

    @abstractmethod
    def _decoded(self, targets: Tensor) -> np.ndarray:
        """The reverse."""

    def _label_cost(self) -> LabelCost | None:
        return None

    def _emphasis(self, y: Any) -> np.ndarray | None:
        """(n,) factors of the weights that follow from the targets; None for none."""
        return None

    def _rows(self, X: Any) -> Tensor:
        """(n, features) float64 of data to be judged by the fitted network."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return torch.from_numpy(np.array(rows))

    def _outputs(self, X: Any) -> np.ndarray:
        rows = self._rows(X)
        with torch.no_grad():
            return np.asarray(self.module_(rows).numpy())

    def _positive(self, X: Any, y: Any, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, targets and weights of the samples that count at all."""
        if sample_weight is not None and not np.asarray(sample_weight).any():
            raise ArgumentError("`sample_weight` must not be zero for all samples: nothing is left to learn.")
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
        if (weights < 0).any():
            raise ArgumentError("`sample_weight` must not be negative.")
        counted = weights > 0
        return X[counted], y[counted], weights[counted]

    def _train(
        self, X: np.ndarray, targets: Tensor, weights: np.ndarray, outputs: int, certified: bool, unit: float
    ) -> None:
        """Fit ``module_``.

        Args:
            unit: of the loss: how many of its own the caller's γ counts for one here.
        """
        self._check_parameters()
        seed = int(_generator(self.random_state).randint(2**31 - 1))
        mean, spread = feature_spreads(X, weights)
        self.feature_spreads_ = spread
        names = getattr(self, "feature_names_in_", None)
        self.feature_prices_ = read_prices(self.feature_prices, spread, names)
        module = make_network(self.network, X.shape[1], outputs, certified=certified, seed=seed)
        inside = is_sizes(self.network)
        inputs = torch.from_numpy((X - mean) / spread if inside else np.array(X))
        prices = self.feature_prices_ * spread**2 if inside and self.feature_prices is not None else None
        cost = cost_of(
            self.feature_prices_ if not inside else np.ones(len(spread)) if prices is None else prices
        )
        gamma, rho = self.gamma, self.rho
        if gamma is None and rho is None:
            rho = _RHO
        method = None
        if gamma is not None or rho > 0:
            method = WRM(
                None if gamma is None else gamma / unit,
                rho=rho,
                cost=cost,
                label_cost=self._label_cost(),
                maximizer=default_maximizer(cost, max_gradients=_GRADIENTS),
            )
        counts = torch.from_numpy(np.array(weights))
        watchers: list[Observer] = [EpochLines(int(self.verbose))] if self.verbose else []
        data = Split(inputs, targets, counts)
        if self.early_stopping:
            data, watcher = self._held_out(data, seed)
            watchers.append(watcher)
        found = fit(
            module,
            data,
            method=method,
            criterion=self._criterion(),
            epochs=self.epochs,
            batch_size=min(int(self.batch_size), len(data)),
            optimizer=lambda groups: Adam(groups, lr=self.learning_rate),
            schedule=lambda optimizer: CosineAnnealingLR(optimizer, self.epochs),
            weight_decay=self.weight_decay,
            certified=certified,
            seed=seed,
            fabric=Fabric(accelerator="cpu", devices=1),
            observers=watchers,
            progress=False,
        )
        if inside:
            fold_inputs(module, torch.from_numpy(mean), torch.from_numpy(spread))
        self.module_, self.cost_ = module, cost_of(self.feature_prices_)
        self.n_iter_ = len(found.history)
        self.loss_curve_ = [epoch.loss * unit for epoch in found.history]
        robust = found.robustness
        self.gamma_ = None if robust is None else robust.gamma * unit
        self.rho_hat_ = 0.0 if robust is None else robust.rho_hat
        self.curvature_ = None
        if certified:
            bound = input_smoothness(module, self._criterion(), input_shape=(X.shape[1],), cost=self.cost_)
            self.curvature_ = bound.curvature

    def _check_parameters(self) -> None:
        both = self.gamma is not None and self.rho is not None
        require(not both, "gamma", "be left out where `rho` is given", f"{self.gamma} and {self.rho}")
        if self.gamma is not None:
            require_number("gamma", self.gamma)
        if self.rho is not None:
            require_number("rho", self.rho, zero=True)
        as_count("epochs", self.epochs)
        as_count("batch_size", self.batch_size)
        require_number("learning_rate", self.learning_rate)
        require(isinstance(self.verbose, Integral), "verbose", "be 0, 1 or 2", repr(self.verbose))

    def _held_out(self, data: Split, seed: int) -> tuple[Split, EarlyStopping]:
        """The samples to train on, and who watches the others."""
        share = self.validation_fraction
        inside = isinstance(share, Real) and 0 < float(share) < 1
        require(inside, "validation_fraction", "lie between 0 and 1", repr(share))
        labels = None if data.targets.is_floating_point() else data.targets.numpy()
        try:
            train, others = train_test_split(
                np.arange(len(data)), test_size=share, random_state=seed, stratify=labels
            )
        except ValueError as reason:
            raise ArgumentError(f"`early_stopping` cannot hold out a share of {share}: {reason}") from None
        index, held = torch.from_numpy(train), torch.from_numpy(others)
        return data[index], EarlyStopping(data[held], self._criterion(), as_count("patience", self.patience))

    def certify(
        self,
        X: Any,
        y: Any,
        rho: float | list[float],
        *,
        sample_weight: Any = None,
        confidence: float | None = None,
        **options: Any,
    ) -> Certificate:
        """Bracket the worst loss (and error rate) over all distributions within transport cost ρ of (X, y).

        Args:
            rho: mean transport costs, in the prices ``feature_prices_``; one or several.
            sample_weight: certifies the weighted sample, and so does ``class_weight``; both are refused
                with ``confidence``, which takes the samples for independent draws.
            confidence: 1 − δ, for the population that X and y were drawn from; nothing may have been fitted
                or tuned on them.
            options: of ``certus.certificates.certify_network``.
        """
        check_is_fitted(self)
        return certify_straight(
            self.module_,
            self._samples(X, y, sample_weight, confidence),
            rho=rho,
            criterion=self._criterion(),
            cost=self.cost_,
            label_cost=self._label_cost(),
            confidence=confidence,
            **options,
        )

    def _samples(self, X: Any, y: Any, sample_weight: Any, confidence: float | None = None) -> Split:
        inputs, targets, factors = self._rows(X), self._encoded(y), self._emphasis(y)
        if sample_weight is None and factors is None:
            return Split(inputs, targets)
        if confidence is not None:
            name = "sample_weight" if sample_weight is not None else "class_weight"
            raise ArgumentError(
                f"`{name}` must be left out with `confidence`: a weighted sample is no independent draw from "
                f"a population; got confidence={confidence}."
            )
        weights = _check_sample_weight(sample_weight, inputs.numpy(), dtype=np.float64)
        counts = torch.from_numpy(np.array(weights if factors is None else weights * factors))
        return Split(inputs, targets, counts)

    def worst_case(self, X: Any, y: Any, rho: float, *, sample_weight: Any = None) -> WorstCase:
        """The worst distribution found within transport cost ρ of (X, y): moved rows with weights."""
        found = self.certify(X, y, rho, sample_weight=sample_weight)
        data, weights = found.worst_case_data(rho)
        return WorstCase(
            X=data.inputs.numpy(),
            y=self._decoded(data.targets),
            weights=weights.numpy(),
            rho=float(rho),
            loss=found.lower(rho),
            bound=found.bound(rho),
        )

    def fragile_features(
        self, X: Any, y: Any, *, by: float = 0.1, sample_weight: Any = None
    ) -> list[FeatureBracket]:
        """How bad it can get if one feature alone moves, for each feature; the most fragile first.

        Args:
            by: how far it moves, in root mean square, in units of its ``feature_spreads_``.
        """
        data = self._samples(X, y, sample_weight)
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(data.inputs.shape[1])])
        return fragile(
            self.module_,
            data,
            self._criterion(),
            spreads=self.feature_spreads_,
            names=[str(name) for name in names],
            by=by,
        )

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator into one file of tensors and JSON, which executes nothing when read.

        ``certus.sklearn.load_estimator`` reads it.
        """
        from certus.sklearn.saving import save_estimator  # which knows both kinds of estimators

        save_estimator(self, Path(path))


def _generator(random_state: Any) -> np.random.RandomState:
    """The generator of a ``random_state``; for None a new one, so that NumPy's global one stays as it is."""
    if random_state is None:
        return np.random.RandomState()
    generator: np.random.RandomState = check_random_state(random_state)
    return generator
