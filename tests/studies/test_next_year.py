"""``next-year`` on a small table, its page, and the rows that trees take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import certus
from certus.data import Samples
from certus.datasets import SplitDataset
from studies.next_year import STUDY, cell_rows, one_hot
from studies.study import Outcome, Scale
from studies.workspace import Workspace


def tumours(seed: int = 0) -> SplitDataset:
    """A table that is bundled; half of its training rows are years to come, moved by 0, 1 and 2."""
    data = certus.datasets.breast_cancer(seed)
    rest = data.train[170:]
    later = {year: Samples(rest.inputs + k, rest.targets) for k, year in enumerate(YEARS)}
    weights = torch.ones(rest.inputs.shape[1])
    return replace(data, train=data.train[:170], later=later, weights=weights)


YEARS = ("2016", "2017", "2018")


def test_a_small_study_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []

    def load(name: str, *, seed: int) -> SplitDataset:
        loaded.append((name, seed))
        return tumours(seed)

    monkeypatch.setattr(certus.datasets, "load", load)
    workspace, quick = Workspace(tmp_path), STUDY.parts(Scale.QUICK)
    measured = {
        part.name: part.measure(workspace, {**part.settings, "rows": 6, "rows of trees": 6}) for part in quick
    }
    assert set(loaded) == {("employment", 0)}
    # Thirty columns moved by 2 cost 30·4; the estimate is right for translations.
    assert measured["shifts"]["shifts"]["2018"]["inputs alone"][0] == pytest.approx(120, rel=0.2)
    models = measured["split-0"]["models"]
    assert list(models) == ["logistic regression", "gradient boosting", "WRM", "certified"]
    for told in models.values():
        for level in ("small", "measured"):
            assert told["worst"][level]["error_low"] >= told["error of the rows"] - 1e-9
            assert told["worst"][level]["evidence"] == "proven"
    assert STUDY.text is not None
    page = STUDY.text(measured)
    moved = measured["shifts"]["levels"]["measured"]
    assert f"| ρ = {moved:.2g} | error |" in page
    best, proven = STUDY.verdicts(measured)
    assert list(best.ours) == list(models)
    assert list(proven.ours) == list(models)
    left, _ = STUDY.pictures[0].draw(measured).axes
    marks = [np.asarray(line.get_ydata(), dtype=float) for line in left.lines if line.get_label() == "WRM"]
    assert np.concatenate(marks) == pytest.approx([100 * error for error in models["WRM"]["errors"].values()])


def test_answers_are_codes_and_models_see_them_one_hot() -> None:
    inputs = torch.tensor([[0.5, 0, 1, 0, 1, 0], [-1.0, 0, 0, 1, 0, 1]])
    names = ("age", "town=a", "town=b", "town=c", "pays=no", "pays=yes")
    data = replace(tumours(), feature_names=names)
    cells = cell_rows(data, inputs)
    assert cells.tolist() == [[0.5, 1.0, 0.0], [-1.0, 2.0, 1.0]]
    model = one_hot(data, LogisticRegression()).fit(cells, [0, 1])
    np.testing.assert_array_equal(model[0].transform(cells), inputs.numpy())


@pytest.mark.parametrize(
    ("errors", "bounds", "outcomes"),
    [
        ((0.2, 0.19, 0.1, 0.3), (0.7, 0.1, 0.6, 0.5), [Outcome.YES, Outcome.YES]),
        ((0.2, 0.19, 0.3, 0.1), (0.7, 0.9, 0.8, 0.5), [Outcome.YES, Outcome.PARTLY]),
        ((0.2, 0.1, 0.19, 0.3), (0.7, 0.1, 0.7, 0.8), [Outcome.NO, Outcome.NO]),
    ],
)
def test_each_question_can_be_answered_with_no(
    errors: tuple[float, ...], bounds: tuple[float, ...], outcomes: list[Outcome]
) -> None:
    names = ("logistic regression", "gradient boosting", "WRM", "certified")
    models: dict[str, Any] = {
        name: {"errors": dict.fromkeys(("2015", "2016", "2017", "2018"), error), "worst": {"small": {}}}
        for name, error in zip(names, errors, strict=True)
    }
    for name, bound in zip(names, bounds, strict=True):
        models[name]["worst"]["small"] = {"error_high": bound}
    measured = {"shifts": {"levels": {"small": 0.01}}, "split-0": {"models": models}}
    assert [one.outcome for one in STUDY.verdicts(measured)] == outcomes
