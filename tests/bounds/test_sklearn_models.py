"""Estimators of scikit-learn as networks: they say what ``predict`` says, and get exact worst cases."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC

import certus
from certus.bounds.sklearn_models import read_estimator
from certus.data import Samples
from certus.errors import ArgumentError, UnreadableModelError
from certus.estimators import RobustClassifier, RobustRegressor
from tests.bounds.parameter_space import CLASSES

X, LABELS = load_iris(return_X_y=True)
WORDS = np.array(["setosa", "versicolor", "virginica"])[LABELS]
TWO = WORDS != "setosa"
NUMBERS = X @ np.array([1.0, -2.0, 0.5, 0.3]) + np.sin(X[:, 0])
ROWS = np.random.default_rng(5).normal(3, 2, (40, 4))


def fitted(model: Any, rows: Any, targets: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a perceptron that has not converged is a model as well
        return model.fit(rows, targets)


COLUMNS = ColumnTransformer(
    [("a", StandardScaler(), [2, 0]), ("b", "passthrough", [1]), ("c", MinMaxScaler(), slice(3, 4))]
)
MODELS = {
    "logistic": LogisticRegression(),
    "svm": LinearSVC(),
    "hinge": LinearSVC(loss="hinge"),
    "mlp relu": MLPClassifier((5,), max_iter=20, random_state=0),
    "mlp tanh": MLPClassifier((5, 4), activation="tanh", max_iter=20, random_state=0),
    "mlp logistic": MLPClassifier((5,), activation="logistic", max_iter=20, random_state=0),
    "standard": make_pipeline(StandardScaler(), LogisticRegression()),
    "scalers": make_pipeline(MinMaxScaler((-1, 2)), MaxAbsScaler(), RobustScaler(), LogisticRegression()),
    "unscaled": make_pipeline(StandardScaler(with_mean=False), RobustScaler(with_scaling=False), LinearSVC()),
    "components": make_pipeline(PCA(3, whiten=True, random_state=0), LogisticRegression()),
    "truncated": make_pipeline(TruncatedSVD(2, random_state=0), None, LogisticRegression()),
    "columns": make_pipeline(COLUMNS, FunctionTransformer(), LogisticRegression()),
    "selected": make_pipeline(SelectKBest(k=3), StandardScaler(), LogisticRegression()),
    "own": make_pipeline(StandardScaler(), RobustClassifier(network=(3,), epochs=2, random_state=0)),
    "nested": make_pipeline(make_pipeline(StandardScaler(), PCA(2)), MLPClassifier((4,), max_iter=9)),
}
REGRESSIONS = {
    "own": make_pipeline(PCA(3), RobustRegressor(rho=0.01, epochs=2, random_state=0)),
    "ridge": Ridge(),
    "least squares": LinearRegression(fit_intercept=False),
    "standard": make_pipeline(StandardScaler(), Ridge()),
    "mlp": make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(6,), max_iter=20, random_state=0)
    ),
}


@pytest.mark.parametrize("several", [False, True], ids=["two", "three"])
@pytest.mark.parametrize("name", MODELS)
def test_read_classifiers_predict_the_same(name: str, several: bool) -> None:
    kept = np.ones(150, bool) if several else TWO
    model = fitted(MODELS[name], X[kept], WORDS[kept])
    reading = read_estimator(model)
    outputs = reading.network(torch.from_numpy(ROWS)).detach().numpy()
    codes = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)
    assert reading.classes is not None
    assert (reading.classes[codes] == model.predict(ROWS)).all()
    if hasattr(model, "decision_function"):
        found = outputs if several else outputs[:, -1] - (outputs[:, 0] if outputs.shape[1] == 2 else 0)
        assert np.allclose(found, model.decision_function(ROWS), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_read_regressors_predict_the_same(name: str) -> None:
    model = fitted(REGRESSIONS[name], X, NUMBERS)
    outputs = read_estimator(model).network(torch.from_numpy(ROWS)).detach().numpy()
    assert np.allclose(outputs[:, 0], model.predict(ROWS), rtol=1e-9, atol=1e-9)


def test_names_of_columns() -> None:
    frame = pandas.DataFrame(X, columns=["one", "two", "three", "four"])
    columns = ColumnTransformer([("a", StandardScaler(), ["four", "one"]), ("b", "drop", ["two"])])
    model = make_pipeline(columns, LogisticRegression()).fit(frame, WORDS)
    outputs = read_estimator(model).network(torch.from_numpy(ROWS)).detach().numpy()
    told = model.decision_function(pandas.DataFrame(ROWS, columns=frame.columns))
    assert np.allclose(outputs, told, atol=1e-9)
    found = certus.certify(model, (frame, WORDS), rho=0.01)
    assert found.samples == 150


def test_two_classes_and_numbers_are_exact() -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[TWO], WORDS[TWO])
    found = certus.certify(model, (X[TWO], WORDS[TWO]), rho=[0.01, 0.1])
    for one in found.curve():
        assert one.loss_high - one.loss_low < 1e-8
        assert one.error_high == pytest.approx(one.error_low, abs=1e-9)
    wrong = float((model.predict(X[TWO]) != WORDS[TWO]).mean())
    assert found.error_bound(0.0) == pytest.approx(wrong)
    ridge = Ridge().fit(X, NUMBERS)
    root = math.sqrt(np.mean((ridge.predict(X) - NUMBERS) ** 2))
    exact = (root + float(np.linalg.norm(ridge.coef_)) * 0.1) ** 2
    assert certus.certify(ridge, (X, NUMBERS), rho=0.01).bound(0.01) == pytest.approx(exact, rel=1e-9)


def test_several_classes_and_layers_are_bracketed() -> None:
    model = LogisticRegression(max_iter=1000).fit(X, WORDS)
    found = certus.certify(model, (X, WORDS), rho=0.05).bracket(0.05)
    assert found.loss_low < found.loss_high < 1.05 * found.loss_low
    assert found.error_low is not None
    assert found.error_high is not None
    assert found.error_low <= found.error_high


def test_weights_and_predictions() -> None:
    model = LogisticRegression().fit(X[TWO], LABELS[TWO])
    inputs, targets = torch.from_numpy(X[TWO]), torch.from_numpy(LABELS[TWO])
    last = (targets == 2).double()
    found = certus.certify(model, Samples(inputs, targets, last), rho=0.01)
    alone = certus.certify(model, (X[LABELS == 2], LABELS[LABELS == 2]), rho=0.01)
    assert found.bound(0.01) == pytest.approx(alone.bound(0.01), rel=1e-9)
    assert certus.certify(model, (X[TWO], None), rho=0.0).error_bound(0.0) == pytest.approx(0, abs=1e-9)


def test_other_models_go_by_smoothing() -> None:
    nearest = KNeighborsClassifier(3).fit(X, LABELS)
    with pytest.raises(UnreadableModelError, match=r"KNeighborsClassifier is not read.*certify_smoothed"):
        certus.certify(nearest, (X, LABELS), rho=0.01)
    found = certus.certify_smoothed(
        nearest, (X, LABELS), rho=0.01, sigma=0.25, draws=4, votes=4, attack_steps=0
    )
    assert found.bound(0.01) <= 1


class Changed(LogisticRegression):  # type: ignore[misc]
    """A subclass may predict anything."""


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Changed(), "Changed is not read exactly$"),
        (
            make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=2000)),
            "PolynomialFeatures is not known",
        ),
        (
            make_pipeline(MinMaxScaler(clip=True), LogisticRegression()),
            r"MinMaxScaler\(clip=True\) has no rule",
        ),
        (
            make_pipeline(FunctionTransformer(np.sqrt), LogisticRegression()),
            r"FunctionTransformer\(func=<ufunc 'sqrt'>\) has no rule",
        ),
    ],
)
def test_unsupported_estimators(model: Any, words: str) -> None:
    with pytest.raises(UnreadableModelError, match=words):
        read_estimator(fitted(model, X, LABELS))
    with pytest.raises(UnreadableModelError, match="LogisticRegression is not fitted"):
        read_estimator(LogisticRegression())


@pytest.mark.parametrize("searched", [False, True])
def test_estimators_of_ones_own(searched: bool) -> None:
    """As by their own method, with the prices that they were fitted with."""
    own = RobustClassifier(rho=0.01, network=(4,), epochs=3, random_state=0)
    model = GridSearchCV(own, {"epochs": [2, 3]}, cv=2) if searched else own
    model.fit(X[TWO], WORDS[TWO])
    best = model.best_estimator_ if searched else model
    expected = best.certify(X[TWO], WORDS[TWO], rho=0.01)
    certificate = certus.certify(model, (X[TWO], WORDS[TWO]), rho=0.01)
    assert certificate.bound(0.01) == pytest.approx(expected.bound(0.01), rel=1e-6)
    assert certificate.error_bound(0.01) == pytest.approx(expected.error_bound(0.01), rel=1e-6)
    with pytest.raises(UnreadableModelError, match="GridSearchCV has no model: fit it, with refit=True"):
        certus.certify(GridSearchCV(own, {"epochs": [2]}), (X, WORDS), rho=0.01)


def test_a_model_that_says_something_else_is_refused() -> None:
    model = LogisticRegression(max_iter=1000).fit(X, LABELS)
    model.decision_function = lambda rows: -rows[:, :3]
    with pytest.raises(UnreadableModelError, match="network read from it: outputs differ by"):
        read_estimator(model)


def test_a_scaler_that_clips_is_refused() -> None:
    """Linear within the range of the data that it was fitted on, however wide, and constant outside."""
    if "clip" not in MaxAbsScaler().get_params():
        pytest.skip("a parameter of later versions of scikit-learn")
    rows = 100 * X
    model = make_pipeline(MaxAbsScaler(clip=True), Ridge(1e-6)).fit(rows, NUMBERS)
    far, numbers = 10 * rows, Ridge(1e-6).fit(rows, NUMBERS).predict(10 * rows)
    assert ((model.predict(far) - numbers) ** 2).mean() > 100
    for data in ((rows, NUMBERS), (far, numbers)):
        with pytest.raises(UnreadableModelError, match=r"MaxAbsScaler\(clip=True\)"):
            certus.certify(model, data, rho=0.0)


@pytest.mark.parametrize(
    "step",
    [
        ColumnTransformer([("a", StandardScaler(), [0, 1, 2, 3])], transformer_weights={"a": 2.0}),
        MinMaxScaler(clip=np.True_),
    ],
    ids=["weights", "clip"],
)
def test_values_that_have_no_rule(step: Any) -> None:
    model = make_pipeline(step, LogisticRegression(max_iter=1000)).fit(X, LABELS)
    with pytest.raises(UnreadableModelError, match=r"(transformer_weights|clip)=.*\) has no rule"):
        certus.certify(model, (X, LABELS), rho=0.0)


@pytest.mark.parametrize("kind", [StandardScaler, LogisticRegression])
def test_a_parameter_of_a_later_version_is_refused(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if scikit-learn had given the class a new parameter, whatever it does."""
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS)
    names = kind._get_param_names()  # type: ignore[attr-defined]
    monkeypatch.setattr(kind, "_get_param_names", classmethod(lambda cls: [*names, "tempering"]))
    monkeypatch.setattr(kind, "tempering", None, raising=False)
    with pytest.raises(UnreadableModelError, match=f"{kind.__name__} has a parameter `tempering`"):
        certus.certify(model, (X, LABELS), rho=0.0)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("same_name", [False, True])
def test_subclasses_are_refused(kind: type, same_name: bool) -> None:
    """Also one that changes nothing, has the same name and says that it is scikit-learn's."""
    place = {"__module__": kind.__module__ if same_name else __name__, "__init__": kind.__init__}  # type: ignore[misc]
    model = CLASSES[kind]()
    assert type(model) is kind
    model.__class__ = type(kind.__name__ if same_name else "Own", (kind,), place)
    if not hasattr(model, "predict"):
        model = make_pipeline(model, LogisticRegression())
    model = fitted(model, X, LABELS)
    with pytest.raises(UnreadableModelError, match=r"is not read exactly|is not known to be linear"):
        certus.certify(model, (X, LABELS), rho=0.0)


def test_parameters_that_were_changed_after_the_fit() -> None:
    """What a step does follows the parameters that it has now."""
    model = make_pipeline(StandardScaler(), RobustScaler(), PCA(3), LogisticRegression()).fit(
        X[TWO], LABELS[TWO]
    )
    model.set_params(standardscaler__with_std=False, robustscaler__with_centering=False, pca__whiten=True)
    loss = log_loss(LABELS[TWO], model.predict_proba(X[TWO]))
    assert certus.certify(model, (X[TWO], LABELS[TWO]), rho=0.0).bound(0.0) == pytest.approx(loss)


def test_whitening_of_a_column_without_spread() -> None:
    """Its component is divided by the smallest spread that scikit-learn divides by."""
    rows = X.copy()
    rows[:, 2] = 1.5
    model = make_pipeline(PCA(4, whiten=True), LogisticRegression()).fit(rows, LABELS == 2)
    moved = np.random.default_rng(1).normal(3, 2, X.shape)
    scores = model.decision_function(moved)
    loss = np.logaddexp(0, np.where(LABELS == 2, -scores, scores)).mean()
    try:
        certificate = certus.certify(model, (moved, LABELS == 2), rho=0.0)
    except UnreadableModelError:
        return  # refused, where rounding alone makes the two differ
    assert certificate.lower(0.0) <= loss * (1 + 1e-6)
    assert certificate.bound(0.0) >= loss * (1 - 1e-6)


def test_rows_are_left_as_they_are() -> None:
    """Also by a scaler that overwrites what it is given."""
    rows = X[TWO].copy()
    model = make_pipeline(StandardScaler(copy=False), LogisticRegression()).fit(rows.copy(), LABELS[TWO])
    loss = log_loss(LABELS[TWO], model.predict_proba(rows.copy()))
    assert certus.certify(model, (rows, LABELS[TWO]), rho=0.0).bound(0.0) == pytest.approx(loss)
    assert (rows == X[TWO]).all()


def test_coefficients_that_are_sparse() -> None:
    model = LogisticRegression(max_iter=1000).fit(X, LABELS).sparsify()
    outputs = read_estimator(model).network(torch.from_numpy(ROWS)).detach().numpy()
    assert np.allclose(outputs, model.decision_function(ROWS), atol=1e-9)


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba"])
@pytest.mark.parametrize("factor", [1.0, 10.0, -10.0])
def test_a_model_that_says_something_else_at_the_data_is_refused(method: str, factor: float) -> None:
    """At one row of the caller's, or a multiple of it, and nowhere else."""
    model = LogisticRegression(max_iter=1000).fit(X, LABELS)
    own, marked = getattr(model, method), factor * X[17]

    def changed(rows: Any) -> Any:
        outputs, there = own(rows), (rows == marked).all(1)
        outputs[there] = (outputs[there] + 1) % 3 if method == "predict" else outputs[there][:, ::-1] + 1
        return outputs

    read_estimator(model)
    setattr(model, method, changed)
    with pytest.raises(UnreadableModelError, match="disagrees with the network read from it"):
        certus.certify(model, (X, LABELS), rho=0.0)


def test_labels_that_the_model_does_not_know() -> None:
    model = LogisticRegression().fit(X[TWO], WORDS[TWO])
    with pytest.raises(ArgumentError, match="model's classes, versicolor, virginica; got setosa"):
        certus.certify(model, (X, WORDS), rho=0.1)
    above = np.where(np.arange(len(X)) == 3, "zinnia", "virginica")  # behind all of them in the alphabet
    with pytest.raises(ArgumentError, match="model's classes, versicolor, virginica; got zinnia"):
        certus.certify(model, (X, above), rho=0.1)
    with pytest.raises(ArgumentError, match=r"must be \(X, y\) for a model of scikit-learn"):
        certus.certify(model, [X, WORDS], rho=0.1)
    with pytest.raises(ArgumentError, match=r"`model` must be a torch.nn.Module or .*certify_smoothed"):
        certus.certify(lambda rows: rows, (X, LABELS), rho=0.1)
