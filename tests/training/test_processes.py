"""Two processes on the same global batches end where one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file


@pytest.mark.slow
@pytest.mark.parametrize("level", [["--gamma", "2"], ["--rho", "0.05"]], ids=["gamma", "rho"])
def test_torchrun_matches_one_process(level: list[str], tmp_path: Path) -> None:
    options = [
        "digits",
        "--epochs",
        "2",
        "--model",
        "mlp:32:elu",
        "--optimizer",
        "sgd",
        "--lr",
        "0.1",
        *level,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    commands = {
        "one": [sys.executable, "-m", "certus"],
        "two": [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--standalone",
            "-m",
            "certus",
        ],
    }
    for name, command in commands.items():
        done = subprocess.run(
            [*command, "train", *options, "-o", str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert done.returncode == 0, done.stderr
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in commands)
    for name in one:
        assert float((one[name] - two[name]).abs().max()) <= 1e-5
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in commands]
    assert results[0]["level"]["rho_hat"] == pytest.approx(results[1]["level"]["rho_hat"], rel=1e-3)
    histories = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in commands
    ]
    for mine, theirs in zip(*histories, strict=True):
        for what in ("loss", "phi", "rho_running", "accuracy"):
            assert mine[what] == pytest.approx(theirs[what], rel=1e-3, abs=1e-4)
