"""``experiments.next_year`` on a small table, its page, and its attack on trees against brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import certus
from certus.data import DataSet, Split
from experiments.next_year import age_costs, bought
from tests.scripts import Script, read

SMALL = ("--seeds", 1, "--draws", 2, "--epochs", 1, "--rows", 6)


def tumours(seed: int = 0) -> DataSet:
    """A table that is bundled; half of its training rows are years to come, moved by 0, 1 and 2."""
    data = certus.data.breast_cancer(seed)
    rest = data.train[170:]
    later = {year: Split(rest.inputs + k, rest.targets) for k, year in enumerate(YEARS)}
    weights = torch.ones(rest.inputs.shape[1])
    return replace(data, train=data.train[:170], later=later, weights=weights)


YEARS = ("2016", "2017", "2018")


def test_a_small_study_is_measured_and_told(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Any] = []

    def load(name: str, *, seed: int) -> DataSet:
        loaded.append((name, seed))
        return tumours(seed)

    monkeypatch.setattr(certus.data, "load", load)
    output = tmp_path / "study" / "measured.json"
    script("experiments.next_year", *SMALL, "--output", output)
    assert loaded == [("employment", 0)] * 2
    found = read(output)
    # Thirty columns moved by 2 cost 30·4; the estimate is right for translations.
    assert found["shifts"]["2018"]["inputs alone"][0] == pytest.approx(120, rel=0.2)
    models = found["seeds"][0]
    assert list(models) == ["logistic regression", "gradient boosting", "WRM", "certified"]
    for told in models.values():
        for level in ("small", "measured"):
            assert told["worst"][level]["error_low"] >= told["error of the rows"] - 1e-9
    page = (output.parent / "README.md").read_text()
    assert "gradient boosting" in page
    assert ", no proof" in page
    assert (output.parent / "next-year.png").stat().st_size > 10_000
    # The page again, from what was measured.
    (output.parent / "README.md").unlink()
    script("experiments.next_year", "--page", "--output", output)
    assert (output.parent / "README.md").read_text() == page


def test_the_attack_on_trees_buys_the_cheapest_errors_first() -> None:
    """A rule of the age alone: above 60 it errs. Deviation 10 years, so that y years cost y²/100."""
    data = tumours()
    mean, scale = torch.full((1,), 40.0).double(), torch.full((1,), 10.0).double()
    ages = torch.tensor([61.0, 60.0, 58.0, 40.0, 20.0])
    rows = Split(((ages - 40) / 10)[:, None], torch.zeros(5, dtype=torch.long))

    def says(inputs: Tensor) -> Tensor:
        return (inputs[:, 0] * 10 + 40 > 60.5).long()

    costs = age_costs(says, rows, replace(data, input_scale=(mean, scale)))
    # 0.6, 2.6 years; 20.1 does not reach 60.5 from 40, nor from 20.
    np.testing.assert_allclose(costs.numpy(), [0, 0.0036, 0.0676, np.inf, np.inf], rtol=1e-5)
    assert [bought(costs, rho) for rho in (0.0, 0.0007, 0.0008, 0.0143, 1.0)] == [0.2, 0.2, 0.4, 0.6, 0.6]
