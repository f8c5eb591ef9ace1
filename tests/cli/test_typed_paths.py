"""Paths that mean nothing are refused in one line that names the option; ~ is a user's home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.test_cli import certus, refused

NOBODY = "must be a path of an existing user, or {} if a name begins with ~; got "
SMALL = "a,y\n" + "1,0\n2,1\n" * 20
REFUSED = {
    "empty output": (["train", "csv:a.csv", "-o", ""], "`--output` must not be empty; got ''."),
    "empty certificate": (["certify", "run", "--rho", "1", "-o", ""], "`--output` must not be empty"),
    "empty picture": (["attack", "run", "--epsilon", "1", "--plot", ""], "`--plot` must not be empty"),
    "empty figures": (["report", "run", "--figures", ""], "`--figures` must not be empty"),
    "empty run": (["compare", "run", "", "--epsilon", "1"], "`RUNS` must not be empty"),
    "empty folder": (["runs", ""], "`FOLDER` must not be empty"),
    "empty model": (["train", "csv:a.csv", "--model", ""], "`--model` must not be empty"),
    "NUL in an output": (
        ["train", "csv:a.csv", "-o", "a\0b"],
        "`--output` must have no NUL byte; got 'a\\x00b'.",
    ),
    "NUL in a run": (["attack", "a\0b", "--epsilon", "1"], "`RUN` must have no NUL byte; got 'a\\x00b'."),
    "NUL in data": (["train", "csv:a\0b"], "`DATA` must have no NUL byte; got 'csv:a\\x00b'."),
    "NUL in a name": (["data", "get", "\0"], "`NAME` must have no NUL byte"),
    "nobody's output": (
        ["export", "run", "-o", "~nobody-such/x"],
        "`--output` " + NOBODY.format("./~nobody-such/x"),
    ),
    "nobody's runs": (["runs", "~nobody-such"], "`FOLDER` " + NOBODY.format("./~nobody-such")),
    "nobody's data": (
        ["train", "csv:~nobody-such/x"],
        "`DATA` " + NOBODY.format("csv:./~nobody-such/x") + "'csv:~nobody-such/x'.",
    ),
    "nobody's first": (
        ["distance", "npz:~nobody-such/x", "csv:a.csv"],
        "`FIRST` must be a path of an existing user",
    ),
    "nobody's second": (
        ["distance", "csv:a.csv", "npz:~nobody-such/x"],
        "`SECOND` must be a path of an existing user",
    ),
    "other first": (["distance", "", "csv:a.csv"], "`FIRST` must not be empty"),
    "no first": (["distance", "nothing", "csv:a.csv"], "`FIRST` must be one of digits"),
    "pipe as archive": (
        ["train", "npz:pipe"],
        "`npz:pipe` must be a complete .npz file; got it is a device, a pipe",
    ),
    "pipe as Parquet": (
        ["train", "parquet:pipe"],
        "must be a readable Parquet file; got it is a device, a pipe",
    ),
    "pipe as CSV": (["train", "csv:pipe"], "must be a readable file; got it is a device, a pipe"),
    "no Parquet": (["train", "parquet:x"], "must be a readable Parquet file; got no file at that path."),
    "folder as Parquet": (["train", "parquet:."], "must be a readable Parquet file; got a folder."),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(arguments: list[str], message: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.csv").write_text(SMALL)
    refused(certus(*arguments, folder=tmp_path), message)
    assert {path.name for path in tmp_path.iterdir()} == {"pipe", "a.csv"}


def test_empty_options_and_home_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--drop is empty by default, so it may be typed so; ~ that the shell has left alone is a home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "a.csv").write_text(SMALL)
    line = ["train", "csv:a.csv", "--drop", "", "--method", "erm", "--model", "mlp:2", "--epochs", "1"]
    done = certus(*line, "--output=~/run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home/run/result.json").exists()
    done = certus(*line, "-o", "./~nobody-such", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"home", "~nobody-such", "a.csv"}
