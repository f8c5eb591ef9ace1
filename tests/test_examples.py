"""The demo runs as a user would run it, and refuses bad values in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parent.parent / "examples/digits.py"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(DEMO), *options], capture_output=True, text=True, check=False)


def test_the_demo_prints_a_table_and_saves_a_picture(tmp_path: Path) -> None:
    done = run("--epochs", "1", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "Estimated, not proven" in done.stdout
    picture = (tmp_path / "digits.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 10_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epochs", "0"], "--epochs must be at least 1; got 0"),
        (["--gamma", "-1"], "`gamma` must be positive and finite; got -1.0."),
    ],
)
def test_bad_values_are_refused(options: list[str], message: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
