"""scikit-learn's own checks of estimators: none skipped, none expected to fail."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import check_estimator

from certus.estimators import RobustClassifier, RobustRegressor
from certus.estimators.base import RobustEstimator


@pytest.mark.parametrize("estimator", [RobustClassifier(epochs=10), RobustRegressor(epochs=20)], ids=str)
def test_the_checks_pass(estimator: RobustEstimator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short trainings: the checks ask for little accuracy. The variable lets the one on array types run."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 50
    assert [one["check_name"] for one in results if one["status"] != "passed"] == []


@pytest.mark.soak
@pytest.mark.parametrize(
    "estimator",
    [RobustClassifier(), RobustClassifier(certified=True), RobustClassifier(gamma=2.0), RobustRegressor()],
    ids=str,
)
def test_the_checks_pass_at_full_length(estimator: RobustEstimator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    results = check_estimator(estimator, on_skip=None)
    assert [one["check_name"] for one in results if one["status"] != "passed"] == []
