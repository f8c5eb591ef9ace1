"""The command lines of the tutorial work, one after the other. Options make them smaller."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from certus.cli.app import app

PAGE = Path(__file__).parent.parent / "docs/tutorial.md"
SMALLER = {
    "train": ["--epochs", "1"],
    "certify": ["--samples", "20", "--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0"],
    "attack": ["--samples", "20"],
    "report": ["--samples", "8"],
}


def command_lines() -> list[list[str]]:
    block = re.search(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    return [shlex.split(line) for line in block[1].splitlines()]


def test_the_command_lines_of_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = command_lines()
    assert [line[:2] for line in lines] == [["certus", name] for name in SMALLER]
    for _, name, *rest in lines:
        result = CliRunner().invoke(app, [name, *rest, *SMALLER[name]])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
