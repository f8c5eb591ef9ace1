"""``RobustRegressor``: a network that predicts numbers, trained to hold up when the rows move."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from certus._defaults import ESTIMATOR
from certus.estimators.base import RobustEstimator, fold_outputs, is_sizes
from certus.losses import Criterion, SquaredError


class RobustRegressor(RegressorMixin, RobustEstimator):  # type: ignore[misc]
    """A regression of one number on rows with the squared error, trained on the worst case near each sample.

    Its parameters and attributes are those of ``RobustClassifier`` where they make sense; γ is in units of
    the squared target. A squared error has no smoothness bound over all inputs, so that there is no
    ``certified`` training.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RobustRegressor(rho=0.01, network=(), epochs=40, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.4)
    True
    """

    def __init__(
        self,
        gamma: float | None = None,
        rho: float | None = None,
        *,
        network: Any = (32,),
        feature_prices: Any = None,
        epochs: int = ESTIMATOR.epochs,
        batch_size: int = ESTIMATOR.batch_size,
        learning_rate: float = ESTIMATOR.learning_rate,
        weight_decay: float = 0.0,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.rho = rho
        self.network = network
        self.feature_prices = feature_prices
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustRegressor:
        """Train on rows X, (n, features), and numbers y; ``sample_weight`` says how much each counts."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        X, y, weights = self._positive(X, y.astype(np.float64), sample_weight)
        mean, spread = 0.0, 1.0
        if is_sizes(self.network):
            mean = float(np.average(y, weights=weights))
            spread = float(np.sqrt(np.average((y - mean) ** 2, weights=weights))) or 1.0
        targets = torch.from_numpy((y - mean) / spread)
        self._train(X, targets, weights, 1, certified=False, unit=spread**2)
        if is_sizes(self.network):
            fold_outputs(self.module_, mean, spread)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """(n,) numbers."""
        outputs = self._outputs(X)
        return outputs.reshape(len(outputs))

    def _criterion(self) -> Criterion:
        return SquaredError()

    def _encoded(self, y: Any) -> Tensor:
        return torch.from_numpy(np.array(column_or_1d(y), dtype=np.float64))

    def _decoded(self, targets: Tensor) -> np.ndarray:
        return np.asarray(targets.numpy())
