"""Ctrl-C ends every command with one line and exit code 130; real signals, at counted moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from certus.cli.app import app
from certus.cli.options import Command
from tests.certificates.small_run import make_run
from tests.runs.kills import AfterStep, BeforeCalling, Moment, run

NOTHING = "nothing was stored; run the same command to start again."
TRAIN = ["train", "wine", "--model", "mlp:4:elu", "--method", "erm", "--epochs", "2", "-o", "new"]
IMPORT = ["import", "--model", "mlp:6:tanh", "--weights", "net.safetensors", "--data", "npz:data.npz"]

INTERRUPTED: dict[str, tuple[list[str], Moment, str]] = {
    "train": (
        TRAIN,
        AfterStep(1),
        "new has a checkpoint after 0 of 2 epochs; `certus resume new` continues.",
    ),
    "train early": ([*TRAIN[:-1], "early"], BeforeCalling("certus.models.networks:build_from"), NOTHING),
    "import": (
        [*IMPORT, "--no-standardize", "-o", "imported"],
        BeforeCalling("certus.storage.tensors:write_atomically", time=2),
        NOTHING,
    ),
    "attack": (
        ["attack", "run", "--epsilon", "0.1", "-o", "x.json"],
        BeforeCalling("certus.attacks.evaluation:evaluate"),
        NOTHING,
    ),
    "certify": (
        ["certify", "run", "--rho", "0.01"],
        BeforeCalling("certus.runs.certification:certify_run"),
        NOTHING,
    ),
    "data get": (
        ["data", "get", "mnist"],
        BeforeCalling("certus.datasets.fetching:run"),
        "the cache is unchanged; run the same command to start again.",
    ),
    "smoothness": (["smoothness", "run"], BeforeCalling("certus.bounds:input_smoothness"), NOTHING),
    "verify": (["verify", "run"], BeforeCalling("certus.cli.verify:require"), NOTHING),
    "compare": (
        ["compare", "run", "other", "--epsilon", "0.1"],
        BeforeCalling("certus.runs.directory:RunDirectory.open"),
        NOTHING,
    ),
    "report": (
        ["report", "run", "-o", "x.json"],
        BeforeCalling("certus.display.report.contents:measure_run"),
        NOTHING,
    ),
    "predict": (
        ["predict", "run", "npz:data.npz", "-o", "x.json"],
        BeforeCalling("certus.runs.prediction:predict_rows"),
        NOTHING,
    ),
    "export": (
        ["export", "run", "-o", "x.json"],
        BeforeCalling("certus.cli.export:write_atomically"),
        NOTHING,
    ),
    "distance": (
        ["distance", "npz:data.npz@test", "npz:data.npz@train"],
        BeforeCalling("certus.certificates.transport:transport_distance"),
        NOTHING,
    ),
    "runs": (["runs", "."], BeforeCalling("certus.runs.records:find_folders"), NOTHING),
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


def test_every_command_is_guarded() -> None:
    """``Command`` says that nothing is kept, if the command says nothing better."""
    groups = [app, *(member for member in app.commands.values() if isinstance(member, click.Group))]
    commands = [member for group in groups for member in group.commands.values() if member not in groups]
    assert len(commands) > 10
    assert [member for member in commands if not isinstance(member, Command)] == []


@pytest.mark.parametrize("when", ["torch", "certus.cli.app"])
def test_interrupted_while_it_is_being_imported(when: str, tmp_path: Path) -> None:
    """A second or two go by before any command begins; the signal comes when the module is looked for."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {when!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{source}"}
    command = [sys.executable, "-m", "certus", "train", "wine"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done
    assert done.stderr == f"certus: interrupted: {NOTHING}\n"
