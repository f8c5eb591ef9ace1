"""Constructor parameters of scikit-learn's estimators that the readers know.

A rule speaks for one class and for the values of its parameters that were looked at. Any other class, a
subclass included, any other parameter, such as one of a later version, and any other value are refused by
name.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from certus.readers.model_reading import Unread


@dataclass(frozen=True)
class Signature:
    """What a reader knows of one class.

    Attributes:
        module: where scikit-learn exports the class.
        free: parameters that matter to the fit alone, or that the reader follows: any value is read.
        limited: the others, each with the values that are read.
    """

    module: str
    free: str
    limited: dict[str, tuple[Any, ...]] = field(default_factory=dict)


_PERCEPTRON = (
    "hidden_layer_sizes solver alpha batch_size learning_rate learning_rate_init power_t max_iter shuffle "
    "random_state tol verbose warm_start momentum nesterovs_momentum early_stopping validation_fraction "
    "beta_1 beta_2 epsilon n_iter_no_change max_fun"
)
_UNITS = ("identity", "logistic", "tanh", "relu")

SIGNATURES = {
    "LogisticRegression": Signature(
        "sklearn.linear_model",
        "penalty C l1_ratio dual tol fit_intercept intercept_scaling class_weight random_state solver "
        "max_iter verbose warm_start n_jobs",
        {"multi_class": ("deprecated", "auto", "multinomial")},
    ),
    "LinearSVC": Signature(
        "sklearn.svm",
        "penalty dual tol C fit_intercept intercept_scaling class_weight verbose random_state max_iter",
        {"loss": ("hinge", "squared_hinge"), "multi_class": ("ovr", "crammer_singer")},
    ),
    "LinearRegression": Signature("sklearn.linear_model", "fit_intercept copy_X tol n_jobs positive"),
    "Ridge": Signature(
        "sklearn.linear_model", "alpha fit_intercept copy_X max_iter tol solver positive random_state"
    ),
    "MLPClassifier": Signature("sklearn.neural_network", _PERCEPTRON, {"activation": _UNITS}),
    "MLPRegressor": Signature(
        "sklearn.neural_network", _PERCEPTRON, {"activation": _UNITS, "loss": ("squared_error",)}
    ),
    "StandardScaler": Signature("sklearn.preprocessing", "copy with_mean with_std"),
    "MinMaxScaler": Signature("sklearn.preprocessing", "feature_range copy", {"clip": (False,)}),
    "MaxAbsScaler": Signature("sklearn.preprocessing", "copy", {"clip": (False,)}),
    "RobustScaler": Signature(
        "sklearn.preprocessing", "with_centering with_scaling quantile_range copy unit_variance"
    ),
    "PCA": Signature(
        "sklearn.decomposition",
        "n_components copy whiten svd_solver tol iterated_power n_oversamples power_iteration_normalizer "
        "random_state",
    ),
    "TruncatedSVD": Signature(
        "sklearn.decomposition",
        "n_components algorithm n_iter n_oversamples power_iteration_normalizer random_state tol",
    ),
    "FunctionTransformer": Signature(
        "sklearn.preprocessing",
        "inverse_func validate accept_sparse check_inverse feature_names_out inv_kw_args",
        {"func": (None,), "kw_args": (None,)},
    ),
    "ColumnTransformer": Signature(
        "sklearn.compose",
        "transformers remainder sparse_threshold n_jobs verbose verbose_feature_names_out "
        "force_int_remainder_cols",
        {"transformer_weights": (None,)},
    ),
    "Pipeline": Signature("sklearn.pipeline", "steps transform_input memory verbose"),
}


def is_exactly(model: Any, kind: str) -> bool:
    """Whether a model is of scikit-learn's own class: a subclass may compute anything."""
    signature = SIGNATURES.get(kind)
    home = None if signature is None else sys.modules.get(signature.module)  # loaded if a model of it exists
    return type(model) is getattr(home, kind, None)


def check_parameters(model: Any) -> None:
    """Raise ``Unread`` if the rule for the model's class may not hold for its parameters."""
    kind = type(model).__name__
    signature = SIGNATURES[kind]
    for name, value in model.get_params(deep=False).items():
        if name in signature.limited:
            plain = value is None or isinstance(value, str | bool | np.bool_)
            if not plain or value not in signature.limited[name]:
                raise Unread(f"{kind}({name}={_short(value)}) has no rule")
        elif name not in signature.free.split():
            raise Unread(f"{kind} has a parameter `{name}` that this version of certus does not know")


def _short(value: Any) -> str:
    return text if len(text := repr(value)) <= 60 else f"{text[:60]}…"
