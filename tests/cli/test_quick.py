"""Help, the version and mistakes of typing answer at once: nothing slow is imported for them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from certus.cli.app import app

SLOW = ("torch", "numpy", "scipy", "sklearn", "matplotlib", "plotly", "lightning_fabric", "rich")
"""Importing torch alone takes seconds; rich is for what commands print at the end."""


def _loaded_by(*arguments: str) -> tuple[int, str, list[str]]:
    """The exit code of ``certus`` in a process of its own, all it says, and what it loaded of the slow."""
    code = (
        "import json, sys\n"
        "from certus.__main__ import start\n"
        f"sys.argv = ['certus', *{list(arguments)!r}]\n"
        "try: start()\n"
        "except SystemExit as ended: code = ended.code\n"
        f"print(json.dumps([code, [name for name in {SLOW!r} if name in sys.modules]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *said, last = done.stdout.splitlines()
    ended, loaded = json.loads(last)
    return ended, "\n".join([*said, done.stderr]), loaded


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--help"], 0, "Train models that hold up"),
        (["--version"], 0, "certus 0."),
        (["trian"], 2, "No such command 'trian'. Did you mean 'train'?"),
        (["train", "digits", "--ephocs", "3"], 2, "No such option: --ephocs"),
        (["certify", "--help"], 0, "--confidence"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_nothing_slow_is_imported(arguments: list[str], code: int, words: str) -> None:
    ended, said, loaded = _loaded_by(*arguments)
    assert ended == code
    assert words in said
    assert loaded == []


def test_the_test_would_notice() -> None:
    """A command that does its work does load what is slow."""
    assert "torch" in _loaded_by("data", "list")[2]


def test_the_list_of_commands_has_one_line_each() -> None:
    """Whole sentences within 80 columns, under the name of a group."""
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout.splitlines()
    lines = said[said.index("Train:") :]
    groups = [line for line in lines if line and not line.startswith(" ")]
    sentences = [line for line in lines if line.startswith("  ")]
    assert groups == ["Train:", "Prove:", "Attack:", "Look:", "Use:", "Data:", "Other:"]
    assert len(sentences) == len(app.registered_commands) + len(app.registered_groups)
    for line in sentences:
        assert len(line) <= 80, line
        assert line.endswith("."), line


_COMMANDS = [
    command.name or command.callback.__name__ for command in app.registered_commands if command.callback
]


@pytest.mark.parametrize("command", [*_COMMANDS, "data", "data list", "data get"])
def test_help_fits_a_terminal_and_is_not_cut(command: str) -> None:
    """Examples are copied from here: a terminal of 80 columns shows each on one line."""
    done = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    for line in done.stdout.splitlines()[1:]:  # the first ends in "[ARGS]..."
        assert len(line) <= 80, line
        assert not line.endswith("..."), line
