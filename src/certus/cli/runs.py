"""``certus runs``: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certus.cli import options as cli
from certus.cli.output import console, print_json
from certus.display.text import PlainTable, make_table, number
from certus.errors import CertusError

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
    from certus.runs.records import find_folders

    rows = [_describe(path) for path in find_folders(folder)]
    rows += [_describe_trees(file.parent) for file in sorted(folder.rglob("trees.json"))]
    if as_json:
        print_json(rows)
        return
    if not rows:
        where = f"No runs in {folder}." if folder.is_dir() else f"There is no folder {folder}."
        console.print(f"{where} `certus train digits` creates one.")
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
        console.print(
            f"The same in all runs: {', '.join(f'{name} {value}' for name, value in common.items())}."
        )
    if any(row["rho_hat"] is not None for row in rows):
        console.print("rho_hat: mean transport cost of the worst case at gamma on training data (estimated).")


def _table(rows: list[dict[str, Any]], names: list[str]) -> PlainTable:
    heads = [name.replace("test_", "test ") for name in names]
    cells = ([number(row[name]) for name in names] for row in rows)
    return make_table(*heads, rows=cells, words=("data", "model", "method", "state"))


def _describe(path: Path) -> dict[str, Any]:
    """Return the row of a run, or why it cannot be read: a corrupt run must not hide the others."""
    from certus.runs import records
    from certus.runs.settings import Settings
    from certus.storage.files import convert

    empty: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"run": str(path)}
    try:
        record = records.read_run(path / records.SETTINGS)
        settings, complete = convert(record.settings, Settings), (path / records.RESULT).exists()
        row = empty | {name: getattr(settings, name) for name in ("data", "model", "method")}
        trained = f"{len(records.read_history(path))}/{settings.epochs}"
        row["epochs"] = "imported" if record.origin == "imported" else trained
        if not complete:
            return row | {"state": "incomplete"}
        result = records.read_result(path / records.RESULT)
        test, robustness = result["test"], result["robustness"] or {}
        row |= {"test_accuracy": test.get("accuracy"), "test_loss": test["loss"]}
        return row | {name: robustness.get(name) for name in ("gamma", "rho_hat")} | {"state": "complete"}
    except Exception as reason:  # anything, if a file is corrupt
        words = str(reason) if isinstance(reason, CertusError) else f"{type(reason).__name__}: {reason}"
        return empty | {"state": f"{_UNREADABLE}: {' '.join(words.split())}"}


def _describe_trees(path: Path) -> dict[str, Any]:
    """Return the row of the run of a tree model."""
    from certus.runs.tree_run import read_tree_settings

    empty: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"run": str(path)}
    try:
        settings = read_tree_settings(path)
    except CertusError as reason:
        return empty | {"state": f"{_UNREADABLE}: {' '.join(str(reason).split())}"}
    about = {"data": settings.data, "model": settings.model, "method": "trees", "epochs": "imported"}
    return empty | about | {"state": "complete"}
