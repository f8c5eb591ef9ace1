"""The study of monitoring on a small table: verdicts follow from what was made to move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas
import pytest

from certus.datasets import SplitDataset, from_frame
from studies.monitoring import CONTROL, FIRST, STUDY, story
from studies.study import Outcome, Scale


@pytest.fixture(scope="module")
def data() -> SplitDataset:
    rng = np.random.default_rng(0)
    income, town = rng.normal(0, 1, 600), rng.choice(["a", "b"], 600)
    granted = np.where(income + 0.3 * rng.normal(0, 1, 600) > 0, "yes", "no")
    return from_frame(
        pandas.DataFrame({"income": income, "town": town, "granted": granted}), target="granted"
    )


def test_a_small_story_is_measured_and_told(data: SplitDataset) -> None:
    still, moved = data.calibration, data.calibration.inputs.clone()
    moved[:, 0] += 1.5
    later = {"same": still, "moved": replace(still, inputs=moved)}
    settings = {"seed": 0, "rhos": [0.01, 0.1], "epochs": 1, "rows": 80, "most": 100, "columns": ["income"]}
    settings["chosen_rhos"] = [0.1, 5.0]
    told = story(data, later, settings)
    checks = {check["name"]: check for check in told["checks"]}
    assert list(checks) == [CONTROL, "same", "moved"]
    assert checks["moved"]["verdict"] == "alarm"
    assert checks["moved"]["by_column"][0]["column"] == "income"
    assert {check["level"] for check in told["checks"]} == {0.05 / 3}
    narrow = told["chosen"][2]
    assert ([each["column"] for each in narrow["by_column"]], narrow["evidence"]) == (["income"], "assumed")
    assert narrow["distance"]["high"] < checks["moved"]["distance"]["high"]
    days = {
        FIRST: np.arange(len(data.test)) // 2,
        "same": np.arange(200) + 1000,
        "moved": np.arange(200) + 2000,
    }
    clustered = story(data, later, settings, clusters=days)
    assert clustered["checks"][2]["verdict"] == "alarm"
    measured = {"employment": told, "flights": told}
    verdicts = {verdict.name: verdict for verdict in STUDY.verdicts(measured)}
    assert verdicts["flights-bound"].outcome is Outcome.YES
    alarms = sum(checks[name]["verdict"] == "alarm" for name in ("same", "moved"))
    assert verdicts["employment-later"].outcome is (Outcome.YES if alarms == 2 else Outcome.NO)
    assert STUDY.text is not None
    assert "| moved | **alarm** |" in STUDY.text(measured)
    assert len(STUDY.pictures[0].draw(measured).axes) == 3
    assert [part.name for part in STUDY.parts(Scale.QUICK)] == ["employment", "flights"]
