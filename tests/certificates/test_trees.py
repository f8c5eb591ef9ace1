"""Certificates of tree ensembles, against all cells of small ones and the models' own predictions."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from torch import nn

from certus import certify
from certus._progress import progress_bar
from certus.bounds.trees import read_ensemble
from certus.certificates import Certificate
from certus.certificates.tree_search import TreeSearch
from certus.certificates.tree_workers import TreeWorkers
from certus.certificates.trees import EncodedRows, certify_trees
from certus.costs import ColumnPrices, Cost, LabelCost, SquaredL2, SquaredSup, WeightedL2
from certus.errors import ArgumentError, UnsupportedError
from certus.kernel.check import check
from certus.kernel.trees import Prices, least_costs
from tests.kernel.tree_oracle import random_case

RHOS = [0.01, 0.1]


@pytest.mark.parametrize("largest", [False, True])
def test_branch_and_bound_closes(largest: bool) -> None:
    """What the search proposes is proven by the kernel, and equals the least cost over all cells."""
    closed = 0
    score = torch.ones(1, dtype=torch.float64), 0.0
    for seed in range(40):
        case = random_case(seed, largest=largest, trees=5)
        level = float(np.quantile(case.scores, 0.9))
        search = TreeSearch(case.ensemble, case.prices)
        rows, cost = search.rows(case.row, score, level)
        truth = case.least_cost(np.ones(1), 0.0, level)
        assert cost >= truth * (1 - 1e-9)
        if cost < math.inf and len(rows):
            assert float(case.ensemble.scores(rows[-1:])) >= level - 1e-12
        proof, _, (point, met) = search.prove(case.row, score, level, boxes=200, attained=cost)
        if met < math.inf:
            assert float(case.ensemble.scores(point[None])) >= level - 1e-12
        levels = torch.tensor([level], dtype=torch.float64)
        bound = float(least_costs(case.ensemble, case.prices, case.row, score, levels, proof))
        assert bound <= truth * (1 + 1e-9), (seed, bound, truth)
        closed += bound >= truth * (1 - 1e-6)
    assert closed >= 38


def cancer() -> tuple[GradientBoostingClassifier, np.ndarray, np.ndarray]:
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    model = GradientBoostingClassifier(n_estimators=15, max_depth=2, random_state=0)
    return model.fit(inputs[:400], labels[:400]), inputs[400:430], labels[400:430]


def test_gradient_boosting_is_bracketed() -> None:
    model, inputs, labels = cancer()
    certificate = certify(model, (inputs, labels), rho=RHOS, epsilon=0.1, confidence=0.9, progress=False)
    assert certificate.evidence == "proven"
    for rho in RHOS:
        bracket = certificate.bracket(rho)
        assert bracket.error_low is not None
        assert bracket.error_high is not None
        assert bracket.error_low <= bracket.error_high <= 1.05 * bracket.error_low + 1e-9
        assert bracket.loss_low <= bracket.loss_high < 3
        rows, weights = certificate.worst_error_data(rho)
        errors = model.predict(rows.inputs.numpy()) != rows.targets.numpy()
        assert float(weights @ torch.tensor(errors).double()) == pytest.approx(bracket.error_low, abs=1e-9)
        moved = np.concatenate([inputs, inputs])
        spent = ((rows.inputs.numpy() - moved) ** 2).sum(1)
        assert float(weights.numpy() @ spent) <= rho * (1 + 1e-9)
        assert bracket.population_error is not None
        assert bracket.population_error >= bracket.error_high - 1e-9
    own = certificate.statement.error_costs
    assert own is not None
    assert certificate.certified_accuracy(0.1) <= certificate.attacked_accuracy(0.1)
    attacked = inputs[:, None] + np.random.default_rng(0).normal(0, 0.05, (len(inputs), 300, inputs.shape[1]))
    flipped = (
        model.predict(attacked.reshape(-1, inputs.shape[1])).reshape(len(inputs), 300) != labels[:, None]
    )
    costs = np.where(flipped, ((attacked - inputs[:, None]) ** 2).sum(2), math.inf).min(1)
    assert (own.numpy() <= costs).all()


def test_forests_classes_and_numbers() -> None:
    inputs, labels = load_iris(return_X_y=True)
    inputs, labels = inputs[::12], labels[::12]
    forest = RandomForestClassifier(5, max_depth=3, random_state=0).fit(inputs, labels)
    certificate = certify(
        forest, (inputs, labels), rho=0.05, label_cost=LabelCost(0.5, 3), time_limit=1, progress=False
    )
    assert certificate.lower(0.05) <= certificate.bound(0.05) <= math.log(1000)
    boosted = GradientBoostingClassifier(n_estimators=4, max_depth=2, random_state=0).fit(inputs, labels)
    certificate = certify(
        boosted, (inputs, None), rho=0.05, class_weights=[1, 2, 1], time_limit=1, progress=False
    )
    assert certificate.labels == "predicted"
    assert certificate.error_lower(0.0) == 0
    targets = inputs[:, 3]
    regressor = GradientBoostingRegressor(n_estimators=8, max_depth=2, random_state=0).fit(
        inputs[:, :3], targets
    )
    for criterion, power in ((None, 2), (nn.L1Loss(), 1)):
        certificate = certify(
            regressor, (inputs[:, :3], targets), rho=0.02, criterion=criterion, progress=False
        )
        own = np.mean(np.abs(regressor.predict(inputs[:, :3]) - targets) ** power)
        low, high = certificate.clean_loss
        assert low <= own * (1 + 1e-9)
        assert high >= own * (1 - 1e-9)
        assert low <= certificate.lower(0.02) <= certificate.bound(0.02)


def test_unsupported_options_of_trees_are_refused() -> None:
    model, inputs, labels = cancer()
    with pytest.raises(ArgumentError, match="gammas"):
        certify(model, (inputs, labels), rho=0.1, gammas=[1.0])
    with pytest.raises(UnsupportedError, match="HuberLoss"):
        certify(model, (inputs, labels), rho=0.1, criterion=nn.HuberLoss())
    with pytest.raises(ArgumentError, match="classes"):
        certify(model, (inputs, labels + 7), rho=0.1)


def test_an_estimate_comes_before_a_long_search() -> None:
    """10⁵ trees and 2,000 rows: hours for the first searches alone, unless their time is limited."""
    model, inputs, labels = cancer()
    reading = read_ensemble(model)
    ensemble, copies = reading.ensemble, 100_000 // 15
    nodes, steps = len(ensemble.feature), torch.arange(copies)[:, None]
    names = ("feature", "threshold", "missing_left", "category_set")
    whole = {name: getattr(ensemble, name).repeat(copies) for name in names}
    for name in ("left", "right"):
        child = getattr(ensemble, name)
        whole[name] = torch.where(child >= 0, child + nodes * steps, -1).flatten()
    roots = (ensemble.roots + nodes * steps).flatten()
    many = replace(ensemble, roots=roots, value=ensemble.value.repeat(copies, 1), **whole)
    rows = np.repeat(inputs, 2000, 0)[:2000], np.repeat(labels, 2000)[:2000]
    with pytest.raises(ArgumentError, match=r"time_limit.*hours"):
        certify_trees(replace(reading, ensemble=many), rows, rho=0.1, progress=False)
    wide = torch.full((3000,), 1.0).double()
    with pytest.raises(UnsupportedError, match="GiB"):
        certify_trees(
            replace(reading, ensemble=replace(many, columns=3000)),
            EncodedRows(torch.zeros(1, 3000).double(), torch.zeros(1).long()),
            rho=0.1,
            cost=Prices(wide, wide, torch.zeros(3000, dtype=torch.bool)),
            progress=False,
        )


@pytest.mark.parametrize("largest", [False, True])
def test_proposals_of_many_trees_fit_the_rule(largest: bool) -> None:
    """Weights of thousands of pairs still sum to at most their shares with the kernel's rounding."""
    case = random_case(0, columns=2, trees=1, largest=largest)
    ensemble = case.ensemble
    ensemble = replace(ensemble, roots=ensemble.roots.repeat(3000))
    score = torch.ones(1, dtype=torch.float64), 0.0
    level = float(ensemble.scores(case.row[None])) + 0.1
    proof, _, _ = TreeSearch(ensemble, case.prices).prove(case.row, score, level, boxes=2, steps=(5, 2))
    levels = torch.tensor([level], dtype=torch.float64)
    assert float(least_costs(ensemble, case.prices, case.row, score, levels, proof)) >= 0


def test_a_stored_certificate_is_verified_without_the_model(tmp_path: Path) -> None:
    """The kernel proves every upper side again from trees, proofs and rows; a forged one fails."""
    model, inputs, labels = cancer()
    inputs, labels = inputs[:8], labels[:8]
    certificate = certify(
        model,
        (inputs, labels),
        rho=RHOS,
        epsilon=0.1,
        confidence=0.9,
        label_cost=LabelCost(0.5, 2),
        class_weights=[1, 2],
        progress=False,
    )
    file = tmp_path / "certificate.json"
    certificate.save(file, include_data=True)
    checked = check(file)
    assert checked.verified
    assert checked.statement.evidence == "proven"
    assert len(checked.assumptions) == 2
    proven = Certificate.load(file).verify((inputs, labels))
    for rho in RHOS:
        assert proven.bound(rho) == pytest.approx(certificate.bound(rho), rel=1e-12)
        assert proven.error_bound(rho) == pytest.approx(certificate.error_bound(rho), rel=1e-12)
    content = file.read_text()
    stated = certificate.bracket(RHOS[0]).error_high
    forged = content.replace(f'"error_high": {stated!r}', f'"error_high": {stated * 0.99!r}')  # type: ignore[operator]
    assert forged != content
    file.write_text(forged)
    assert [each.name for each in check(file).failed] == ["error_high"]


def test_stored_certificates_of_all_losses(tmp_path: Path) -> None:
    inputs, labels = load_iris(return_X_y=True)
    inputs, labels = inputs[::15], labels[::15]
    forest = RandomForestClassifier(4, max_depth=3, random_state=0).fit(inputs, labels)
    boosted = GradientBoostingClassifier(n_estimators=3, max_depth=2, random_state=0).fit(inputs, labels)
    regressor = GradientBoostingRegressor(n_estimators=5, max_depth=2, random_state=0)
    regressor.fit(inputs[:, :3], inputs[:, 3])
    cases: list[tuple[Any, Any, Cost]] = [
        (forest, (inputs, labels), SquaredL2()),
        (boosted, (inputs, None), SquaredSup()),
        (regressor, (inputs[:, :3], inputs[:, 3]), WeightedL2(torch.tensor([1.0, 2.0, 3.0]))),
    ]
    for number, (model, data, cost) in enumerate(cases):
        file = tmp_path / f"{number}.json"
        certificate = certify(model, data, rho=0.05, cost=cost, time_limit=1, progress=False)
        certificate.save(file, include_data=True)
        assert check(file).verified


def test_categories_and_gaps_are_stored(tmp_path: Path) -> None:
    """A histogram booster with categories and gaps, whose prices are given column by column."""
    random = np.random.default_rng(0)
    inputs = np.column_stack([random.normal(size=(120, 2)), random.integers(0, 4, 120)])
    labels = (inputs[:, 0] + (inputs[:, 2] > 1) > 0.5).astype(int)
    inputs[random.random(120) < 0.2, 1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=4, categorical_features=[2], random_state=0)
    model.fit(inputs, labels)
    prices = Prices(
        torch.tensor([1.0, 1.0, 0.5]).double(),
        torch.tensor([math.inf, 0.3, math.inf]).double(),
        torch.tensor([False, False, True]),
    )
    certificate = certify_trees(
        read_ensemble(model), (inputs[:12], labels[:12]), rho=RHOS, cost=prices, progress=False
    )
    file = tmp_path / "certificate.json"
    certificate.save(file, include_data=True)
    assert check(file).verified
    rows, weights = certificate.worst_error_data(RHOS[1])
    errors = model.predict(rows.inputs.numpy()) != rows.targets.numpy()
    assert float(weights @ torch.tensor(errors).double()) == pytest.approx(
        certificate.error_lower(RHOS[1]), abs=1e-9
    )


def test_workers_change_nothing() -> None:
    """Every bound and attained value is the same, bit for bit, with two workers."""
    model, inputs, labels = cancer()
    alone = certify(model, (inputs[:10], labels[:10]), rho=RHOS, progress=False)
    with joblib.parallel_config(backend="threading"):
        together = certify(model, (inputs[:10], labels[:10]), rho=RHOS, n_jobs=2, progress=False)
    for rho in RHOS:
        assert alone.bracket(rho) == together.bracket(rho)


@pytest.mark.parametrize(("after", "words"), [(30, "first searches of 0 of 12"), (90, "it was interrupted")])
def test_an_interrupted_search_keeps_what_is_proven(
    after: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, inputs, labels = cancer()
    answers, asked = TreeWorkers.answers, iter(range(10_000))

    def interrupted(workers: TreeWorkers, questions: Any) -> Iterator[Any]:
        for answer in answers(workers, questions):
            if next(asked) == after:
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(TreeWorkers, "answers", interrupted)
    certificate = certify(
        model, (inputs[:12], labels[:12]), rho=RHOS, width=1.001, confidence=0.9, progress=False
    )
    assert words in certificate.about["search"]["unfinished"]
    assert "keep wide brackets" in str(certificate)
    # A population's bounds need the first searches of all rows.
    assert (certificate.population is None) == (after == 30)
    file = tmp_path / "certificate.json"
    certificate.save(file, include_data=True)
    assert check(file).verified
    monkeypatch.setattr(TreeWorkers, "answers", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        certify(model, (inputs[:2], labels[:2]), rho=0.1, progress=False)


def test_progress_shows_the_bracket() -> None:
    model, inputs, labels = cancer()
    shares: list[float] = []
    certify(model, (inputs[:3], labels[:3]), rho=0.1, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    shown: list[str] = []
    with progress_bar(None, "certifying", console) as report:
        report.describe = shown.append  # type: ignore[union-attr]
        certify_trees(read_ensemble(model), (inputs[:3], labels[:3]), rho=0.1, progress=report)
    assert "error" in shown[-1]


def test_prices_by_column() -> None:
    """Gaps, frozen columns and discrete columns by name; the same as the kernel's prices."""
    random = np.random.default_rng(1)
    inputs = np.column_stack([random.normal(size=(90, 2)), random.integers(0, 2, 90)])
    labels = (inputs[:, 0] + inputs[:, 2] + 0.3 * inputs[:, 1] > 0.7).astype(int)
    inputs[random.random(90) < 0.2, 1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=4, random_state=0).fit(inputs, labels)
    rows, names = (inputs[:8], labels[:8]), [f"column {place}" for place in range(3)]
    cost = ColumnPrices({names[0]: math.inf}, gap={names[1]: 0.2}, discrete=[names[2]])
    own = certify(model, rows, rho=0.3, cost=cost, progress=False)
    prices = Prices(
        torch.tensor([math.inf, 1, 1]).double(),
        torch.tensor([math.inf, 0.2, math.inf]).double(),
        torch.tensor([False, False, True]),
    )
    assert own.bracket(0.3) == certify_trees(
        read_ensemble(model), rows, rho=0.3, cost=prices, progress=False
    ).bracket(0.3)
    moved = own.worst_error_data(0.3)[0].inputs.numpy()[:8]
    assert (moved[:, 0] == inputs[:8, 0]).all()
    assert np.isin(moved[:, 2], [0, 1]).all()
    for wrong, match in (
        (ColumnPrices({"age": 1.0}), r"`move` must name columns of the model, column 0.*age"),
        (ColumnPrices(gap=[1.0]), "`gap` must have 3 prices"),
        (ColumnPrices(gap=[1.0, 0.0, 1.0]), "`gap` must be positive"),
        (ColumnPrices(discrete=["town"]), "`discrete` must name"),
    ):
        with pytest.raises(ArgumentError, match=match):
            certify(model, rows, rho=0.3, cost=wrong, progress=False)
    with pytest.raises(ArgumentError, match="ColumnPrices are for trees"):
        certify(nn.Linear(3, 2), rows, rho=0.3, cost=cost, progress=False)
