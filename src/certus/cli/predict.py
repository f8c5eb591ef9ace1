"""``certus predict``: predictions for new rows, each with its certified radius."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from certus._format import at_least
from certus.cli.options import (
    PATH,
    argument,
    command,
    json_option,
    model_option,
    option,
    refuse_unused,
    run_data_option,
    unused_by_network,
)
from certus.cli.output import messages, print_json, require_file, same_place
from certus.cli.streams import results
from certus.errors import require, require_number
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.runs.prediction import Predictions


@command("predict", panel="Deploy")
@argument("run", type=PATH)
@argument("data")
@option("--radius/--no-radius", default=True, help="Certify a radius for the prediction of each row.")
@option(
    "--reach",
    default=0.5,
    help="Largest radius of interest; the search for a larger certified radius stops there.",
)
@option("--output", "-o", type=PATH, show_default="stdout", help="CSV file to write.")
@model_option
@run_data_option
@json_option
@click.pass_context
def predict(
    context: click.Context,
    run: Path,
    data: str,
    radius: bool,
    reach: float,
    output: Path | None,
    model: str | None,
    run_data: str | None,
    as_json: bool,
) -> None:
    """Predict new rows, each with its certified radius.

    \b
    certus predict runs/people new.csv -o predictions.csv
    certus predict runs/people new.csv --no-radius --json

    RUN is a run directory, and DATA is new.csv, new.parquet or another data set. Rows are encoded with the
    categories, scales and medians of the run. The target column may be absent.
    """
    from certus.cli.table_files import as_csv
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run
    from certus.runs.prediction import predict_rows, read_rows

    if output is not None:
        require_file("--output", output)
        own = not same_place(output, os.path.expanduser(data.partition(":")[2] or data))
        require(own, "--output", "be another file than DATA, whose rows would be lost", output)
    if radius:
        require_number("--reach", reach)
    opened = RunDirectory.open(run, data=run_data)
    trained = open_run(opened, model=model)
    numbers = trained.data.classes is None
    regression = f"for {run}, a regression: its predictions are numbers" if numbers else None
    off = None if radius else "with --no-radius"
    printed = "with --json, which prints: use > FILE" if as_json else None
    refuse_unused(
        context,
        unused_by_network(opened) | {"radius": regression, "reach": regression or off, "output": printed},
    )
    rows = read_rows(trained, data)
    for note in rows.notes:
        messages.print(note)
    predictions = predict_rows(trained, rows, reach if radius and not numbers else None)
    if as_json:
        content = {
            "data": data,
            "notes": list(rows.notes),
            "right": predictions.right,
            "units": trained.data.units,
        }
        header = _header(predictions, trained.data.class_names)
        print_json(content | {"rows": [dict(zip(header, row, strict=True)) for row in _lines(predictions)]})
        return
    text = as_csv([_header(predictions, trained.data.class_names), *_lines(predictions)])
    if output is None:
        print(text, end="", file=results())
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, text.encode())
        messages.print(f"Written: {output}, {len(rows.inputs)} rows.")
    if predictions.right is not None:
        messages.print(f"{predictions.right:.2%} of the predictions agree with the target column.")
    if predictions.radii is not None:
        messages.print(
            f"Radius (proven): the prediction stays the same wherever a row moves by less than this, in "
            f"{trained.data.units}."
        )


def _header(predictions: Predictions, names: tuple[str, ...] | None) -> list[str]:
    if predictions.probabilities is None:
        return ["row", "prediction"]
    labels = names or tuple(map(str, range(predictions.probabilities.shape[1])))
    return [
        "row",
        "label",
        *(f"p({label})" for label in labels),
        *([] if predictions.radii is None else ["radius"]),
    ]


def _lines(predictions: Predictions) -> list[list[str | int | float]]:
    """Return one list for each row; a radius is rounded down, "unbounded" where nothing changes the label."""
    if predictions.values is not None:
        return [[at + 1, float(f"{value:.6g}")] for at, value in enumerate(predictions.values.tolist())]
    assert predictions.labels is not None
    assert predictions.probabilities is not None
    lines: list[list[str | int | float]] = []
    for at, (label, shares) in enumerate(
        zip(predictions.labels, predictions.probabilities.tolist(), strict=True)
    ):
        line: list[str | int | float] = [at + 1, label, *(float(f"{share:.6f}") for share in shares)]
        if predictions.radii is not None:
            radius = float(predictions.radii[at])
            line.append("unbounded" if radius == math.inf else float(at_least(radius)))
        lines.append(line)
    return lines
