"""Pipelines on frames with words: the certificate against every row that the pipeline itself predicts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import certus
from certus.errors import UnreadableModelError
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


def pipeline(model: Any) -> Pipeline:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    return Pipeline(
        [
            ("encode", ColumnTransformer([("n", numbers, ["age"]), ("w", words, ["town", "kind"])])),
            ("model", model),
        ]
    )


MODELS = (
    LogisticRegression(C=10.0),
    MLPClassifier((4,), activation="tanh", solver="lbfgs", max_iter=200, random_state=0),
)


@pytest.mark.parametrize("model", MODELS, ids=["linear", "perceptron"])
def test_a_pipeline_on_words_against_all_rows(model: Any) -> None:
    fitted = pipeline(model).fit(*frame(200, 0))
    table, labels = frame(5, 1)
    filled = table.fillna({"age": float(fitted["encode"].named_transformers_["n"][0].statistics_[0])})
    scale = float(fitted["encode"].named_transformers_["n"][1].scale_[0])
    grid, costs, wrong = np.linspace(-3, 3, 201), [], []
    for (_, row), label in zip(filled.iterrows(), labels, strict=True):
        own_costs, own_wrong = [], []
        for town, kind in itertools.product((*TOWNS, "new"), (*KINDS, "new")):
            moved = pd.DataFrame({"town": town, "age": row["age"] + scale * grid, "kind": kind})
            own_costs.append(grid**2 + (town != row["town"]) + (kind != row["kind"]))
            own_wrong.append((fitted.predict(moved) != label).astype(float))
        costs.append(np.concatenate(own_costs))
        wrong.append(np.concatenate(own_wrong))
    for rho in (0.1,):
        certificate = certus.certify(fitted, (table, labels), rho=rho, local_radii=2, attack_steps=3)
        assert certificate.over_rows
        low, high = certificate.error_lower(rho), certificate.error_bound(rho)
        assert low is not None
        assert high is not None
        assert worst_over(np.stack(costs), np.stack(wrong), rho) <= high + 1e-6
        assert low <= worst_over(np.stack(costs), np.stack(wrong), rho * 1.05 + 2e-3) + 1e-3


def test_what_is_not_read_is_named() -> None:
    table, labels = frame(60, 0)
    encoder = ColumnTransformer([("o", OrdinalEncoder(), ["kind"]), ("w", OneHotEncoder(), ["town"])])
    fitted = Pipeline([("encode", encoder), ("model", LogisticRegression())]).fit(table, labels)
    with pytest.raises(UnreadableModelError, match="OrdinalEncoder"):
        certus.certify(fitted, (table, labels), rho=0.1)
    dropped = ColumnTransformer([("w", OneHotEncoder(drop="first"), ["town"])])
    fitted = Pipeline([("encode", dropped), ("model", LogisticRegression())]).fit(table, labels)
    with pytest.raises(UnreadableModelError, match="drop"):
        certus.certify(fitted, (table, labels), rho=0.1)


def test_predicted_labels_and_a_cost_of_ones_own() -> None:
    fitted = pipeline(MODELS[0]).fit(*frame(200, 0))
    table, _ = frame(10, 2)
    cost = certus.costs.WeightedL2(torch.tensor([2.0, 0.5, 0.5, 0.5, 1.0, 1.0]))
    certificate = certus.certify(fitted, (table, None), rho=0.05, cost=cost, local_radii=1, attack_steps=2)
    assert certificate.labels == "predicted"
    assert certificate.error_bound(0.0) == pytest.approx(0, abs=1e-12)
