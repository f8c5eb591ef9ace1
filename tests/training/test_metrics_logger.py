"""Metrics reach a real logger of Fabric, number by number."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from lightning_fabric.loggers.csv_logs import CSVLogger
from torch import nn

from certus import WRM
from certus.errors import ArgumentError
from certus.training import fit
from certus.training.callbacks import MetricsLogger


def test_every_epoch_is_logged(tmp_path: Path) -> None:
    inputs = torch.linspace(-1, 1, 20)[:, None]
    logger = CSVLogger(tmp_path, name="run", version=0)
    data = (inputs, (inputs[:, 0] > 0).long())
    done = fit(nn.Linear(1, 2), data, method=WRM(gamma=2.0), epochs=3, callbacks=[MetricsLogger(logger)])
    with (tmp_path / "run" / "version_0" / "metrics.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == [1, 2, 3]
    for row, entry in zip(rows, done.history, strict=True):
        assert float(row["loss"]) == pytest.approx(entry.loss)
        assert entry.rho_running is not None
        assert float(row["rho_running"]) == pytest.approx(entry.rho_running)
        assert "calibration_loss" not in row


def test_values_that_are_not_loggers_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"`logger` must have log_metrics\(metrics, step\) and save\(\)"):
        MetricsLogger(print)
