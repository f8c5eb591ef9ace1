"""A regression from the command line: predictions in the target's own units, and the cosine schedule."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest

from certus.datasets import load
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.training import Callback, TrainingState
from tests.cli.test_cli import certus


def test_predictions_are_in_the_targets_units(tmp_path: Path) -> None:
    """A line far from 0, which a small network learns."""
    generator = np.random.default_rng(0)
    area, age = generator.uniform(0, 1, (2, 80))
    price = 1000 + 30 * area - 20 * age
    columns = np.stack([area, age, price], 1)
    np.savetxt(tmp_path / "homes.csv", columns, delimiter=",", header="area,age,price", comments="")
    done = certus(
        *("train", "csv:homes.csv", "--target", "price", "--model", "mlp:8:softplus", "--method", "erm"),
        *("--epochs", "150", "--lr", "0.05", "-o", "run"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "new.csv").write_text("area,age\n0.25,0.75\n0.5,0.5\n1.0,0.0\n")
    expected = [1000 + 30 * 0.25 - 20 * 0.75, 1005.0, 1030.0]
    table = certus("predict", "run", "new.csv", folder=tmp_path)
    values = [float(list(row.values())[-1]) for row in csv.DictReader(io.StringIO(table.stdout))]
    assert values == pytest.approx(expected, abs=5.0), table.stderr
    answer = json.loads(certus("predict", "run", "new.csv", "--json", folder=tmp_path).stdout)
    assert [list(row.values())[-1] for row in answer["rows"]] == pytest.approx(expected, abs=5.0)


def test_the_cosine_schedule_ends_at_0(tmp_path: Path) -> None:
    class Rates(Callback):
        def on_epoch_end(self, state: TrainingState) -> None:
            rates.append(state.optimizer.param_groups[0]["lr"])

    rates: list[float] = []
    settings = Settings(
        data="wine", model="mlp:4:elu", method="erm", epochs=4, learning_rate=0.1, schedule="cosine"
    )
    run = start_run(tmp_path / "run", settings, load("wine", seed=settings.seed))
    train_run(run, callbacks=[Rates()])
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * epoch / 4)) for epoch in (1, 2, 3, 4)])
