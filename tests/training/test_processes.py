"""Two processes on the same global batches end where one does."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from certus.cli.app import main
from tests.cli.test_cli import certus
from tests.forks import exit_code, start
from tests.runs.metrics import without_time

LEVELS = [pytest.param(["--gamma", "2"], id="gamma"), pytest.param(["--rho", "0.05"], id="rho")]
TRAIN = [
    *("train", "breast-cancer", "--model", "mlp:32:elu"),
    *("--epochs", "2", "--optimizer", "sgd", "--lr", "0.1"),
]


def free_port() -> int:
    """Outside the range from which the system gives ports away."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def member(rank: int, port: int, arguments: list[str], log: str) -> None:
    """One of two processes, in the environment that torchrun gives to each."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
    }
    shown = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(shown, 1)
    os.dup2(shown, 2)
    sys.argv = ["certus", *arguments]
    main()


@pytest.mark.parametrize("level", LEVELS)
def test_two_processes_match_one(level: list[str], tmp_path: Path) -> None:
    done = certus(*TRAIN, *level, "-o", "one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    logs, port = [str(tmp_path / f"{rank}.log") for rank in range(2)], free_port()
    arguments = [*TRAIN, *level, "-o", str(tmp_path / "two")]
    members = [start(member, rank, port, arguments, log) for rank, log in enumerate(logs)]
    codes = [exit_code(process) for process in members]
    assert codes == [0, 0], [Path(log).read_text() for log in logs]
    compare(tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("level", LEVELS)
def test_torchrun_matches_one_process(level: list[str], tmp_path: Path) -> None:
    done = certus(*TRAIN, *level, "-o", "one", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    torchrun = ["torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "certus"]
    command = [sys.executable, "-m", *torchrun, *TRAIN, *level, "-o", str(tmp_path / "two")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    compare(tmp_path)


def compare(folder: Path) -> None:
    """Weights, ρ̂ and metrics, up to sums in another order."""
    runs = [folder / name for name in ("one", "two")]
    one, two = (load_file(run / "model.safetensors") for run in runs)
    for name in one:
        assert float((one[name] - two[name]).abs().max()) <= 1e-5
    results = [json.loads((run / "result.json").read_text()) for run in runs]
    assert results[0]["robustness"]["rho_hat"] == pytest.approx(results[1]["robustness"]["rho_hat"], rel=1e-3)
    histories = [without_time(run) for run in runs]
    for mine, theirs in zip(*histories, strict=True):
        for what in ("loss", "phi", "rho_running", "accuracy"):
            assert mine[what] == pytest.approx(theirs[what], rel=1e-3, abs=1e-4)
