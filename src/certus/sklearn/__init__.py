"""scikit-learn: robust estimators.

``sklearn`` inside this package is the library itself: all imports are absolute.
"""

from certus.sklearn.classifier import RobustClassifier
from certus.sklearn.fragility import FeatureBracket
from certus.sklearn.regressor import RobustRegressor
from certus.sklearn.saving import load_estimator
from certus.sklearn.worst import WorstCase

__all__ = ["FeatureBracket", "RobustClassifier", "RobustRegressor", "WorstCase", "load_estimator"]
