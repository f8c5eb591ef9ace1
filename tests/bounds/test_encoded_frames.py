"""Pipelines on frames with words: the certificate against every row that the pipeline itself predicts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler

import certus
from certus.costs import ColumnPrices
from certus.errors import ArgumentError, UnreadableModelError
from certus.estimators import RobustClassifier
from tests.runs.test_table_brackets import worst_over

TOWNS, KINDS = ("Bern", "Chur", "Genf"), ("a", "b")


def frame(count: int, seed: int) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"town": rng.choice(TOWNS, count), "age": rng.normal(40, 10, count), "kind": rng.choice(KINDS, count)}
    )
    score = (
        (table["age"] - 40) / 5
        + 2 * (table["town"] == "Bern")
        - 2 * (table["kind"] == "a")
        + rng.normal(0, 0.5, count)
    )
    table.loc[rng.random(count) < 0.05, "age"] = np.nan
    return table, np.where(score > 0, "yes", "no")


def pipeline(model: Any, words: Any = None, numbers: Any = None, *more: Any) -> Pipeline:
    numbers = numbers or make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = words or make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    encoder = ColumnTransformer([("n", numbers, ["age"]), ("w", words, ["town", "kind"])])
    return make_pipeline(encoder, *more, model)


LINEAR, NETWORK = (
    LogisticRegression(C=10.0),
    MLPClassifier((4,), activation="tanh", solver="lbfgs", max_iter=200, random_state=0),
)
CODES = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
RARE = OneHotEncoder(min_frequency=80, handle_unknown="infrequent_if_exist", sparse_output=False)
MARKED = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
DENSE = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
OWN = RobustClassifier(rho=0.01, network=(3,), epochs=5, random_state=0)
PIPELINES = {
    "one-hot": pipeline(LINEAR),
    "perceptron": pipeline(NETWORK),
    "codes": pipeline(NETWORK, CODES),
    "rare values": pipeline(LINEAR, RARE),
    "marked gaps": pipeline(LINEAR, None, MARKED),
    "components": pipeline(LINEAR, DENSE, None, PCA(3, random_state=0)),
    "selected": pipeline(LINEAR, DENSE, None, SelectKBest(k=3)),
    "own": pipeline(OWN, DENSE),
    "searched": GridSearchCV(pipeline(LINEAR), {"logisticregression__C": [1.0, 10.0]}, cv=2),
}


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_on_words_against_all_rows(name: str) -> None:
    fitted = PIPELINES[name].fit(*frame(200, 0))
    table, labels = frame(5, 1)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()).fit(frame(200, 0)[0][["age"]])
    if name == "marked gaps":
        numbers = make_pipeline(SimpleImputer(), StandardScaler()).fit(frame(200, 0)[0][["age"]])
        table["age"] = table["age"].fillna(41.0)  # a gap and its mark do not move
    filled = table.fillna({"age": float(numbers[0].statistics_[0])})
    scale = float(numbers[1].scale_[0])
    grid, costs, wrong = np.linspace(-3, 3, 201), [], []
    for (_, row), label in zip(filled.iterrows(), labels, strict=True):
        own_costs, own_wrong = [], []
        for town, kind in itertools.product((*TOWNS, "new"), (*KINDS, "new")):
            moved = pd.DataFrame({"town": town, "age": row["age"] + scale * grid, "kind": kind})
            own_costs.append(grid**2 + (town != row["town"]) + (kind != row["kind"]))
            own_wrong.append((fitted.predict(moved) != label).astype(float))
        costs.append(np.concatenate(own_costs))
        wrong.append(np.concatenate(own_wrong))
    certificate = certus.certify(fitted, (table, labels), rho=0.1, local_radii=2, attack_steps=3)
    assert certificate.over_rows
    low, high = certificate.error_lower(0.1), certificate.error_bound(0.1)
    assert low is not None
    assert high is not None
    assert worst_over(np.stack(costs), np.stack(wrong), 0.1) <= high + 1e-6
    assert low <= worst_over(np.stack(costs), np.stack(wrong), 0.1 * 1.05 + 2e-3) + 1e-3
    now = float((fitted.predict(table) != labels).mean())
    assert certificate.error_bound(0.0) == pytest.approx(now, abs=1e-9)


def test_what_is_not_read_is_named() -> None:
    table, labels = frame(60, 0)
    filled = table.fillna({"age": 40.0})

    def refused(model: Any, words: str, kind: type[Exception] = UnreadableModelError, **columns: Any) -> None:
        fitted = make_pipeline(model, LINEAR).fit(filled, labels)
        with pytest.raises(kind, match=words):
            certus.certify(fitted, (filled.assign(**columns), labels), rho=0.1)

    town, age = ("w", OneHotEncoder(), ["town"]), ("n", StandardScaler(), ["age"])
    refused(ColumnTransformer([("b", KBinsDiscretizer(3), ["age"]), town]), "KBinsDiscretizer")
    twice = make_pipeline(SimpleImputer(), OneHotEncoder(sparse_output=False, handle_unknown="ignore"))
    refused(ColumnTransformer([town, age, ("t", twice, ["age"])]), "'age', .*(two ways|at once|encoded)")
    refused(ColumnTransformer([town, age]), "unknown categories .'Zug'", ArgumentError, town="Zug")
    refused(ColumnTransformer([town, age]), "(no gaps|NaN)", ArgumentError, age=np.nan)
    with pytest.raises(ArgumentError, match="ColumnPrices are for trees, and pipelines with encoders"):
        certus.certify(LINEAR.fit(filled[["age"]], labels), (filled[["age"]], labels), rho=0.1, cost=PRICES)


def test_a_pipeline_that_says_something_else_is_refused() -> None:
    """At one value of one column, and nowhere else."""
    table, labels = frame(60, 0)
    fitted = pipeline(LINEAR, DENSE).fit(table, labels)
    own = fitted.decision_function
    fitted.decision_function = lambda rows: own(rows) + (rows["town"] == "Chur")
    with pytest.raises(UnreadableModelError, match="disagrees with the network read from it"):
        certus.certify(fitted, (table, labels), rho=0.1)


PRICES = ColumnPrices({"age": 0.01, "kind": np.inf})


def test_prices_by_column_and_order_of_columns() -> None:
    """A frozen column, and a frame whose columns stand in another order; numbers are in the user's units."""
    table, labels = frame(40, 0)
    table = table.fillna({"age": 40.0})
    fitted = pipeline(LINEAR).fit(table, labels)
    options: dict[str, Any] = {"rho": 0.05, "cost": PRICES, "local_radii": 0, "attack_steps": 1}
    certificate = certus.certify(fitted, (table, labels), **options)
    turned = certus.certify(fitted, (table[["kind", "age", "town"]], labels), **options)
    assert certificate.error_bound(0.05) == turned.error_bound(0.05)
    score, codes = fitted.decision_function, np.where(labels == "yes", 1, -1)
    step = float(score(table.assign(age=41.0))[0] - score(table.assign(age=40.0))[0])
    nearest = np.minimum(0.01 * (np.maximum(score(table) * codes, 0) / step) ** 2, 1.0)
    for town in (*TOWNS, "new"):
        moved = np.maximum(score(table.assign(town=town)) * codes, 0)
        nearest = np.minimum(nearest, (table["town"] != town) + 0.01 * (moved / step) ** 2)
    exact = worst_over(np.stack([nearest, 0 * nearest], 1), np.array([[1.0, 0.0]]).repeat(40, 0), 0.05)
    assert certificate.error_bound(0.05) == pytest.approx(exact, rel=1e-3)


def test_predicted_labels_and_a_cost_of_ones_own() -> None:
    fitted = pipeline(LINEAR).fit(*frame(200, 0))
    table, _ = frame(10, 2)
    cost = certus.costs.WeightedL2(torch.tensor([0.5, 0.5, 0.5, 0.02, 1.0, 1.0]))
    certificate = certus.certify(fitted, (table, None), rho=0.05, cost=cost, local_radii=1, attack_steps=2)
    assert certificate.labels == "predicted"
    assert certificate.error_bound(0.0) == pytest.approx(0, abs=1e-12)
