"""Help, the version and mistakes of typing answer at once: nothing slow is imported for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from certus.cli.app import app
from tests.cli.test_cli import certus, refused

SLOW = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "plotly", "lightning_fabric")
"""Importing torch alone takes seconds."""


QUICK = {
    "--help": (0, "Train models that are robust"),
    "--version": (0, "certus 0."),
    "trian": (2, "No such command 'trian'. Did you mean 'train'?"),
    "train digits --ephocs 3": (2, "--ephocs"),
    "certify --help": (0, "--confidence"),
    "runs nowhere": (0, "There is no folder nowhere."),
    "data list": (0, "handwritten digits"),
    "certify": (2, "Missing argument 'RUN'."),
    "train wine --rho -1": (2, "`--rho` must be positive and finite; got -1.0."),
    "train wine --method erm --gamma 2": (2, "`--gamma` must be left out for erm"),
    "attack run --attack fgsm --steps 3": (2, "`--steps` must be left out for fgsm"),
    "compare a b --epsilon far": (2, "`--epsilon` must be a number, or from:RUN"),
}
"""Line → exit code, and words of the answer."""
SLOW_LINE = "certify nowhere"

CODE = """
import contextlib, io, json, sys
from certus.__main__ import start

for line in json.loads(sys.argv[1]):
    sys.argv, said = ["certus", *line.split()], io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            start()
        except SystemExit as ended:
            code = ended.code
    loaded = [name for name in SLOW if name in sys.modules]
    print(json.dumps([line, [code, said.getvalue(), loaded]]))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[int, str, list[str]]]:
    """Exit codes of lines, one after the other in one process; all that it said, and what it has loaded."""
    lines = json.dumps([*QUICK, SLOW_LINE])
    command = [sys.executable, "-c", f"SLOW = {SLOW!r}\n{CODE}", lines]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.parametrize(("line", "expected"), QUICK.items(), ids=QUICK)
def test_nothing_slow_is_imported(
    line: str, expected: tuple[int, str], answers: dict[str, tuple[int, str, list[str]]]
) -> None:
    code, said, loaded = answers[line]
    assert code == expected[0]
    assert expected[1] in said
    assert loaded == []


def test_the_test_would_notice(answers: dict[str, tuple[int, str, list[str]]]) -> None:
    """A command that does its work does load what is slow."""
    assert "torch" in answers[SLOW_LINE][2]


@pytest.mark.parametrize(
    ("line", "words"),
    {
        "train": "Missing argument 'DATA'.",
        "train digits --lr abc": "`--lr` must be a number; got 'abc'.",
        "train digits --epochs 1.5": "`--epochs` must be a whole number; got '1.5'.",
        "certify run --rho 1 --rho x": "`--rho` must be a number, or from:FILE; got '1', 'x'.",
        "train digits --method wmr": "got 'wmr'. Did you mean wrm?",
        "data fetch": "No such command 'fetch'. `certus data --help` lists them.",
        "data gett": "No such command 'gett'. Did you mean 'get'?",
        "frobnicate": "No such command 'frobnicate'. `certus --help` lists them.",
    }.items(),
)
def test_mistakes_of_typing(line: str, words: str, tmp_path: Path) -> None:
    """The value as typed, and what was probably meant."""
    refused(certus(*line.split(), folder=tmp_path), words)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("train", "certus train [OPTIONS] DATA"),
        ("predict", "certus predict [OPTIONS] RUN DATA"),
        ("compare", "certus compare [OPTIONS] RUNS..."),
    ],
)
def test_usage_names_arguments_as_errors_do(command: str, usage: str) -> None:
    said = CliRunner().invoke(app, [command, "--help"], prog_name="certus").stdout
    assert said.splitlines()[0] == f"Usage: {usage}"


def test_the_list_of_commands_has_one_line_each() -> None:
    """Whole sentences within 80 columns, under the name of a group."""
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    last = next(at for at, line in enumerate(said) if line.strip().startswith("Exit codes: 0"))
    lines = said[said.index("Train:") : last]
    groups = [line for line in lines if line and not line.startswith(" ")]
    sentences = [line for line in lines if line.startswith("  ")]
    assert groups == ["Train:", "Prove:", "Attack:", "Inspect:", "Deploy:", "Data:"]
    assert len(sentences) == len(app.commands)
    for line in sentences:
        assert len(line) <= 80, line
        assert line.endswith("."), line


@pytest.mark.parametrize("command", [*app.commands, "data list", "data get"])
def test_help_fits_a_terminal_and_is_not_cut(command: str) -> None:
    """Examples are copied from here: a terminal of 80 columns shows each on one line."""
    done = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    for line in done.stdout.splitlines()[1:]:  # the first ends in "[ARGS]..."
        assert len(line) <= 80, line
        assert not line.endswith("..."), line
        assert "list[" not in line, line  # a type of Python
