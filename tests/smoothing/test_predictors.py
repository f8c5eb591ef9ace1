"""Which models noise certifies: those of scikit-learn by their own ``predict``, and none that answers one
question in two ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.svm import SVC
from torch import Tensor, nn

import certus
from certus.costs import Masked, SquaredL2
from certus.errors import ArgumentError, UnsupportedError
from certus.smoothing import certify_smoothed

Array = np.ndarray[Any, np.dtype[Any]]
ASK: dict[str, Any] = {"rho": [0.01, 0.1], "sigma": 0.3, "draws": 20, "votes": 15, "seed": 3}


def rows(count: int, seed: int) -> tuple[Array, Array]:
    """Two features, and labels that are 1 in a fifth of the rows."""
    source = np.random.default_rng(seed)
    inputs = source.standard_normal((count, 2))
    return inputs, (inputs[:, 0] + source.standard_normal(count) > 1.2).astype(int)


ESTIMATORS = {
    "a threshold": FixedThresholdClassifier(LogisticRegression(), threshold=0.15),
    "probabilities of a second fit": SVC(probability=True, class_weight="balanced", random_state=0),
}


@pytest.mark.filterwarnings("ignore:.*probability:FutureWarning")
@pytest.mark.parametrize("clip", [None, 2.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_labels_of_an_estimator_are_those_that_it_predicts(name: str, clip: float | None) -> None:
    """Not the most probable ones: these estimators disagree with their own probabilities."""
    estimator = ESTIMATORS[name].fit(*rows(300, 0))
    data, other = rows(400, 1), rows(4000, 2)[0]
    disagreeing = estimator.predict_proba(other).argmax(1) != estimator.predict(other)
    assert disagreeing.mean() > 0.05
    found = certify_smoothed(estimator, data, **ASK | {"attack_steps": 2, "clip": clip})
    plain = certify_smoothed(lambda points: estimator.predict(points), data, **ASK | {"attack_steps": 2})
    if clip is None:
        assert found.as_json()["brackets"] == plain.as_json()["brackets"]
    copies = np.repeat(data[0], 25, 0)
    copies = copies + 0.3 * np.random.default_rng(4).standard_normal(copies.shape)
    wrong = float((estimator.predict(copies) != np.repeat(data[1], 25)).mean())
    assert found.lower(0.0) <= wrong <= found.bound(0.0)


def test_the_deployed_vote_is_about_the_same_labels() -> None:
    estimator = ESTIMATORS["a threshold"].fit(*rows(300, 0))
    inputs = torch.from_numpy(rows(200, 1)[0])
    of_estimator, of_labels = (
        certus.smoothing.Smoothed(model, sigma=0.3, votes=15, abstain=None).predict(inputs)
        for model in (estimator, lambda points: estimator.predict(points))
    )
    assert torch.equal(of_estimator, of_labels)


class Jittered(nn.Module):
    """Scores far from 0 that have an offset of their own in each call."""

    def __init__(self, width: float) -> None:
        super().__init__()
        self.width, self.source = width, torch.Generator().manual_seed(0)

    def forward(self, inputs: Tensor) -> Tensor:
        edge = self.width * torch.randn((), generator=self.source)
        return torch.stack([1000.0 + edge - inputs[:, 0], 1000.0 - edge + inputs[:, 0]], 1)


def jittered(width: float, seed: int = 0, *, per_row: bool = False) -> Any:
    """A threshold that is drawn anew in each call, or for each row."""
    source = np.random.default_rng(seed)

    def model(points: Array) -> Array:
        return (points[:, 0] > width * source.standard_normal(len(points) if per_row else None)).astype(int)

    return model


def alternating() -> Any:
    """Two models that take turns, as behind one address."""
    calls = iter(range(10**6))
    return lambda points: (points[:, 0] > 0.2 * (next(calls) // 20 % 2)).astype(int)


RANDOM: dict[str, Any] = {
    "one number for each call": lambda: jittered(0.3),
    "a small one": lambda: jittered(0.03),
    "numbers for each row": lambda: jittered(0.3, per_row=True),
    "another model after some calls": alternating,
    "a module": lambda: Jittered(0.1),
}


@pytest.mark.parametrize("name", RANDOM)
def test_models_that_answer_otherwise_when_they_are_asked_again_are_refused(name: str) -> None:
    inputs = torch.from_numpy(rows(400, 5)[0]).float()
    data = inputs, (inputs[:, 0] > 0).long()
    with pytest.raises(UnsupportedError, match="must be deterministic"):
        certify_smoothed(RANDOM[name](), data, **ASK | {"attack_steps": 0})
    with pytest.raises(UnsupportedError, match="must be deterministic"):
        certus.smoothing.Smoothed(RANDOM[name](), sigma=0.3).radius(inputs[inputs[:, 0].abs() < 0.3])


def test_random_probabilities_are_refused_where_a_loss_is_asked_for() -> None:
    class Mood:
        classes_ = np.array([0, 1])
        source = np.random.default_rng(0)

        def predict(self, points: Array) -> Array:
            return (points[:, 0] > 0).astype(int)

        def predict_proba(self, points: Array) -> Array:
            chance = np.full(len(points), self.source.uniform(0.2, 0.8))
            return np.stack([chance, 1 - chance], 1)

    data = rows(100, 6)
    assert certify_smoothed(Mood(), data, **ASK | {"attack_steps": 0}).bound(0.0) < 1
    with pytest.raises(UnsupportedError, match="must be deterministic"):
        certify_smoothed(Mood(), data, **ASK | {"attack_steps": 0, "clip": 2.0})


@pytest.mark.parametrize("offset", [-2, 2**32])
def test_labels_that_codes_cannot_tell_apart_are_refused(offset: int) -> None:
    """−2 is the mark of an abstention, and codes have 32 bits."""
    inputs, labels = rows(60, 7)

    def model(points: Array) -> Array:
        return (points[:, 0] > 0).astype(int) + offset

    with pytest.raises(ArgumentError, match="`targets` must have labels"):
        certify_smoothed(model, (inputs, labels + offset), **ASK)
    with pytest.raises(ArgumentError, match="`model` must have labels"):
        certify_smoothed(model, (inputs, labels), **ASK)
    with pytest.raises(ArgumentError, match="`model` must have labels"):
        certus.smoothing.Smoothed(model, sigma=0.3).predict(torch.from_numpy(inputs[:5]))


@pytest.mark.parametrize("kind", [str, object])
def test_words_of_a_callable_are_refused(kind: Any) -> None:
    inputs = torch.linspace(-2, 2, 40)[:, None]
    codes = (inputs[:, 0] > 0).long()
    words: Array = np.where(codes.numpy() == 1, "yes", "no").astype(kind)

    def numbers(points: Array) -> Array:
        return (points[:, 0] > 0).astype(int)

    def named(points: Array) -> Array:
        return np.where(points[:, 0] > 0, "yes", "no").astype(kind)

    for model, data, name in (
        (named, (inputs, codes), "model"),
        (numbers, (inputs, words), "targets"),
        (numbers, [(inputs, words)], "targets"),
    ):
        with pytest.raises(ArgumentError, match=f"`{name}` must have numbers"):
            certify_smoothed(model, data, rho=0.1, sigma=0.3)


def test_an_estimator_may_have_classes_of_any_number() -> None:
    """Their codes are their places: −2 as a class is none of its own."""
    inputs, labels = rows(300, 8)
    low = LogisticRegression().fit(inputs, labels - 2)
    plain = LogisticRegression().fit(inputs, labels)
    found = [
        certify_smoothed(model, (inputs, told), **ASK | {"attack_steps": 0}).as_json()["brackets"]
        for model, told in ((low, labels - 2), (plain, labels))
    ]
    assert found[0] == found[1]


def test_a_regressor_of_another_library_is_searched_for_a_worse_loss() -> None:
    """Squared errors of 1 + x₁ for targets x₁, with noise, have the mean (1 + d)² + σ² once x₁ moved by d:
    at most (1 + √ρ)² + σ² where moves cost ρ on average."""
    inputs, _ = rows(400, 9)

    class Straight:
        def predict(self, points: Array) -> Array:
            return np.asarray(1 + points[:, 0])

    data = torch.from_numpy(inputs), torch.from_numpy(inputs[:, 0])
    found = certify_smoothed(Straight(), data, **ASK | {"rho": 0.5, "clip": 8.0, "attack_steps": 4})
    assert found.lower(0.0, "loss") <= 1 + 0.3**2 <= found.bound(0.0, "loss")
    worst = (1 + 0.5**0.5) ** 2 + 0.3**2
    assert found.lower(0.0, "loss") < found.lower(0.5, "loss") <= worst <= found.bound(0.5, "loss")


@pytest.mark.parametrize("framed", [True, False])
def test_words_get_no_noise(framed: bool) -> None:
    """They are refused with what to do; behind the encoder they are frozen, and the noise leaves them."""
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"size": rng.normal(size=60), "town": rng.choice(["Bern", "Genf"], 60)})
    labels = (table["size"] + (table["town"] == "Bern") > 0).astype(int)
    encoder = ColumnTransformer([("n", "passthrough", [0]), ("w", OneHotEncoder(sparse_output=False), [1])])
    given = table if framed else table.to_numpy(dtype=object)
    model = make_pipeline(encoder, LogisticRegression()).fit(given, labels)
    options: dict[str, Any] = {"rho": 0.01, "sigma": 0.25, "draws": 4, "votes": 4, "attack_steps": 0}
    with pytest.raises(ArgumentError, match=r"(object|str).*certus\.certify reads pipelines.*Masked"):
        certus.certify_smoothed(model, (given, labels), **options)
    rows = np.asarray(model[0].transform(given), dtype=np.float64)
    cost = Masked(SquaredL2(), torch.tensor([True, False, False]))
    asked: list[Any] = []

    def last(inputs: Any) -> Any:
        asked.append(inputs)
        return model[-1].predict(inputs)

    certus.certify_smoothed(last, (rows, labels.to_numpy()), cost=cost, **options)
    assert all(set(np.unique(inputs[:, 1:])) <= {0.0, 1.0} for inputs in asked)
