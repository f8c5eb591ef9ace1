"""``certus predict``: predictions for new rows, each with its certified radius."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._format import at_least
from certus.cli import options as cli
from certus.cli.output import as_csv, messages, print_json, require_file, results, same_place
from certus.errors import require, require_number
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.runs.prediction import Predictions


@cli.command("predict")
@cli.new_rows_options
@cli.panel("Run and output")
@cli.option("--radius/--no-radius", default=True, help="Certify a radius for the prediction of each row.")
@cli.option("--reach", default=0.5, help="Largest radius to search for.")
@cli.option("--output", "-o", type=cli.PATH, show_default="stdout", help="CSV file to write.")
@cli.takes_run
@cli.argument("data")
@cli.json_option
def predict(
    run: cli.TypedRun,
    data: str,
    radius: bool,
    reach: float,
    output: Path | None,
    as_json: bool,
    **reading: str | None,
) -> None:
    """Predict new rows, each with its certified radius.

    \b
    certus predict runs/people new.csv -o predictions.csv
    certus predict runs/people new.csv --no-radius --json

    RUN is a run directory, and DATA is new.csv, new.parquet or another data set. Rows are encoded with the
    categories, scales and medians of the run. The target column may be absent.
    """
    from certus.runs.prediction import predict_rows, read_rows

    if output is not None:
        require_file("--output", output)
        own = not same_place(output, os.path.expanduser(data.partition(":")[2] or data))
        require(own, "--output", "be a file other than DATA, which it would replace", output)
    if radius:
        require_number("--reach", reach)
    trained = run.load()
    regression = trained.data.classes is None
    about = f"for {run.path}, a regression: its predictions are numbers" if regression else None
    off = None if radius else "with --no-radius"
    printed = "with --json, which prints to stdout: redirect that instead" if as_json else None
    cli.refuse_unused({"radius": about, "reach": about or off, "output": printed})
    rows = read_rows(trained, data, cli.reading_of_new_rows(trained.settings.table, reading))
    for note in rows.notes:
        messages.print(note)
    predictions = predict_rows(trained, rows, reach if radius and not regression else None)
    header, *lines = table = _table(predictions, trained.data.class_names)
    if as_json:
        content = {"data": data, "notes": list(rows.notes), "right": predictions.right}
        content |= {"units": trained.data.units}
        print_json(content | {"rows": [dict(zip(header, line, strict=True)) for line in lines]})
        return
    text = as_csv(table)
    if output is None:
        print(text, end="", file=results())
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, text.encode())
        messages.print(f"Written: {output}, {len(rows.inputs)} rows.")
    if predictions.right is not None:
        messages.print(f"{predictions.right:.2%} of the predictions agree with the target column.")
    if predictions.radii is not None:
        messages.print(f"Radius (proven): a row that moves by less keeps its label ({trained.data.units}).")


def _table(predictions: Predictions, names: tuple[str, ...] | None) -> list[list[Any]]:
    """Return a header, and a list for each row; a radius is rounded down, or "unbounded"."""
    if predictions.values is not None:
        rows = enumerate(predictions.values.tolist(), 1)
        return [["row", "prediction"], *([row, float(f"{value:.6g}")] for row, value in rows)]
    assert predictions.labels is not None
    assert predictions.probabilities is not None
    labels = names or range(predictions.probabilities.shape[1])
    table: list[list[Any]] = [["row", "label", *(f"p({label})" for label in labels)]]
    shares = predictions.probabilities.tolist()
    for row, (label, numbers) in enumerate(zip(predictions.labels, shares, strict=True), 1):
        table.append([row, label, *(float(f"{share:.6f}") for share in numbers)])
    if predictions.radii is not None:
        radii = [float(radius) for radius in predictions.radii]
        cells = ("unbounded" if radius == math.inf else float(at_least(radius)) for radius in radii)
        for line, cell in zip(table, ("radius", *cells), strict=True):
            line.append(cell)
    return table
