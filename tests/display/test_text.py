"""Every table fits 80 columns, in a terminal and in a pipe, and no word or number of it is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sklearn.datasets import load_wine

from certus.display.text import PlainConsole, PlainTable, as_text, make_table
from tests.cli.test_cli import certus

LONG = "runs/a-name-as-long-as-people-give-them-2026-11-17"
SHORT = ("--epochs", "1", "--rho", "0.03", "--model", "mlp:8:elu")
FEW = ("--samples", "6")
TWICE = ("--attack", "pgd", "--attack", "fgsm", "--epsilon", "0.05", "--epsilon", "0.1")
CERTIFY = (
    "--local-radii",
    "0",
    "--attack-steps",
    "1",
    "--confidence",
    "0.9",
    "--rho",
    "0.001",
    "--rho",
    "0.1",
)
COMMANDS = {
    "train digits": ("train", "digits", *SHORT, "-o", "runs/digits-wrm"),
    "train": ("train", "digits", "--method", "erm", "--epochs", "1", "--model", "mlp:8:elu", "-o", LONG),
    "train wine": ("train", "csv:wine.csv", *SHORT, "-o", "runs/wine"),
    "certify": ("certify", "runs/wine", *FEW, *CERTIFY, "--epsilon", "0.1"),
    "attack": ("attack", "runs/wine", *FEW, *TWICE),
    "nearest": ("attack", "runs/wine", *FEW, "--nearest", "--attack", "wrm"),
    "compare": ("compare", "runs/digits-wrm", LONG, *FEW, *TWICE),
    "smoothness": ("smoothness", "runs/digits-wrm", *FEW),
    "distance": ("distance", "csv:wine.csv@train", "csv:wine.csv@test"),
    "sensitivity": ("sensitivity", "runs/wine", "--samples", "3"),
    "runs": ("runs",),
    "data": ("data", "list"),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With wine in a file whose columns and classes have long names."""
    place, wine = tmp_path_factory.mktemp("width"), load_wine(as_frame=True)
    frame = wine.data[wine.data.columns[:3]]
    frame = frame.rename(columns={one: f"{one} as the laboratory measured it" for one in frame.columns})
    frame["grape"] = [f"the grape {('Aglianico', 'Barbera', 'Corvina')[label]}" for label in wine.target]
    frame.to_csv(place / "wine.csv", index=False)
    return place


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[PlainTable]:
    """All that are printed."""
    printed: list[PlainTable] = []
    plain = PlainConsole.print

    def watched(console: PlainConsole, *objects: object, **options: object) -> None:
        printed.extend(one for one in objects if isinstance(one, PlainTable))
        plain(console, *objects, **options)

    monkeypatch.setattr(PlainConsole, "print", watched)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("console", "messages"):  # made once, as wide as the terminal was then
        monkeypatch.setattr(f"certus.cli.output.{name}._width", 80)
    return printed


def test_tables_of_the_commands(place: Path, tables: list[PlainTable]) -> None:
    """One after the other: later commands are about the runs of earlier ones."""
    for command, arguments in COMMANDS.items():
        done = certus(*arguments, folder=place)
        assert done.returncode == 0, done.stderr
        assert tables, command
        for table in list(tables):  # printing it again adds it again
            assert whole_and_narrow(table) in "\n".join(
                line.rstrip() for line in (done.stdout + done.stderr).splitlines()
            )
        tables.clear()


def whole_and_narrow(table: PlainTable) -> str:
    """The table as text, which is checked: every word of every cell is in it, within 80 columns."""
    text = as_text([table])
    shown = set(re.split(r"[\s,]+", text))
    for column in table.columns:
        for cell in column.cells:
            assert set(re.split(r"[\s,]+", str(cell))) - {"–", ""} <= shown, text
    longest = max(len(str(cell)) for cell in table.columns[0].cells)
    assert all(len(line) <= max(80, longest) for line in text.splitlines()), text
    return text


def test_numbers_stay_whole_where_heads_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich alone shares the width out before it looks at words, and ends one column too wide."""
    made = make_table(
        "epoch", "held-out accuracy", "loss, moved", "accuracy, moved", "robust loss", "rho", "gamma"
    )
    made.add_row("1", "0.7298", "2.048", "0.3939", "1.978", "0.1182", "0.7683")
    for columns in range(58, 90):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = as_text([made]).splitlines()
        assert all(len(line) <= columns for line in lines)
        assert lines[-1].split() == ["1", "0.7298", "2.048", "0.3939", "1.978", "0.1182", "0.7683"]
        words = {
            "epoch",
            "held-out",
            "accuracy",
            "accuracy,",
            "loss,",
            "moved",
            "robust",
            "loss",
            "rho",
            "gamma",
        }
        assert set(" ".join(lines[:-1]).split()) == words


def test_wide_tables_are_printed_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    made = make_table("run", "model", "test accuracy", "gamma")
    made.add_row("runs/one-of-many-with-a-name", "mlp:128,128:elu", "0.9499", "5.046")
    made.add_row("runs/two", "mlp:8:elu", "0.9499", "–")
    assert as_text([made]).splitlines() == [
        "runs/one-of-many-with-a-name",
        "  model mlp:128,128:elu,",
        "  test accuracy 0.9499, gamma 5.046",
        "runs/two",
        "  model mlp:8:elu, test accuracy 0.9499",
    ]
