"""``certus runs``: a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from certus.cli.output import Json, console, make_table, number, print_json
from certus.runs import RunError
from certus.runs.directory import RunDirectory, find_runs


def runs(
    folder: Annotated[Path, typer.Argument(help="Where to look, sub-folders included.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs in a folder, with what they reached.

    \b
    certus runs
    certus runs experiments --json
    """
    rows = [_describe(run) for run in find_runs(folder)]
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print(f"No runs in {folder}. `certus train digits` makes one.")
        return
    shown = make_table("run", "data", "model", "method", "epochs", "test", "gamma", "rho_hat", "state")
    for row in rows:
        test = row["test_accuracy"] if row["test_accuracy"] is not None else row["test_loss"]
        names = ("data", "model", "method", "epochs")
        cells = [str(row[name]) for name in names]
        shown.add_row(
            row["run"], *cells, number(test), number(row["gamma"]), number(row["rho_hat"]), row["state"]
        )
    console.print(shown)


def _describe(run: RunDirectory) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(
        (
            "run",
            "data",
            "model",
            "method",
            "epochs",
            "test_accuracy",
            "test_loss",
            "gamma",
            "rho_hat",
            "state",
        )
    )
    row["run"] = str(run.path)
    try:
        settings = RunDirectory.open(run.path).settings["settings"]
        result, done = run.result, len(run.history)
        row |= {name: settings[name] for name in ("data", "model", "method")}
        imported = run.settings.get("origin") == "imported"
        row |= {"epochs": "imported" if imported else f"{done}/{settings['epochs']}"}
        row |= {"state": "complete" if result else "incomplete"}
    except (RunError, KeyError, TypeError) as reason:  # one damaged run must not hide the others
        return row | {"state": f"unreadable: {reason}"}
    if result is not None:
        level = result["level"] or {}
        test = result["test"]
        row |= {"test_accuracy": test.get("accuracy"), "test_loss": test["loss"]}
        row |= {"gamma": level.get("gamma"), "rho_hat": level.get("rho_hat")}
    return row
