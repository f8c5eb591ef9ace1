"""``trees`` on a few rows, its page, its picture, and its verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.study import Outcome, Scale
from studies.trees import STUDY, VARIANTS
from studies.workspace import Workspace


def test_a_few_models_are_measured_and_shown(tmp_path: Path) -> None:
    (part,) = STUDY.parts(Scale.QUICK)
    names = ["4 leaves", "monotone scores"]
    measured = {part.name: part.measure(Workspace(tmp_path), {**part.settings, "rows": 3, "variants": names})}
    models = measured["breast-cancer-0"]["models"]
    assert list(models) == names
    for model in models.values():
        assert model["evidence"] == "proven"
        for sides in model["worst"].values():
            assert sides["error_low"] <= sides["error_high"] <= 1.1 * sides["error_low"] + 1e-9
    assert STUDY.text is not None
    assert "| monotone scores |" in STUDY.text(measured)
    (axes,) = STUDY.pictures[0].draw(measured).axes
    marks = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.lines])
    proven = [100 * model["worst"]["0.01"]["error_high"] for model in models.values()]
    np.testing.assert_allclose(marks, proven)


@pytest.mark.parametrize(
    ("error", "outcome"), [(0.1, Outcome.YES), (0.9, Outcome.NO), (0.5, Outcome.NOT_COMPARABLE)]
)
def test_each_question_can_be_answered_with_no(error: float, outcome: Outcome) -> None:
    """The models that are expected to hold up have this error, all others .5."""
    better = ("4 leaves", "depth 2", "steps of .03", "30 trees", "monotone scores")
    models: dict[str, Any] = {}
    for name in VARIANTS:
        own = error if name in better else 0.5
        models[name] = {
            "evidence": "proven",
            "worst": {"0.01": {"error_low": own - 0.01, "error_high": own}},
        }
    verdicts = STUDY.verdicts({"breast-cancer-0": {"models": models}})
    assert {verdict.outcome for verdict in verdicts} == {outcome}
    assert {verdict.evidence for verdict in verdicts} == {"proven and attained"}
