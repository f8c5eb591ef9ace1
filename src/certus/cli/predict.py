"""``certus predict``: predictions for new rows, each with its certified radius."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._format import at_least
from certus.cli import options as cli
from certus.cli.output import messages, print_json, require_file, same_place
from certus.cli.streams import results
from certus.errors import require, require_number
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.runs.prediction import Predictions


@cli.command("predict")
@cli.option("--radius/--no-radius", default=True, help="Certify a radius for the prediction of each row.")
@cli.option(
    "--reach",
    default=0.5,
    help="Largest radius of interest; the search for a larger certified radius stops there.",
)
@cli.option("--output", "-o", type=cli.PATH, show_default="stdout", help="CSV file to write.")
@cli.takes_run
@cli.argument("data")
@cli.json_option
def predict(
    run: cli.TypedRun, data: str, radius: bool, reach: float, output: Path | None, as_json: bool
) -> None:
    """Predict new rows, each with its certified radius.

    \b
    certus predict runs/people new.csv -o predictions.csv
    certus predict runs/people new.csv --no-radius --json

    RUN is a run directory, and DATA is new.csv, new.parquet or another data set. Rows are encoded with the
    categories, scales and medians of the run. The target column may be absent.
    """
    from certus.cli.table_files import as_csv
    from certus.runs.prediction import predict_rows, read_rows

    if output is not None:
        require_file("--output", output)
        own = not same_place(output, os.path.expanduser(data.partition(":")[2] or data))
        require(own, "--output", "be another file than DATA, whose rows would be lost", output)
    if radius:
        require_number("--reach", reach)
    trained = run.load()
    regression = trained.data.classes is None
    about = f"for {run.path}, a regression: its predictions are numbers" if regression else None
    off = None if radius else "with --no-radius"
    printed = "with --json, which prints: use > FILE" if as_json else None
    cli.refuse_unused({"radius": about, "reach": about or off, "output": printed})
    rows = read_rows(trained, data)
    for note in rows.notes:
        messages.print(note)
    predictions = predict_rows(trained, rows, reach if radius and not regression else None)
    header, lines = _header(predictions, trained.data.class_names), _lines(predictions)
    if as_json:
        content = {"data": data, "notes": list(rows.notes), "right": predictions.right}
        content |= {"units": trained.data.units}
        print_json(content | {"rows": [dict(zip(header, line, strict=True)) for line in lines]})
        return
    text = as_csv([header, *lines])
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
    radius = [] if predictions.radii is None else ["radius"]
    return ["row", "label", *(f"p({label})" for label in labels), *radius]


def _lines(predictions: Predictions) -> list[list[Any]]:
    """Return one list for each row; a radius is rounded down, "unbounded" where nothing changes the label."""
    if predictions.values is not None:
        return [[row, float(f"{value:.6g}")] for row, value in enumerate(predictions.values.tolist(), 1)]
    assert predictions.labels is not None
    assert predictions.probabilities is not None
    lines: list[list[Any]] = [
        [row, label, *(float(f"{share:.6f}") for share in shares)]
        for row, (label, shares) in enumerate(
            zip(predictions.labels, predictions.probabilities.tolist(), strict=True), 1
        )
    ]
    if predictions.radii is not None:
        for line, radius in zip(lines, predictions.radii.tolist(), strict=True):
            line.append("unbounded" if radius == math.inf else float(at_least(radius)))
    return lines
