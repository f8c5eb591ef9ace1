"""Robust estimators for scikit-learn, and scorers by their certificates."""

from certus.estimators.base import FeatureBracket, WorstCase
from certus.estimators.robust import (
    RobustClassifier,
    RobustRegressor,
    certified_error_scorer,
    error_bound_scorer,
    load_estimator,
    loss_bound_scorer,
)

__all__ = [
    "FeatureBracket",
    "RobustClassifier",
    "RobustRegressor",
    "WorstCase",
    "certified_error_scorer",
    "error_bound_scorer",
    "load_estimator",
    "loss_bound_scorer",
]
