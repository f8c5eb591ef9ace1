"""What ``certus runs`` shows: a row for each run, with what it reached."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certus.cli.output import console, print_json
from certus.errors import CertusError, require
from certus.runs.building import settings_of
from certus.runs.directory import RunDirectory, find_runs
from certus.texts.plain_text import make_table, number

_UNREADABLE = "unreadable"
_COLUMNS = (
    *("run", "data", "model", "method", "epochs"),
    *("test_accuracy", "test_loss", "gamma", "rho_hat", "state"),
)


def show_runs(folder: Path, *, as_json: bool) -> None:
    """A row for each run; a line for each that cannot be read."""
    rows = [_describe(run) for run in find_runs(folder)]
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print(f"No runs in {folder}. `certus train digits` makes one.")
        return
    healthy = [row for row in rows if not row["state"].startswith(_UNREADABLE)]
    if healthy:
        _show(healthy)
    for row in rows:
        if row not in healthy:
            console.print(f"{row['run']}: {row['state']}")


def _show(rows: list[dict[str, Any]]) -> None:
    shown = make_table("run", "data", "model", "method", "epochs", "test", "gamma", "rho_hat", "state")
    shown.columns[-1].no_wrap = True
    for row in rows:
        test = row["test_accuracy"] if row["test_accuracy"] is not None else row["test_loss"]
        cells = [str(row[name]) for name in ("data", "model", "method", "epochs")]
        measured = [number(value) for value in (test, row["gamma"], row["rho_hat"])]
        shown.add_row(row["run"], *cells, *measured, row["state"])
    if console.is_terminal and console.measure(shown).maximum > console.width:
        for row in rows:
            console.print(_in_words(row))
        return
    console.print(shown)


def _in_words(row: dict[str, Any]) -> str:
    """A run on two lines, for a terminal that its row would not fit."""
    accuracy, loss = row["test_accuracy"], row["test_loss"]
    test = f"test accuracy {number(accuracy)}" if accuracy is not None else f"test loss {number(loss)}"
    told = [f"{row['data']} by {row['method']}", row["model"], f"epochs {row['epochs']}"]
    told += [test] if loss is not None else []
    told += [f"{name} {number(row[name])}" for name in ("gamma", "rho_hat") if row[name] is not None]
    return f"{row['run']}: {row['state']}\n  {', '.join(told)}"


def _describe(run: RunDirectory) -> dict[str, Any]:
    """What is told of a run; of a damaged one, why it cannot be read: it must not hide the others."""
    row: dict[str, Any] = dict.fromkeys(_COLUMNS) | {"run": str(run.path)}
    try:
        return row | _healthy(run)
    except Exception as reason:  # whatever a damaged file may hold
        words = str(reason) if isinstance(reason, CertusError) else f"{type(reason).__name__}: {reason}"
        return row | {"state": f"{_UNREADABLE}: {' '.join(words.split())}"}


def _healthy(run: RunDirectory) -> dict[str, Any]:
    settings, result = settings_of(RunDirectory.open(run.path)), run.result
    done = len(run.history)
    imported = run.settings.get("origin") == "imported"
    row: dict[str, Any] = {name: getattr(settings, name) for name in ("data", "model", "method")}
    row |= {"epochs": "imported" if imported else f"{done}/{settings.epochs}"}
    if result is None:
        return row | {"state": "incomplete"}
    test, level = result["test"], result["level"] or {}
    measured = {"test_accuracy": test.get("accuracy"), "test_loss": test["loss"]}
    measured |= {"gamma": level.get("gamma"), "rho_hat": level.get("rho_hat")}
    for name, value in measured.items():
        known = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        require(known, name, "be a number", repr(value)[:60])
    return row | measured | {"state": "complete"}
