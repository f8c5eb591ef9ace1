"""``RobustClassifier`` and ``RobustRegressor``: networks for rows, trained to hold up when the rows move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from certus._defaults import ESTIMATOR
from certus.costs import LabelCost
from certus.errors import ArgumentError, require, require_number
from certus.estimators.base import RobustEstimator, fold_outputs, is_sizes
from certus.losses import Criterion, CrossEntropy, SquaredError


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]
    """Classifier of rows with cross-entropy, trained on the worst case near each sample (alg:thealg).

    Args:
        gamma: γ, the price of a unit of transport cost in units of the loss; the smaller, the more robust.
        rho: instead of γ, how far the sample is moved: a mean *squared* distance. 0 trains plainly. 0.01 if
            neither is given: with the default prices, a tenth of a standard deviation.
        certified: keep the network where the inner problem is *proven* to be concave (certified training).
        network: widths of hidden layers, () for a linear model; a ``torch.nn.Module``, which is copied and
            takes the rows as they are; or a function of ``inputs`` and ``outputs`` that makes one.
        feature_costs: p_j in c = Σ p_j (x_j − x₀_j)²: one for all, one for each feature, or a mapping from
            names or positions; ∞ freezes a feature. By default 1/variance in the training data.
        label_cost: what changing a label costs; labels never move without one.
        class_weight: a mapping from labels to weights, or "balanced".
        epochs, batch_size, learning_rate, weight_decay: of Adam, with a learning rate that falls to 0.
        early_stopping: hold out ``validation_fraction`` of the samples, and stop when their loss has not
            fallen for ``patience`` epochs.
        random_state: of the first weights and the order of the samples. None draws a new seed at each fit;
            NumPy's global generator is left alone.
        verbose: 1 prints some ten lines, 2 one for each epoch.

    Attributes:
        classes_: the labels.
        module_: the network, in float64, of rows in their own units; ``certus.certify`` takes it.
        cost_, feature_costs_, feature_spreads_: the transport cost, its prices, and standard deviations.
        gamma_, rho_hat_: γ at the end, None if trained plainly, and how far the sample moves there
            (*estimated*).
        curvature_: with ``certified``, the *proven* bound on the curvature of the loss, below 2γ.
        n_iter_, loss_curve_: epochs, and the mean training loss of each.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RobustClassifier(rho=0.05, epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        gamma: float | None = None,
        rho: float | None = None,
        certified: bool = False,
        *,
        network: Any = (32,),
        feature_costs: Any = None,
        label_cost: float | None = None,
        class_weight: Any = None,
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
        self.certified = certified
        self.network = network
        self.feature_costs = feature_costs
        self.label_cost = label_cost
        self.class_weight = class_weight
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustClassifier:
        """Train on rows X, (n, features), with labels y; ``sample_weight`` weights the samples."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        X, y, weights = self._positive(X, y, sample_weight)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ArgumentError(
                f"A classifier needs samples of 2 classes at least; got 1 class: {self.classes_}."
            )
        self.class_weight_ = None
        if self.class_weight is not None:
            self.class_weight_ = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            require(bool((self.class_weight_ > 0).all()), "class_weight", "be positive", self.class_weight)
            weights = weights * self.class_weight_[codes]
        targets = torch.from_numpy(codes.astype(np.int64))
        plain = isinstance(self.certified, bool | np.bool_)
        require(plain, "certified", "be True or False", repr(self.certified))
        if self.label_cost is not None:
            require_number("label_cost", self.label_cost)
        self._train(X, targets, weights, len(self.classes_), bool(self.certified), unit=1.0)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return (n, classes) outputs of the network; for two classes (n,) the second minus the first."""
        scores = self._outputs(X)
        return np.asarray(scores[:, 1] - scores[:, 0]) if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return (n, classes) probabilities, the softmax of the network's outputs."""
        return np.asarray(torch.from_numpy(self._outputs(X)).softmax(1).numpy())

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return (n, classes) log-probabilities."""
        return np.asarray(torch.from_numpy(self._outputs(X)).log_softmax(1).numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Return (n,) labels."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[outputs.argmax(1)])

    def _criterion(self) -> Criterion:
        return CrossEntropy()

    def _label_cost(self) -> LabelCost | None:
        return None if self.label_cost is None else LabelCost(self.label_cost, len(self.classes_))

    def _encoded(self, y: Any) -> Tensor:
        labels = column_or_1d(y)
        place = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        unknown = self.classes_[place] != labels
        if unknown.any():
            legal = ", ".join(map(str, self.classes_))
            raise ArgumentError(f"`y` must hold labels seen in training, {legal}; got {labels[unknown][0]}.")
        return torch.from_numpy(place.astype(np.int64))

    def _decoded(self, targets: Tensor) -> np.ndarray:
        return np.asarray(self.classes_[targets.numpy()])

    def _emphasis(self, y: Any) -> np.ndarray | None:
        return None if self.class_weight_ is None else self.class_weight_[self._encoded(y).numpy()]


class RobustRegressor(RegressorMixin, RobustEstimator):  # type: ignore[misc]
    """Regression of one number on rows with squared error, trained on the worst case near each sample.

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
        feature_costs: Any = None,
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
        self.feature_costs = feature_costs
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
        """Train on rows X, (n, features), and numbers y; ``sample_weight`` weights the samples."""
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
        """Return (n,) numbers."""
        outputs = self._outputs(X)
        return outputs.reshape(len(outputs))

    def _criterion(self) -> Criterion:
        return SquaredError()

    def _encoded(self, y: Any) -> Tensor:
        return torch.from_numpy(np.array(column_or_1d(y), dtype=np.float64))

    def _decoded(self, targets: Tensor) -> np.ndarray:
        return np.asarray(targets.numpy())


def loss_bound_scorer(rho: float) -> Callable[[RobustEstimator, Any, Any], float]:
    """Return a scorer by minus the certified loss: no distribution within ρ of (X, y) has a larger mean loss.

    Pass it as ``scoring`` to ``GridSearchCV`` or ``cross_val_score``; the larger, the better.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> model = RobustClassifier(network=(), epochs=5, random_state=0)
    >>> scores = cross_val_score(model, *load_iris(return_X_y=True), cv=3, scoring=loss_bound_scorer(0.01))
    >>> scores.shape, bool((scores < 0).all())
    ((3,), True)
    """
    require_number("rho", rho, zero=True)
    return lambda estimator, X, y: -estimator.certify(X, y, rho).bound(rho)


def error_bound_scorer(rho: float) -> Callable[[RobustEstimator, Any, Any], float]:
    """Return a scorer of classifiers by 1 minus the certified error rate within ρ of (X, y)."""
    require_number("rho", rho, zero=True)

    def score(estimator: RobustEstimator, X: Any, y: Any) -> float:
        bound = estimator.certify(X, y, rho).error_bound(rho)
        if bound is None:
            raise ArgumentError(
                "`estimator` must be a classifier, whose errors have a bound; got a regressor."
            )
        return 1 - bound

    return score
