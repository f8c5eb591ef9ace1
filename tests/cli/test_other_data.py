"""``certus certify --data`` and ``certus distance --run``: data that the run has never seen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from certus.runs import RunDirectory
from certus.runs.loaded_run import open_run
from tests.cli.test_cli import certus, refused


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a table of one's own, and a second table whose first column has moved by 2."""
    place = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(0)
    for name, move in (("old", 0.0), ("new", 2.0)):
        size, age = rng.normal(5 + move, 2, 80), rng.normal(40, 10, 80)
        kinds = np.where(size + age / 10 + rng.normal(0, 1, 80) > 9 + move / 2, "yes", "no")
        rows = [f"{a:.4f},{b:.4f},{c}" for a, b, c in zip(size, age, kinds, strict=True)]
        (place / f"{name}.csv").write_text("\n".join(["size,age,kind", *rows]) + "\n")
    done = certus(
        *("train", "csv:old.csv", "--epochs", "5", "--model", "mlp:4:elu", "--gamma", "2", "-o", "run"),
        folder=place,
    )
    assert done.returncode == 0, done.stderr
    return place


QUICK = ["--local-radii", "1", "--attack-steps", "2"]


def test_other_data_are_certified_in_the_units_of_the_run(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ["certify", "run", "--rho", "0.01", *QUICK, "--confidence", "0.9", "-o", "other", "--json"]
    done = certus(*ask, "--data", "csv:new.csv", folder=tables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["samples"] == 80
    # The oracle: standardise by the training rows of the run, by hand.
    monkeypatch.chdir(tables)
    trained = open_run(RunDirectory.open(Path("run")))
    mean, scale = trained.data.input_scale or (torch.zeros(2), torch.ones(2))
    lines = [line.split(",") for line in (tables / "new.csv").read_text().splitlines()[1:]]
    raw = torch.tensor([[float(a), float(b)] for a, b, _ in lines], dtype=torch.float64)
    labels = torch.tensor([["no", "yes"].index(kind) for *_, kind in lines])
    with torch.no_grad():
        outputs = trained.loss.model(((raw - mean) / scale).float())
    loss = float(torch.nn.functional.cross_entropy(outputs, labels))
    assert found["clean_loss"][0] == pytest.approx(loss, abs=1e-5)
    assert certus("verify", "other/certificate.json", folder=tables).returncode == 0
    refused(
        certus(*ask, "--data", "csv:old.csv", folder=tables),
        "48 of these 80 rows are among its training data",
    )
    # The same rows under other labels have been seen, too.
    text = (tables / "old.csv").read_text()
    (tables / "turned.csv").write_text(text.replace("yes", "?").replace("no", "yes").replace("?", "no"))
    refused(certus(*ask, "--data", "csv:turned.csv", folder=tables), "48 of these 80 rows are among its")
    done = certus(*ask, "--data", "csv:old.csv", "--split", "test", folder=tables)
    assert done.returncode == 0, done.stderr
    refused(certus(*ask, "--data", "wine", folder=tables), "`--data` must have inputs of shape (2,)")
    (tables / "odd.csv").write_text((tables / "new.csv").read_text().replace("yes", "maybe"))
    refused(
        certus(*ask, "--data", "csv:odd.csv", folder=tables),
        "`--data` must have labels of csv:old.csv: no, yes; got",
    )
    (tables / "odd.csv").write_text((tables / "new.csv").read_text().replace("size", "length"))
    refused(
        certus(*ask, "--data", "csv:odd.csv", folder=tables),
        "`csv:odd.csv` must have the columns that the run was trained with; size missing",
    )


def test_a_shift_is_read_off_the_certificate_of_a_run(tables: Path) -> None:
    """The second sample is a distribution within W_c of the first: the bounds hold for it."""
    ask = ["distance", "csv:old.csv@test", "csv:new.csv@test", "--label-cost", "1", "--run", "run"]
    done = certus(*ask, "--json", folder=tables)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    bracket = found["bracket"]
    assert bracket["rho"] == found["distance"]["high"] > 0.3  # by 2 of a deviation of 2, in the run's units
    assert bracket["loss_low"] <= bracket["loss_high"]
    assert bracket["loss_met"] <= bracket["loss_high"]
    assert bracket["error_met"] <= bracket["error_high"]
    assert (bracket["evidence"], bracket["assumptions"]) == ("proven", [])
    done = certus(*ask, folder=tables)
    words = " ".join(done.stdout.split())
    assert "csv:new.csv@test is one of these distributions" in words
    assert ("(vacuous)" in words) == (bracket["loss_high"] >= math.log(2) or bracket["error_high"] >= 1)
    done = certus(
        *("distance", "csv:old.csv@test", "csv:old.csv@test", "--label-cost", "1", "--run", "run", "--json"),
        folder=tables,
    )
    same = json.loads(done.stdout)["bracket"]
    assert same["rho"] == 0
    assert same["loss_low"] == pytest.approx(same["loss_high"], abs=1e-9)
