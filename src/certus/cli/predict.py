"""``certus predict``: what a run says of new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, ModelFile, RunData


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
    from certus.cli.predicting import predict_table

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
