"""Ctrl-C ends every command with one line and exit code 130; real signals, at counted moments."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.certificates.small_run import make_run
from tests.runs.kills import AfterStep, BeforeCalling, Moment, run

NOTHING = "nothing is kept; the same command starts again."
TRAIN = ["train", "wine", "--model", "mlp:4:elu", "--method", "erm", "--epochs", "2", "-o", "new"]
IMPORT = ["import", "--model", "mlp:6:tanh", "--weights", "net.safetensors", "--data", "npz:data.npz"]

INTERRUPTED: dict[str, tuple[list[str], Moment, str]] = {
    "train": (TRAIN, AfterStep(1), "new keeps 0 of 2 epochs; `certus resume new` goes on."),
    "attack": (
        ["attack", "run", "--epsilon", "0.1", "-o", "x.json"],
        BeforeCalling("certus.attacks.sweeps:attack_data"),
        NOTHING,
    ),
    "certify": (
        ["certify", "run", "--rho", "0.01"],
        BeforeCalling("certus.cli.certify:certify_run"),
        NOTHING,
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place")
    make_run(place, 1.0)
    return place


@pytest.mark.parametrize(("arguments", "moment", "line"), INTERRUPTED.values(), ids=INTERRUPTED)
def test_one_line(
    arguments: list[str],
    moment: Moment,
    line: str,
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("CERTUS_CACHE", str(tmp_path / "cache"))
    assert run(arguments, tmp_path / "log", moment, signal.SIGINT) == 130, (tmp_path / "log").read_text()
    said = (tmp_path / "log").read_text().splitlines()
    assert said[-1] == f"certus: interrupted: {line}"
    assert "Traceback" not in "".join(said)
    assert not (place / "x.json").exists()
