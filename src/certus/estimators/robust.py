"""``RobustClassifier`` and ``RobustRegressor``: networks for rows, trained to hold up when the rows move.

A fitted estimator is saved in one file of tensors and JSON, which executes nothing when read: parameters,
labels, names of the features and weights. A network that the user gave as a module or a function is code,
and is not stored: it is given again when the file is read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor, nn

from certus._defaults import ESTIMATOR
from certus.certificates import Certificate, certify
from certus.certificates.tree_refinement import INTERRUPTED
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import choose_rows
from certus.errors import ArgumentError, require, require_count, require_number
from certus.estimators.base import RobustEstimator, cost_of, is_sizes, make_network
from certus.losses import CrossEntropy, SquaredError
from certus.runs.serialization import deserialize, serialize
from certus.storage.files import RunError
from certus.storage.tensors import load_tensors, save_tensors


class RobustClassifier(ClassifierMixin, RobustEstimator):  # type: ignore[misc]
    """Classifier of rows with cross-entropy, trained on the worst case near each sample (alg:thealg).

    Args:
        gamma: γ, the price of a unit of transport cost in units of the loss; the smaller, the more robust.
        rho: instead of γ, the budget, a mean *squared* distance. 0 is ERM. 0.01 if neither is given: with the
            default feature costs, a tenth of a standard deviation.
        certified: keep the network where the inner problem is *proven* to be concave (certified training).
        network: widths of hidden layers, () for a linear model; a ``torch.nn.Module``, which is copied and
            takes the rows as they are; or a function of ``inputs`` and ``outputs`` that makes one.
        feature_costs: p_j in c = Σ p_j (x_j − x₀_j)²: one for all, one for each feature, or a mapping from
            names or positions; ∞ freezes a feature. By default 1/variance in the training data.
        label_cost: the cost of changing a label; None keeps labels fixed.
        class_weight: a mapping from labels to weights, or "balanced".
        epochs, batch_size, learning_rate, weight_decay: settings of Adam; the learning rate falls to 0.
        early_stopping: hold out ``validation_fraction`` of the samples, and stop when their loss has not
            fallen for ``patience`` epochs.
        random_state: seed of the initial weights and of the order of the samples. None draws a new seed at
            each fit; NumPy's global generator is not changed.
        verbose: 1 prints some ten lines, 2 one for each epoch.

    Attributes:
        classes_: the labels.
        module_: the network, in float64, for rows in their original units; ``certus.certify`` takes it.
        cost_, feature_costs_, feature_spreads_: the transport cost, its feature costs, and standard
            deviations.
        gamma_, rho_hat_: the final γ, None for ERM, and the attained budget ρ̂ (*estimated*).
        curvature_: with ``certified``, the *proven* bound on the curvature of the loss, below 2γ.
        n_iter_, loss_curve_: epochs, and the mean training loss of each.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RobustClassifier(rho=0.05, epochs=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    _criterion = CrossEntropy()

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
        self._set_parameters(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RobustClassifier:
        """Train on rows X, (n, features), with labels y; ``sample_weight`` weights the samples."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        X, y, weights = self._positive(X, y, sample_weight)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            content = f"1 class: {self.classes_}"
            raise ArgumentError(f"A classifier needs samples of at least 2 classes; got {content}.")
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

    def _label_cost(self) -> LabelCost | None:
        return None if self.label_cost is None else LabelCost(self.label_cost, len(self.classes_))

    def _encode(self, y: Any) -> Tensor:
        labels = column_or_1d(y)
        place = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        unknown = self.classes_[place] != labels
        if unknown.any():
            legal = ", ".join(map(str, self.classes_))
            raise ArgumentError(f"`y` must hold labels seen in training, {legal}; got {labels[unknown][0]}.")
        return torch.from_numpy(place.astype(np.int64))

    def _decode(self, targets: Tensor) -> np.ndarray:
        return np.asarray(self.classes_[targets.numpy()])

    def _class_factors(self, y: Any) -> np.ndarray | None:
        return None if self.class_weight_ is None else self.class_weight_[self._encode(y).numpy()]


class RobustRegressor(RegressorMixin, RobustEstimator):  # type: ignore[misc]
    """Regression of one number on rows with squared error, trained on the worst case near each sample.

    Its parameters and attributes are those of ``RobustClassifier`` where they apply; γ is in units of the
    squared target. A squared error has no smoothness bound over all inputs, so that there is no ``certified``
    training.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = RobustRegressor(rho=0.01, network=(), epochs=40, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.4)
    True
    """

    _criterion = SquaredError()

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
        self._set_parameters(locals())

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
        if is_sizes(self.network):  # fold mean + spread·F into the last layer
            last = [part for part in self.module_.modules() if isinstance(part, nn.Linear)][-1]
            with torch.no_grad():
                last.weight.mul_(spread)
                last.bias.mul_(spread).add_(mean)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return (n,) numbers."""
        outputs = self._outputs(X)
        return outputs.reshape(len(outputs))

    def _encode(self, y: Any) -> Tensor:
        return torch.from_numpy(np.array(column_or_1d(y), dtype=np.float64))

    def _decode(self, targets: Tensor) -> np.ndarray:
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

    return lambda estimator, X, y: _certified_share(estimator, estimator.certify(X, y, rho), rho)


def certified_error_scorer(
    rho: float, *, rows: int = 500, time_limit: float | None = 60, cost: Cost | None = None
) -> Callable[[Any, Any, Any], float]:
    """Return a scorer of classifiers that ``certus.certify`` reads, tree ensembles above all, by 1 minus the
    certified error rate within ρ of (X, y): ``GridSearchCV`` then chooses depth, leaves and learning rate by
    what is proven.

    Args:
        rows: the most rows to certify, drawn at random with a fixed seed.
        time_limit: seconds for one certificate of trees; what is proven by then counts.
        cost: c; by default the squared distance in the units of X.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> model, scorer = DecisionTreeClassifier(max_depth=2), certified_error_scorer(0.01, rows=10)
    >>> scores = cross_val_score(model, *load_iris(return_X_y=True), cv=3, scoring=scorer)
    >>> bool((scores > 0.5).all())
    True
    """
    require_number("rho", rho, zero=True)
    require_count("rows", rows)

    def score(estimator: Any, X: Any, y: Any) -> float:
        from sklearn.utils import _safe_indexing

        if len(y) > rows:
            chosen = choose_rows(len(y), rows, 0).tolist()
            X, y = _safe_indexing(X, chosen), _safe_indexing(y, chosen)
        own = SquaredL2() if cost is None else cost
        certificate = certify(estimator, (X, y), rho=rho, cost=own, time_limit=time_limit, progress=False)
        if (certificate.about.get("search") or {}).get("unfinished", "").startswith(INTERRUPTED):
            raise KeyboardInterrupt  # which ends the search of hyperparameters, too
        return _certified_share(estimator, certificate, rho)

    return score


def _certified_share(estimator: Any, certificate: Certificate, rho: float) -> float:
    """Return 1 minus the certified error rate within ρ; raise ``ArgumentError`` for a regressor."""
    bound = certificate.error_bound(rho)
    if bound is None:
        rule = "be a classifier, whose errors have a bound"
        raise ArgumentError(f"`estimator` must {rule}; got {type(estimator).__name__}.")
    return 1 - bound


_KINDS = {kind.__name__: kind for kind in (RobustClassifier, RobustRegressor)}
_NUMBERS = ("gamma_", "rho_hat_", "curvature_", "n_iter_", "n_features_in_")
_ARRAYS = ("feature_costs_", "feature_spreads_", "class_weight_")
_FORMAT = 1


def save_estimator(estimator: RobustClassifier | RobustRegressor, path: Path) -> None:
    """Write a fitted estimator."""
    kind = type(estimator).__name__
    if _KINDS.get(kind) is not type(estimator):
        raise ArgumentError(f"Only {' and '.join(_KINDS)} themselves can be saved; got {kind}.")
    if not hasattr(estimator, "module_"):
        raise ArgumentError(f"A {kind} must be fitted before it is saved.")
    tensors = {f"module.{name}": value for name, value in estimator.module_.state_dict().items()}
    for name in _ARRAYS:
        if getattr(estimator, name, None) is not None:
            tensors[name] = torch.from_numpy(np.array(getattr(estimator, name)))
    parameters = estimator.get_params(deep=False)
    note = {
        "format": _FORMAT,
        "kind": kind,
        "parameters": {name: _as_json(name, value) for name, value in parameters.items()},
        "found": {name: serialize(getattr(estimator, name)) for name in _NUMBERS},
        "loss_curve_": [float(loss) for loss in estimator.loss_curve_],
        "names": _listed(getattr(estimator, "feature_names_in_", None)),
        "classes": _listed(getattr(estimator, "classes_", None)),
    }
    save_tensors(path, tensors, note)


def load_estimator(path: str | Path, network: Any = None) -> RobustClassifier | RobustRegressor:
    """Load a fitted estimator from a file of ``save``.

    Args:
        network: the module or function of the estimator, if it has one.
    """
    path = Path(path)
    tensors, note = load_tensors(path)
    try:
        return _restored(tensors, note, network)
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as reason:
        raise RunError(f"{path} does not hold an estimator of this version of certus: {reason}.") from None


def _restored(tensors: dict[str, Tensor], note: Any, network: Any) -> RobustClassifier | RobustRegressor:
    if note["format"] != _FORMAT:
        raise RunError(f"The file has the format {note['format']}; this version of certus reads {_FORMAT}.")
    parameters = {name: _read(value) for name, value in note["parameters"].items()}
    if parameters["network"] is None:
        if network is None:
            reason = "the estimator has a custom network"
            raise ArgumentError(f"`network` must be given again: {reason}.")
        parameters["network"] = network
    estimator = _KINDS[note["kind"]](**parameters)
    for name, value in note["found"].items():
        setattr(estimator, name, deserialize(value))
    estimator.loss_curve_ = list(note["loss_curve_"])
    for name, values in (("feature_names_in_", note["names"]), ("classes_", note["classes"])):
        if values is not None:
            setattr(estimator, name, np.array(values["values"], dtype=np.dtype(values["dtype"])))
    for name in _ARRAYS:
        if name in tensors:
            setattr(estimator, name, tensors[name].numpy())
    outputs, certified = 1, False
    if isinstance(estimator, RobustClassifier):
        outputs, certified = len(estimator.classes_), bool(estimator.certified)
        estimator.class_weight_ = getattr(estimator, "class_weight_", None)
    module = make_network(estimator.network, estimator.n_features_in_, outputs, certified=certified, seed=0)
    prefix = "module."
    weights = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    module.load_state_dict(weights)
    estimator.module_, estimator.cost_ = module, cost_of(estimator.feature_costs_)
    return estimator


def _as_json(name: str, value: Any) -> Any:
    """Return a parameter as JSON; None for code and random states."""
    if name == "network":
        return [int(width) for width in value] if is_sizes(value) else None
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {"pairs": [[_as_json("", key), _as_json("", each)] for key, each in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        kind = "array" if isinstance(value, np.ndarray) else type(value).__name__
        return {kind: [_as_json("", each) for each in np.asarray(value).tolist()]}
    return serialize(value)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and "pairs" in value:
        return {_read(key): _read(each) for key, each in value["pairs"]}
    for kind, make in (("array", np.array), ("list", list), ("tuple", tuple)):
        if isinstance(value, dict) and kind in value:
            return make([_read(each) for each in value[kind]])
    return deserialize(value)


def _listed(values: np.ndarray | None) -> dict[str, Any] | None:
    """Return an array of labels or names with its dtype, as JSON."""
    if values is None:
        return None
    plain = all(isinstance(value, str | int | float | bool) for value in values.tolist())
    if not plain:
        raise ArgumentError(f"Labels and names must be texts or numbers to be saved; got {values[:3]}.")
    return {"dtype": values.dtype.str, "values": values.tolist()}
