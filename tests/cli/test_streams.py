"""Streams and exit codes: readers that stop early, model files that print, and certus itself that fails."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import Done, certus

PRINTING = """
import torch
print("imported")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, x):
        print("called")
        return self.layer(x)
"""
ROWS = 3000  # whose predictions are more than the 64 KiB that a pipe holds


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model file prints, its certificate, and many new rows."""
    folder = tmp_path_factory.mktemp("streams")
    rng = np.random.default_rng(0)
    for name, count in (("data", 60), ("new", ROWS)):
        inputs = rng.normal(size=(count, 2))
        np.savez(folder / f"{name}.npz", inputs=inputs, targets=(inputs[:, 0] > 0).astype(int))
    (folder / "net.py").write_text(PRINTING)
    done = certus(*TRAIN, "-o", "run", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


OWN = ["--model", "net.py:Net"]
TRAIN = ["train", "npz:data.npz", "--method", "erm", "--epochs", "1", *OWN]
JSON = {
    "train": [*TRAIN, "-o", "again"],
    "predict": ["predict", "run", "npz:new.npz", "--no-radius", *OWN],
    "certify": ["certify", "run", "--rho", "0.01", "--local-radii", "0", "--gamma-rounds", "0", *OWN],
    "attack": ["attack", "run", "--epsilon", "0.1", *OWN],
    "smoothness": ["smoothness", "run", "--samples", "2", *OWN],
}


@pytest.mark.parametrize("arguments", JSON.values(), ids=JSON)
def test_json_is_json_although_the_model_prints(arguments: list[str], place: Path) -> None:
    done = certus(*arguments, "--json", folder=place)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert "imported" in done.stderr.splitlines()


def test_a_csv_table_is_one_although_the_model_prints(place: Path) -> None:
    done = certus(*JSON["predict"], folder=place)
    assert done.returncode == 0, done.stderr
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == ROWS
    assert "called" in done.stderr.splitlines()


def in_process_of_its_own(*arguments: str, folder: Path, read: int) -> Done:
    """The command with a real pipe as stdout, of which so many bytes are read before it is closed."""
    reader, writer = os.pipe()
    if read == 0:
        os.close(reader)
    process = subprocess.Popen(
        [sys.executable, "-m", "certus", *arguments], cwd=folder, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    start = b""
    if read:
        start = os.read(reader, read)
        os.close(reader)
    assert process.stderr is not None
    with process.stderr as stream:
        stderr = stream.read().decode()
    return Done(process.wait(), start.decode(), stderr)


def test_a_reader_that_stops_early(place: Path) -> None:
    """As ``head`` does: the pipe is full when it is closed, so that the rest of the output has no reader."""
    done = in_process_of_its_own(*JSON["predict"], "--json", folder=place, read=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "{"
    assert "Broken" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_never_reads() -> None:
    done = in_process_of_its_own("--help", folder=Path.cwd(), read=0)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_failed_check_fails_without_a_reader(place: Path) -> None:
    (place / "bad.json").write_text('{"kind": "smoothing", "kind": "smoothing"}')
    done = in_process_of_its_own("verify", "bad.json", "--json", folder=place, read=0)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("certus: error: bad.json is not verified")


def test_a_failure_of_certus_itself_ends_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("a mistake\nof certus")

    monkeypatch.delenv("CERTUS_DEBUG", raising=False)
    monkeypatch.setattr(json, "dumps", broken)
    done = certus("data", "list", "--json", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines() == [done.stderr.rstrip("\n")]
    assert "RuntimeError: a mistake of certus" in done.stderr
    assert "CERTUS_DEBUG=1" in done.stderr
    monkeypatch.setenv("CERTUS_DEBUG", "1")
    done = certus("data", "list", "--json", folder=tmp_path)
    assert done.returncode == 3
    assert "Traceback" in done.stderr


def test_too_little_memory_is_no_failed_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise MemoryError

    monkeypatch.setattr(json, "dumps", full)
    done = certus("data", "list", "--json", folder=tmp_path)
    assert done.returncode == 3
    assert "memory" in done.stderr


def test_a_model_file_that_fails_is_refused(place: Path) -> None:
    """Its code is input, so that the exit code is 2."""
    (place / "broken.py").write_text("def make():\n    raise KeyError('mine')\n")
    done = certus("train", "npz:data.npz", "--model", "broken.py:make", "-o", "none", folder=place)
    assert done.returncode == 2, done.stderr
    assert not (place / "none").exists()


def test_a_bound_above_the_limit_ends_with_1_and_below_it_with_0(place: Path) -> None:
    for limit, code in (("0", 1), ("1", 0)):
        done = certus(*JSON["certify"], "--require", f"error<={limit}", folder=place)
        assert done.returncode == code, done.stderr


def test_the_help_lists_the_exit_codes(tmp_path: Path) -> None:
    said = " ".join(certus("--help", folder=tmp_path).stdout.split())
    codes = said.partition("Exit codes:")[2]
    assert [code for code in ("0", "1", "2", "3", "130") if f" {code} " in codes] == [
        "0",
        "1",
        "2",
        "3",
        "130",
    ]
