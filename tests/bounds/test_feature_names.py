"""Frames with named columns and estimators fitted on frames: scikit-learn's own rule is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import certus
from certus.errors import ArgumentError
from certus.estimators import RobustClassifier, load_estimator

X, LABELS = load_iris(return_X_y=True)
X, LABELS = X[50:] * [1.0, 5.0, 0.2, 30.0], LABELS[50:] - 1
NAMES = ["width", "height", "age", "price"]
FRAME = pandas.DataFrame(X, columns=NAMES)
REORDERED = FRAME[["age", "width", "price", "height"]]
RENAMED = FRAME.rename(columns={"age": "years"})
MORE = FRAME.assign(more=1.0)

COLUMNS = ColumnTransformer(
    [("scaled", StandardScaler(), ["price", "age"]), ("rest", "passthrough", ["width"])]
)


def robust_again(path: Path) -> Any:
    RobustClassifier(network=(), epochs=3, random_state=0).fit(FRAME, LABELS).save(path / "model")
    return load_estimator(path / "model")


MODELS: dict[str, Callable[[Path], Any]] = {
    "linear": lambda path: LogisticRegression(max_iter=1000).fit(FRAME, LABELS),
    "pipeline": lambda path: make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, LABELS),
    "nested": lambda path: make_pipeline(make_pipeline(StandardScaler()), LogisticRegression()).fit(
        FRAME, LABELS
    ),
    "columns": lambda path: make_pipeline(COLUMNS, LogisticRegression()).fit(FRAME, LABELS),
    "robust": lambda path: RobustClassifier(network=(), epochs=3, random_state=0).fit(FRAME, LABELS),
    "robust again": robust_again,
    "robust pipeline": lambda path: make_pipeline(
        StandardScaler(), RobustClassifier(network=(), epochs=3, random_state=0)
    ).fit(FRAME, LABELS),
    "forest": lambda path: RandomForestClassifier(4, random_state=0).fit(FRAME, LABELS),
}
READ = ("linear", "pipeline", "nested", "columns")
FRAMES = {"same": FRAME, "reordered": REORDERED, "renamed": RENAMED, "more": MORE}


def errors_by(name: str, model: Any, frame: Any, way: str) -> float:
    """An upper bound on the error rate of the data as they are; with noise so small that it changes none."""
    if way == "smoothing":
        certificate = certus.certify_smoothed(
            model,
            (frame, LABELS),
            rho=0.0,
            sigma=1e-9,
            calibration=(frame, LABELS),
            draws=4,
            votes=4,
            attack_steps=0,
        )
        return certificate.bound(0.0)
    if name in READ:
        bound = certus.certify(model, (frame, LABELS), rho=0.0).error_bound(0.0)
    else:
        bound = model.certify(frame, LABELS, 0.0).error_bound(0.0)
    assert bound is not None
    return bound


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("which", FRAMES)
@pytest.mark.parametrize(
    ("name", "way"),
    [(name, "smoothing") for name in MODELS]
    + [(name, "exact") for name in (*READ, "robust", "robust again")],
)
def test_a_frame_is_taken_as_the_model_takes_it(name: str, way: str, which: str, tmp_path: Path) -> None:
    """Refused where ``predict`` refuses; else the errors are those of ``predict``."""
    model, frame = MODELS[name](tmp_path), FRAMES[which]
    try:
        wrong = float((model.predict(frame) != LABELS).mean())
    except ValueError as reason:
        words = str(reason).splitlines()[0]
        with pytest.raises(ValueError, match=words):
            errors_by(name, model, frame, way)
        return
    assert which == "same" or name == "columns"
    bound = errors_by(name, model, frame, way)
    if way == "smoothing":
        assert bound >= wrong
        assert bound < wrong + 0.15  # the width of an interval of 100 samples with 95%
    else:
        assert bound == pytest.approx(wrong)


@pytest.mark.quick_share(2)
@pytest.mark.parametrize("way", ["exact", "smoothing"])
def test_frames_of_polars(way: str, tmp_path: Path) -> None:
    frame, reordered = polars.from_pandas(FRAME), polars.from_pandas(REORDERED)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, LABELS)
    with pytest.raises(ArgumentError, match="must be in the same order as they were in fit"):
        errors_by("pipeline", model, reordered, way)
    columns = make_pipeline(COLUMNS, LogisticRegression()).fit(frame, LABELS)
    same, other = (errors_by("columns", columns, each, way) for each in (frame, reordered))
    assert same == pytest.approx(other)


def test_a_column_transformer_without_an_unused_column() -> None:
    """Scikit-learn takes such a frame; a reading of all columns has no place to take the missing one from."""
    model = MODELS["columns"](Path())
    assert len(model.predict(FRAME.drop(columns="height"))) == len(FRAME)
    with pytest.raises(ArgumentError, match="it lacks 'height'"):
        certus.certify(model, (FRAME.drop(columns="height"), LABELS), rho=0.0)


@pytest.mark.parametrize("way", ["exact", "smoothing"])
@pytest.mark.parametrize("named", [False, True], ids=["fitted on arrays", "fitted on frames"])
def test_the_warnings_are_those_of_predict(named: bool, way: str) -> None:
    fitted, given = (FRAME, X) if named else (X, FRAME)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(fitted, LABELS)
    words = "does not have valid feature names" if named else "X has feature names"
    with pytest.warns(UserWarning, match=words):
        wrong = float((model.predict(given) != LABELS).mean())
    with pytest.warns(UserWarning, match=words):
        bound = errors_by("pipeline", model, given, way)
    assert wrong - 1e-9 <= bound <= wrong + 0.15


@pytest.mark.parametrize(
    ("fitted", "wrong"),
    [(FRAME, FRAME[NAMES[:3]]), (X, X[:, :3]), (X, X * [1, 1, float("nan"), 1])],
    ids=["columns", "width", "gaps"],
)
def test_rows_that_the_model_refuses(fitted: Any, wrong: Any) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(fitted, LABELS)
    with pytest.raises(ArgumentError, match="`data` must be rows that Pipeline accepts"):
        certus.certify(model, (wrong, LABELS), rho=0.0)
