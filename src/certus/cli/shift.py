"""``certus shift``: how far one data set is from another, and what a run is certified to lose by it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, ModelFile, RunData


def shift(
    context: typer.Context,
    first: Annotated[str, typer.Argument(help="DATA, or DATA@SPLIT such as employment@test.")],
    second: Annotated[str, typer.Argument(help="DATA, or DATA@SPLIT such as employment@2018.")],
    label_price: Annotated[
        float | None, typer.Option(help="What changing a label costs; else labels stay.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Certify this run at the distance found.")] = None,
    samples: Annotated[int | None, typer.Option(help="How many of each, chosen by the seed.")] = None,
    seed: Annotated[int, typer.Option(help="Chooses samples, halves, and where large ones are cut.")] = 0,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Measure how far one data set is from another.

    \b
    certus shift employment@test employment@2018 --label-price 1
    certus shift employment@test employment@2018 --label-price 1 --run runs/jobs

    The transport distance, in the units of the first, or of a run.
    """
    from certus.cli.shift_words import measure_shift

    measure_shift(context, first, second, label_price, run, samples, seed, model, run_data, as_json=as_json)
