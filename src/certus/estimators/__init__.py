"""scikit-learn: robust estimators.

``sklearn`` inside this package is the library itself: all imports are absolute.
"""

from certus.estimators.base import FeatureBracket, WorstCase
from certus.estimators.classifier import RobustClassifier
from certus.estimators.regressor import RobustRegressor
from certus.estimators.saving import load_estimator

__all__ = ["FeatureBracket", "RobustClassifier", "RobustRegressor", "WorstCase", "load_estimator"]
