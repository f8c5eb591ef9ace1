"""``lipschitz``: a small measurement and its page, its curves, and the weights on file."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import certus
from certus.inner.methods import ERM
from certus.layers import UnitRows
from certus.models import build_model
from certus.storage.tensors import digest, load_tensors
from studies.lipschitz import _QUICK, STUDY, Plan, RadiusCurve, margin_radii
from studies.lipschitz_peers import WEIGHTS, measure_peer
from studies.study import Outcome, Scale
from studies.workspace import Workspace
from tests.pictures import line_of


def test_a_small_measurement_is_shown_and_drawn(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    plan = replace(_QUICK["digits"], epochs=2, images=30, few=4, restarts=1, model="lipschitz:8x2")
    measured: dict[str, Any] = {}
    for part in STUDY.parts(Scale.QUICK):
        settings = asdict(plan) if part.name.startswith("digits") else part.settings
        measured[part.name] = json.loads(json.dumps(part.measure(workspace, settings)))
    assert len(list((tmp_path / "networks").iterdir())) == 1, "both parts share it"
    row = measured["digits"]
    assert row["evidence"] == "proven"
    assert 1 <= row["body lipschitz"] <= 1 + 1e-5
    assert [entry["epsilon"] for entry in row["within"]] == [0.1, 0.5]
    for entry in row["within"]:
        assert entry["float32"] <= entry["proven"] <= row["clean"]
    for bracket in measured["digits-attacked"]["brackets"]:
        assert bracket["error_low"] <= bracket["error_high"]
    assert STUDY.text is not None
    text = STUDY.text(measured)
    assert "certus audit lipschitz:8x2 --weights results/lipschitz/digits.safetensors --data digits" in text
    assert STUDY.verdicts(measured) == []
    axes = STUDY.pictures[0].draw(measured).axes[0]
    shares = [entry["within"]["0.5"] for entry in row["curve"]]
    assert line_of(axes, "ε = 0.5") == ([1.0, 2.0], shares)


def test_curves_go_on_where_a_training_goes_on(tmp_path: Path) -> None:
    from certus.training import TrainingState

    data = certus.datasets.digits()
    model = build_model("lipschitz:8x2", data)
    path = tmp_path / "curve.json"
    state = TrainingState(model, torch.optim.SGD(model.parameters()), None, ERM())
    for epoch in (1, 2):
        curve = RadiusCurve(path, data.calibration[:50], (0.1,))
        curve.on_train_start(state, 2, 1)
        state.epoch = epoch
        curve.on_epoch_end(state)
    path.write_text(json.dumps([*json.loads(path.read_text()), {"epoch": 3, "within": {}}]))
    again = RadiusCurve(path, data.calibration[:50], (0.1,))
    again.on_train_start(state, 4, 1)
    assert [row["epoch"] for row in again.rows] == [1, 2]


def test_radii_by_hand() -> None:
    """Rows (1, 0) and (0, 1): the margin x − y has the slope √2."""
    head = UnitRows(2, 2, bias=False)
    head.weight.data = torch.tensor([[3.0, 0.0], [0.0, 5.0]])
    points = torch.tensor([[4.0, 1.0], [1.0, 4.0]])
    radii = margin_radii(nn.Sequential(head), points, torch.tensor([0, 0]))
    assert radii.tolist() == pytest.approx([3 / 2**0.5, -3 / 2**0.5])


@pytest.mark.parametrize("library", ["orthogonium", "torchlip"])
def test_audits_on_file_are_repeated(library: str) -> None:
    """Those of ``certus audit`` with the library's own activations, by plain torch."""
    stored = json.loads((WEIGHTS / f"{library}.json").read_text())
    epsilons = [row["epsilon"] for row in stored["radii"]]
    measured = measure_peer(Workspace(WEIGHTS), {"library": library, "epsilons": epsilons})
    assert measured["output lipschitz"] == pytest.approx(stored["lipschitz"], abs=1e-12)
    assert measured["clean"] == stored["accuracy"]
    for again, row in zip(measured["within"], stored["radii"], strict=True):
        assert (again["claimed"], again["proven"]) == (row["claimed"], row["proven"])
        assert again["error"] == pytest.approx(row["error"], abs=1e-9)


def test_weights_on_file_are_those_that_were_measured() -> None:
    """With the constants that are proven of them."""
    content = json.loads((WEIGHTS.parent / "measured.json").read_text())
    files = sorted(WEIGHTS.parent.glob("*.safetensors"))
    assert files
    for path in files:
        assert path.stat().st_size < 5_000_000
        row = content["measured"][path.stem]
        tensors = load_tensors(path, require_digest=False)[0]
        assert digest(tensors) == row["weights"]
        assert 1 <= row["body lipschitz"] <= 1 + 1e-5
        for entry in row["within"]:
            assert entry["float32"] <= entry["proven"] <= row["clean"]
        few = content["measured"].get(f"{path.stem}-attacked")
        for entry in few["accuracies"] if few else ():
            assert entry["certified"] <= min(entry["nearest"], entry["pgd"])


def test_verdicts_compare_with_the_aims() -> None:
    plan = Plan("cifar10", 0.2, 1, (36 / 255,))
    row = {
        "data": plan.data,
        "clean": 0.7,
        "evidence": "proven",
        "within": [{"epsilon": 36 / 255, "proven": 0.53, "float32": 0.5299}],
        "errors": [{"distance": 0.1, "proven": 0.64}],
    }
    accuracy, error = STUDY.verdicts({"cifar10": row})
    assert (accuracy.outcome, error.outcome) == (Outcome.YES, Outcome.NO)
    less = row | {"within": [{"epsilon": 36 / 255, "proven": 0.5299, "float32": 0.5299}]}
    assert STUDY.verdicts({"cifar10": less})[0].outcome is Outcome.NO
