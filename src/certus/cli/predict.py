"""``certus predict``: predictions for new rows, each with its certified radius."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certus._format import at_least
from certus.cli.options import Json, ModelFile, RunData, of_network, refuse_idle
from certus.cli.output import messages, print_json, require_file, same_place
from certus.cli.streams import results
from certus.errors import require, require_number
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from certus.runs.prediction import Predictions


def predict(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    data: Annotated[str, typer.Argument(help="new.csv, new.parquet, or another data set.")],
    radius: Annotated[bool, typer.Option(help="Prove how far each row may move.")] = True,
    reach: Annotated[float, typer.Option(help="The distance up to which that matters.")] = 0.5,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A CSV file; stdout if none.")] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Predict new rows, each with the radius that is proven for it.

    \b
    certus predict runs/people new.csv -o said.csv
    certus predict runs/people new.csv --no-radius --json

    Rows are read by the run's own categories, scales and medians. The target column may be absent.
    """

    predict_table(
        context,
        run,
        data,
        reach=reach if radius else None,
        output=output,
        model=model,
        run_data=run_data,
        as_json=as_json,
    )


def predict_table(
    context: typer.Context,
    run: Path,
    data: str,
    *,
    reach: float | None,
    output: Path | None,
    model: str | None,
    run_data: str | None,
    as_json: bool,
) -> None:
    """Read, predict, and write a table or JSON."""
    from certus.cli.table_files import as_csv
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run
    from certus.runs.prediction import predict_rows, read_rows

    if output is not None:
        require_file("--output", output)
        own = not same_place(output, os.path.expanduser(data.partition(":")[2] or data))
        require(own, "--output", "be another file than DATA, whose rows would be lost", output)
    if reach is not None:
        require_number("--reach", reach)
    opened = RunDirectory.open(run, data=run_data)
    trained = open_run(opened, model=model)
    numbers = trained.data.classes is None
    regression = f"for {run}, a regression: its predictions are numbers" if numbers else None
    off = "with --no-radius" if reach is None else None
    printed = "with --json, which prints: use > FILE" if as_json else None
    refuse_idle(
        context,
        of_network(opened) | {"radius": regression, "reach": regression or off, "output": printed},
    )
    rows = read_rows(trained, data)
    for note in rows.notes:
        messages.print(note)
    said = predict_rows(trained, rows, None if numbers else reach)
    if as_json:
        content = {"data": data, "notes": list(rows.notes), "right": said.right, "units": trained.data.units}
        header = _header(said, trained.data.class_names)
        print_json(content | {"rows": [dict(zip(header, row, strict=True)) for row in _lines(said)]})
        return
    text = as_csv([_header(said, trained.data.class_names), *_lines(said)])
    if output is None:
        print(text, end="", file=results())
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, text.encode())
        messages.print(f"Written: {output}, {len(rows.inputs)} rows.")
    if said.right is not None:
        messages.print(f"{said.right:.2%} of the predictions agree with the target column.")
    if said.radii is not None:
        messages.print(
            f"Radius (proven): the prediction stays the same wherever a row moves by less than this, in "
            f"{trained.data.units}."
        )


def _header(said: Predictions, names: tuple[str, ...] | None) -> list[str]:
    if said.probabilities is None:
        return ["row", "prediction"]
    labels = names or tuple(map(str, range(said.probabilities.shape[1])))
    return ["row", "label", *(f"p({label})" for label in labels), *([] if said.radii is None else ["radius"])]


def _lines(said: Predictions) -> list[list[str | int | float]]:
    """One list for each row; a radius is rounded down, infinity where nothing changes the label."""
    if said.values is not None:
        return [[at + 1, float(f"{value:.6g}")] for at, value in enumerate(said.values.tolist())]
    assert said.labels is not None
    assert said.probabilities is not None
    lines: list[list[str | int | float]] = []
    for at, (label, shares) in enumerate(zip(said.labels, said.probabilities.tolist(), strict=True)):
        line: list[str | int | float] = [at + 1, label, *(float(f"{share:.6f}") for share in shares)]
        if said.radii is not None:
            radius = float(said.radii[at])
            line.append("unbounded" if radius == math.inf else float(at_least(radius)))
        lines.append(line)
    return lines
