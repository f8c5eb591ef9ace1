"""Robust estimators for scikit-learn, and scorers by their certificates."""

from certus.estimators.base import FeatureBracket, WorstCase
from certus.estimators.robust import RobustClassifier, RobustRegressor
from certus.estimators.saving import load_estimator

__all__ = ["FeatureBracket", "RobustClassifier", "RobustRegressor", "WorstCase", "load_estimator"]
