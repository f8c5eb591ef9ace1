"""``certus runs``: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.cli import options as cli
from certus.cli.output import console, print_json
from certus.display.text import PlainTable, make_table, number
from certus.errors import CertusError, require

if TYPE_CHECKING:
    from certus.runs.directory import RunDirectory


_UNREADABLE = "unreadable"
_WORDS = ("data", "model", "method", "epochs", "state")
_MEASURED = ("test_accuracy", "test_loss", "gamma", "rho_hat")
_COLUMNS = ("run", *_WORDS[:-1], *_MEASURED, _WORDS[-1])


@cli.command("runs")
@cli.argument("folder", type=cli.PATH, default="runs")
@cli.json_option
def runs(folder: Path, as_json: bool) -> None:
    """List the runs in a folder, with their results.

    \b
    certus runs
    certus runs experiments --json

    FOLDER is searched with its subfolders; it is "runs" by default.
    """
    from certus.runs.directory import find_runs

    rows = [_describe(run) for run in find_runs(folder)]
    if as_json:
        print_json(rows)
        return
    if not rows:
        where = f"No runs in {folder}." if folder.is_dir() else f"There is no folder {folder}."
        console.print(f"{where} `certus train digits` makes a run.")
        return
    readable = [row for row in rows if not row["state"].startswith(_UNREADABLE)]
    if readable:
        _show(readable)
    for row in rows:
        if row not in readable:
            console.print(f"{row['run']}: {row['state']}")


def _show(rows: list[dict[str, Any]]) -> None:
    """Print a table; where it is too wide, the values that all runs share are printed below it instead."""
    regression = any(row["test_accuracy"] is None and row["test_loss"] is not None for row in rows)
    names = [name for name in _COLUMNS if name != "test_loss" or regression]
    names = [name for name in names if name not in _MEASURED or any(row[name] is not None for row in rows)]
    table, common = _table(rows, names), {}
    if not table.fits(console.width) and len(rows) > 1:
        common = {name: str(rows[0][name]) for name in _WORDS if len({row[name] for row in rows}) == 1}
        table = _table(rows, [name for name in names if name not in common])
    console.print(table)
    if common:
        values = ", ".join(f"{name} {value}" for name, value in common.items())
        console.print(f"All of them: {values}.")
    if any(row["rho_hat"] is not None for row in rows):
        console.print(
            "rho_hat: mean transport cost of the worst case at gamma, on the training data (estimated)."
        )


def _table(rows: list[dict[str, Any]], names: list[str]) -> PlainTable:
    heads = [name.replace("test_", "test ") for name in names]
    table = make_table(*heads, words=("data", "model", "method", "state"))
    for row in rows:
        table.add_row(*(number(row[name]) for name in names))
    return table


def _describe(run: RunDirectory) -> dict[str, Any]:
    """Return the row of a run, or why it cannot be read: a corrupt run must not hide the others."""
    row: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"run": str(run.path)}
    try:
        return row | _read(run)
    except Exception as reason:  # anything, if a file is corrupt
        words = str(reason) if isinstance(reason, CertusError) else f"{type(reason).__name__}: {reason}"
        return row | {"state": f"{_UNREADABLE}: {' '.join(words.split())}"}


def _read(run: RunDirectory) -> dict[str, Any]:
    from certus.runs.directory import RunDirectory
    from certus.runs.factory import read_settings

    settings, result = read_settings(RunDirectory.open(run.path)), run.result
    row: dict[str, Any] = {name: getattr(settings, name) for name in ("data", "model", "method")}
    row["epochs"] = f"{len(run.history)}/{settings.epochs}"
    if run.record.origin == "imported":
        row["epochs"] = "imported"
    if result is None:
        return row | {"state": "incomplete"}
    test, level = result["test"], result["level"] or {}
    measured = {"test_accuracy": test.get("accuracy"), "test_loss": test["loss"]}
    measured |= {"gamma": level.get("gamma"), "rho_hat": level.get("rho_hat")}
    for name, value in measured.items():
        valid = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        require(valid, name, "be a number", repr(value)[:60])
    return row | measured | {"state": "complete"}
