"""RobustClassifier and RobustRegressor: what they promise, and how they live with scikit-learn."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import certus
from certus.costs import Masked, WeightedL2
from certus.errors import ArgumentError, CertusError
from certus.estimators import (
    RobustClassifier,
    RobustRegressor,
    error_bound_scorer,
    load_estimator,
    loss_bound_scorer,
)
from certus.losses import CrossEntropy, ModelLoss
from certus.storage.files import RunError

X, LABELS = load_iris(return_X_y=True)
WORDS = np.array(["setosa", "versicolor", "virginica"])[LABELS]
TWO = LABELS > 0
FRAME = pandas.DataFrame(X, columns=["a", "b", "c", "d"])
SUGAR, TARGET = load_diabetes(return_X_y=True)


def classifier(**options: Any) -> RobustClassifier:
    known: dict[str, Any] = {"epochs": 25, "random_state": 0, "network": (8,)}
    return RobustClassifier(**(known | options))


@pytest.fixture(scope="module")
def plain() -> RobustClassifier:
    return classifier(epochs=40).fit(FRAME, WORDS)


def test_it_lives_in_pipelines_and_searches() -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("model", classifier(epochs=15))])
    pipeline.set_output(transform="pandas")
    search = GridSearchCV(pipeline, {"model__rho": [0.0, 0.1]}, cv=2).fit(FRAME, WORDS)
    inside = search.best_estimator_["model"]
    assert list(inside.feature_names_in_) == ["a", "b", "c", "d"]
    assert search.score(FRAME, WORDS) > 0.7
    assert len(cross_val_score(clone(pipeline), FRAME, WORDS, cv=2)) == 2
    weights = np.where(WORDS == "setosa", 0.0, 1.0)
    with certus_routing():
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, classifier(epochs=2).set_fit_request(sample_weight=True))
        found = routed.fit(X, WORDS, sample_weight=weights)
    assert list(found.classes_) == ["versicolor", "virginica"]


def certus_routing() -> Any:
    from sklearn import config_context

    return config_context(enable_metadata_routing=True)


def test_the_network_takes_rows_as_they_come(plain: RobustClassifier) -> None:
    """Scalings are folded in: probabilities are those of the module on raw rows."""
    outputs = plain.module_(torch.from_numpy(X))
    assert np.allclose(outputs.softmax(1).detach().numpy(), plain.predict_proba(FRAME))
    assert plain.score(FRAME, WORDS) > 0.9
    assert np.allclose(np.exp(plain.predict_log_proba(FRAME)), plain.predict_proba(FRAME))
    assert np.allclose(plain.feature_costs_, 1 / X.var(0))


@pytest.mark.parametrize("kind", [RobustClassifier, RobustRegressor])
def test_a_network_with_a_sequence_inside_is_certified_as_a_whole(kind: Any) -> None:
    """Against the mean loss of its own predictions."""
    rows, two = X[LABELS > 0], LABELS[LABELS > 0] - 1
    targets = two if kind is RobustClassifier else np.sin(rows[:, 0])

    def network(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, outputs))

    model = kind(rho=0.0, network=network, epochs=5, random_state=0).fit(rows, targets)
    assert (model.gamma_, model.rho_hat_) == (None, 0.0)
    if kind is RobustClassifier:
        loss = -np.log(model.predict_proba(rows)[np.arange(len(rows)), two]).mean()
    else:
        loss = ((model.predict(rows) - targets) ** 2).mean()
    bracket = model.certify(rows, targets, 1e-8).bracket(1e-8)
    assert bracket.loss_low <= bracket.loss_high
    assert bracket.loss_low == pytest.approx(loss, rel=1e-2)
    assert bracket.loss_high == pytest.approx(loss, rel=1e-2)


def test_units_do_not_matter() -> None:
    """Default prices count standard deviations: rows in other units give the same predictions."""
    factors, offsets = np.array([1000.0, 0.01, 5.0, 1.0]), np.array([3.0, -70.0, 0.0, 1.0])
    one, other = classifier(epochs=5).fit(X, WORDS), classifier(epochs=5).fit(X * factors + offsets, WORDS)
    assert np.allclose(one.predict_proba(X), other.predict_proba(X * factors + offsets), atol=1e-6)
    assert one.gamma_ == pytest.approx(other.gamma_, rel=1e-4)


def test_plain_linear_training_is_logistic_regression() -> None:
    """rho=0 without hidden layers, against another library's solver."""
    noisy = (LABELS[TWO] == 2) ^ (np.arange(100) % 5 == 0)  # so that the classes overlap
    found = classifier(rho=0.0, network=(), epochs=300, learning_rate=0.1).fit(X[TWO], noisy)
    scaled = StandardScaler().fit_transform(X[TWO])
    theirs = LogisticRegression(C=np.inf, max_iter=5000).fit(scaled, noisy)
    assert np.allclose(found.predict_proba(X[TWO]), theirs.predict_proba(scaled), atol=0.01)
    regression = RobustRegressor(rho=0, network=(), epochs=300, learning_rate=0.1, random_state=0)
    close = regression.fit(SUGAR, TARGET).predict(SUGAR) - Ridge(0.0).fit(SUGAR, TARGET).predict(SUGAR)
    assert np.abs(close).max() < 0.02 * TARGET.std()


def test_robust_training_lowers_the_worst_case() -> None:
    """At ρ, the proven worst case of the model trained for it is below that of plain training."""
    worst = {}
    for rho in (0.0, 0.3):
        model = classifier(network=(), rho=rho, epochs=60).fit(X[TWO], LABELS[TWO])
        worst[rho] = model.certify(X[TWO], LABELS[TWO], 0.3).bound(0.3)
    assert worst[0.3] < 0.9 * worst[0.0]


def test_certificate_worst_case_and_prices() -> None:
    prices = {"a": math.inf, "b": 10.0}
    model = classifier(feature_costs=prices, network=(4,)).fit(FRAME, WORDS)
    assert isinstance(model.cost_, Masked)
    assert isinstance(model.cost_.inner, WeightedL2)
    found = model.worst_case(FRAME, WORDS, 0.05)
    copies = len(found.X) // len(X)
    origin = np.tile(X, (copies, 1))
    assert (found.X[:, 0] == origin[:, 0]).all()
    assert found.weights.sum() == pytest.approx(1)
    paid = ((found.X - origin)[:, 1:] ** 2 * model.feature_costs_[1:]).sum(1)
    assert float(paid @ found.weights) <= 0.05 * (1 + 1e-9)
    codes = torch.from_numpy(np.searchsorted(model.classes_, found.y))
    with torch.no_grad():
        losses = ModelLoss(model.module_, CrossEntropy())(torch.from_numpy(found.X), codes)
    assert float(losses.numpy() @ found.weights) == pytest.approx(found.loss, rel=1e-6)
    assert found.loss <= found.bound


def test_fragile_features() -> None:
    """A linear model is as fragile in a feature as its weight times the feature's spread."""
    model = RobustRegressor(rho=0.01, network=(), epochs=60, random_state=0).fit(SUGAR[:, :4], TARGET)
    found = model.fragile_features(SUGAR[:, :4], TARGET, by=0.2)
    weights = next(model.module_.parameters()).detach().numpy()[0]
    root = np.sqrt(np.mean((model.predict(SUGAR[:, :4]) - TARGET) ** 2))
    exact = {
        f"x{place}": (root + 0.2 * size) ** 2
        for place, size in enumerate(np.abs(weights) * SUGAR[:, :4].std(0))
    }
    assert [one.feature for one in found] == sorted(exact, key=lambda name: -exact[name])
    for one in found:
        assert one.loss_low == pytest.approx(exact[one.feature], rel=1e-8)
        assert one.loss_high == pytest.approx(exact[one.feature], rel=1e-8)
        assert one.error_high is None


def test_certified_training_proves_its_curvature() -> None:
    model = classifier(gamma=1.0, certified=True, epochs=15).fit(X, WORDS)
    assert model.curvature_ is not None
    assert model.gamma_ is not None
    assert model.curvature_ <= 2 * model.gamma_
    assert model.score(X, WORDS) > 0.8
    bound = certus.input_smoothness(model.module_, input_shape=(4,), cost=model.cost_)
    assert bound.curvature == pytest.approx(model.curvature_)


def test_weights_of_classes_and_samples() -> None:
    heavy = classifier(class_weight={0: 1.0, 1: 1.0, 2: 20.0}, epochs=15).fit(X, LABELS)
    even = classifier(epochs=15).fit(X, LABELS)
    assert (heavy.predict(X) == 2).sum() >= (even.predict(X) == 2).sum()
    last = heavy.certify(X, LABELS, 0.0).error_bound(0.0)
    wrong = heavy.predict(X) != LABELS
    shares = np.where(LABELS == 2, 20.0, 1.0)
    assert last == pytest.approx(float(wrong @ shares / shares.sum()), abs=1e-6)
    only = even.certify(X, LABELS, 0.01, sample_weight=(LABELS == 1).astype(float))
    alone = even.certify(X[LABELS == 1], LABELS[LABELS == 1], 0.01)
    assert only.error_bound(0.01) == pytest.approx(alone.error_bound(0.01), rel=1e-6)
    for model, weights, name in ((even, np.ones(150), "sample_weight"), (heavy, None, "class_weight")):
        with pytest.raises(ArgumentError, match=f"`{name}` must be left out with `confidence`"):
            model.certify(X, LABELS, 0.01, sample_weight=weights, confidence=0.95)
    people = even.certify(X, LABELS, 0.01, confidence=0.9).bracket(0.01)
    assert people.population_error is not None


def test_labels_that_move() -> None:
    model = classifier(label_cost=0.5, network=(), epochs=5).fit(X, LABELS)
    free = classifier(network=(), epochs=5).fit(X, LABELS)
    free.module_.load_state_dict(model.module_.state_dict())
    some = slice(None, None, 5)
    moved, fixed = (one.certify(X[some], LABELS[some], 0.1) for one in (model, free))
    assert moved.lower(0.1) > fixed.bound(0.1)


class Net(nn.Module):
    """A module of the user's."""

    def __init__(self, inputs: int = 4, outputs: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(rows)
        return result


@pytest.mark.parametrize(
    "network", [Net(), Net, lambda outputs: Net(4, outputs)], ids=["module", "class", "function"]
)
def test_networks_of_the_users(network: Any, tmp_path: Path) -> None:
    before = (
        {name: value.clone() for name, value in network.state_dict().items()}
        if isinstance(network, Net)
        else {}
    )
    model = clone(classifier(network=network)).fit(X, LABELS)
    assert model.score(X, LABELS) > 0.6
    assert all((network.state_dict()[name] == value).all() for name, value in before.items())
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(ArgumentError, match="`network` must be given again"):
        load_estimator(tmp_path / "model.safetensors")
    again = load_estimator(tmp_path / "model.safetensors", network=network)
    assert (again.predict(X) == model.predict(X)).all()


@pytest.mark.parametrize(
    "model",
    [
        classifier(epochs=3, feature_costs={"a": math.inf, 1: 2.0}, class_weight="balanced"),
        classifier(epochs=3, certified=True, feature_costs=[1.0, 2.0, math.inf, 3.0]),
        RobustRegressor(epochs=3, random_state=1),
    ],
    ids=["classifier", "certified", "regressor"],
)
def test_saved_and_read_again(model: Any, tmp_path: Path) -> None:
    model = clone(model).fit(FRAME, LABELS if isinstance(model, RobustRegressor) else WORDS)
    model.save(tmp_path / "model")
    again: Any = load_estimator(tmp_path / "model")
    assert type(again) is type(model)
    assert (again.predict(FRAME) == model.predict(FRAME)).all()
    assert str(again) == str(model)
    some = FRAME[::10]
    targets = model.predict(some)
    assert again.certify(some, targets, 0.01).bound(0.01) == model.certify(some, targets, 0.01).bound(0.01)
    assert (again.gamma_, again.n_iter_, list(again.feature_names_in_)) == (model.gamma_, 3, list("abcd"))


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x04 pickled")
    with pytest.raises(RunError, match="pickled file"):
        load_estimator(tmp_path / "x")
    from certus.storage.tensors import save_tensors

    save_tensors(tmp_path / "y", {"a": torch.zeros(1)}, {"format": 1})
    with pytest.raises(RunError, match="does not hold an estimator of this version"):
        load_estimator(tmp_path / "y")
    save_tensors(tmp_path / "z", {"a": torch.zeros(1)}, {"format": 9})
    with pytest.raises(RunError, match="has the format 9"):
        load_estimator(tmp_path / "z")
    with pytest.raises(ArgumentError, match="must be fitted before it is saved"):
        classifier().save(tmp_path / "model")


def test_early_stopping_keeps_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    model = classifier(early_stopping=True, patience=2, epochs=80, learning_rate=0.3, verbose=2, rho=0.0)
    model.fit(X, LABELS)
    assert model.n_iter_ < 80
    assert len(capsys.readouterr().out.splitlines()) == model.n_iter_
    assert model.score(X, LABELS) > 0.8
    classifier(epochs=20, verbose=1).fit(X, LABELS)
    assert len(capsys.readouterr().out.splitlines()) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 1.0, "rho": 0.1}, "`gamma` must be left out where `rho` is given"),
        ({"rho": -0.1}, "`rho` must be finite and not negative"),
        ({"rho": "x"}, "`rho` must be a number; got 'x'"),
        ({"gamma": "x"}, "`gamma` must be a number; got 'x'"),
        ({"gamma": -1.0}, "`gamma` must be positive and finite; got -1.0"),
        ({"label_cost": "x"}, "`label_cost` must be a number; got 'x'"),
        ({"certified": "yes"}, "`certified` must be True or False; got 'yes'"),
        ({"epochs": 1.5}, "`epochs` must be a whole number, at least 1; got 1.5"),
        ({"learning_rate": None}, "`learning_rate` must be a number; got None"),
        ({"learning_rate": math.inf}, "`learning_rate` must be positive and finite"),
        ({"weight_decay": "x"}, "`weight_decay` must be a number"),
        ({"verbose": "x"}, "`verbose` must be 0, 1 or 2; got 'x'"),
        ({"feature_costs": "x"}, "`feature_costs` must be a number, one for each of the 4 features"),
        ({"feature_costs": {0: "x"}}, "`feature_costs` must be a number for 0; got 'x'"),
        ({"early_stopping": True, "validation_fraction": "x"}, "`validation_fraction` must lie between"),
        ({"network": nn.Linear(9, 3)}, "`network` must take rows of 4 features"),
        ({"network": (0,)}, "`network` must have whole numbers of units"),
        ({"network": 5}, "`network` must be widths such as"),
        ({"network": lambda: 3}, "`network` must make a torch.nn.Module"),
        ({"network": nn.Linear(4, 2)}, r"`network` must return outputs of shape \(batch, 3\)"),
        ({"feature_costs": [1.0, 2.0]}, r"one for each of the 4 features.*got shape \(2,\)"),
        ({"feature_costs": 0.0}, "`feature_costs` must be positive"),
        ({"feature_costs": math.inf}, "`feature_costs` must leave at least one feature free"),
        ({"feature_costs": {"width": 1.0}}, "`feature_costs` must name features"),
        ({"class_weight": {0: 0.0, 1: 1.0, 2: 1.0}}, "`class_weight` must be positive"),
        ({"epochs": 0}, "`epochs` must be a whole number"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive"),
        ({"early_stopping": True, "validation_fraction": 1.5}, "`validation_fraction` must lie between"),
        ({"early_stopping": True, "validation_fraction": 0.001}, "`early_stopping` cannot hold out"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CertusError, match=words):
        classifier(**options).fit(X, LABELS)


def test_regressions_refuse_the_same() -> None:
    for options, words in (
        ({"epochs": 1.5}, "`epochs` must be a whole number, at least 1; got 1.5"),
        ({"gamma": -1.0}, "`gamma` must be positive and finite; got -1.0"),  # in the caller's units
        ({"learning_rate": "x"}, "`learning_rate` must be a number; got 'x'"),
        ({"network": nn.Linear(9, 1)}, "`network` must take rows of 4 features"),
    ):
        with pytest.raises(ArgumentError, match=words):
            RobustRegressor(**options).fit(X, 10 * X[:, 0])


def test_whole_numbers_of_numpy_are_taken() -> None:
    """As a grid search hands them in."""
    assert classifier(epochs=np.int64(2), batch_size=np.int64(50)).fit(X, LABELS).n_iter_ == 2


def test_a_certificate_needs_a_fit() -> None:
    for estimator in (RobustClassifier(), RobustRegressor()):
        with pytest.raises(NotFittedError):
            estimator.certify(X, LABELS, 0.1)


def global_states() -> tuple[Any, Tensor, Any]:
    numpy_state = np.random.get_state(legacy=False)  # noqa: NPY002  (the one that must not move)
    return numpy_state, torch.random.get_rng_state(), random.getstate()


@pytest.mark.parametrize("random_state", [None, 0])
def test_global_generators_stay_as_they_are(random_state: int | None) -> None:
    options: dict[str, Any] = {"epochs": 2, "random_state": random_state, "early_stopping": True}
    before = global_states()
    for estimator in (RobustClassifier(**options), RobustRegressor(**options)):
        estimator.fit(X, LABELS)
        estimator.worst_case(X, LABELS, 0.01)
    after = global_states()
    np.testing.assert_equal(after[0], before[0])
    assert torch.equal(after[1], before[1])
    assert after[2] == before[2]


def test_fits_without_a_random_state_differ() -> None:
    first, second = (RobustClassifier(epochs=1).fit(X, LABELS).predict_proba(X) for _ in range(2))
    assert not np.array_equal(first, second)


def test_data_that_are_refused(plain: RobustClassifier) -> None:
    with pytest.raises(ArgumentError, match=r"`y` must hold labels seen in training, setosa.*got rose"):
        plain.certify(FRAME[:2], ["rose", "setosa"], 0.1)
    with pytest.raises(ArgumentError, match=r"`y` must hold labels seen in training, setosa.*got zinnia"):
        plain.certify(FRAME[:2], ["zinnia", "setosa"], 0.1)  # behind all of them in the alphabet
    with pytest.raises(ArgumentError, match="needs samples of at least 2 classes; got 1 class"):
        classifier().fit(X, np.zeros(150))
    refused = ((-np.ones(150), "must not be negative"), (np.zeros(150), "must not be zero for all"))
    for weights, words in refused:
        with pytest.raises(ArgumentError, match=words):
            classifier().fit(X, LABELS, sample_weight=weights)
    with pytest.raises(ArgumentError, match="`by` must be positive"):
        plain.fragile_features(FRAME, WORDS, by=0.0)


def test_the_learning_rate_falls_to_0_as_half_a_cosine() -> None:
    """Against a loop of torch's own: full batches of Adam, α(1 + cos(πk/T))/2 in epoch k of T."""
    epochs, rate = 5, 0.05
    model = nn.Linear(4, 3).double()
    options: dict[str, Any] = {"epochs": epochs, "learning_rate": rate, "batch_size": 150, "rho": 0.0}
    found = RobustClassifier(network=model, random_state=0, **options).fit(X, LABELS)
    inputs, codes = torch.from_numpy(np.array(X)), torch.from_numpy(np.unique(LABELS, return_inverse=True)[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * epoch / epochs)) / 2
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), codes).backward()
        optimizer.step()
    for one, other in zip(found.module_.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_predictions_are_in_the_targets_units() -> None:
    """A line far from 0: least squares is within reach."""
    y = 1000 + 30 * X[:, 0] - 20 * X[:, 2]
    model = RobustRegressor(rho=0.0, network=(), epochs=300, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=5.0)


def test_a_regression_network_may_return_one_number_for_each_row() -> None:
    class Flat(nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.linear = nn.Linear(inputs, outputs)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            outputs: torch.Tensor = self.linear(rows)[:, 0]
            return outputs

    rows = np.random.default_rng(0).normal(size=(30, 3))
    model = RobustRegressor(network=Flat, epochs=3, random_state=0).fit(rows, rows.sum(1))
    assert model.predict(rows).shape == (30,)


def test_scorers_are_the_bounds_of_certificates() -> None:
    X, y = load_wine(return_X_y=True)
    model = classifier(epochs=3).fit(X, y)
    certificate = model.certify(X, y, 0.01)
    assert loss_bound_scorer(0.01)(model, X, y) == -certificate.bound(0.01)
    error = certificate.error_bound(0.01)
    assert error is not None
    assert error_bound_scorer(0.01)(model, X, y) == 1 - error
    with pytest.raises(ArgumentError, match="`estimator` must be a classifier"):
        error_bound_scorer(0.01)(RobustRegressor(epochs=1, random_state=0).fit(X, y), X, y)
