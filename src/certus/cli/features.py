"""``certus features`` and ``certus whatif``: what happens if one feature moves, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, ModelFile, RunData

RunArgument = Annotated[Path, typer.Argument(help="A run directory, trained on a table.")]
SplitOption = Annotated[str, typer.Option(help="test, calibration, train, all, or a later sample.")]
SampleCount = Annotated[int | None, typer.Option(help="How many rows, chosen by the seed; all if 0.")]
SampleSeed = Annotated[int, typer.Option(help="Chooses them.")]


def features(
    context: typer.Context,
    run: RunArgument,
    share: Annotated[float, typer.Option(help="How far each moves, as a share of its spread.")] = 0.1,
    split: SplitOption = "test",
    samples: SampleCount = 100,
    seed: SampleSeed = 0,
    plot: Annotated[Path | None, typer.Option(help="Where to draw bars, such as features.png.")] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """List the features that a run is most fragile in.

    \b
    certus features runs/people
    certus features runs/people --share 0.2 --plot fragile.png

    Each moves alone, by a tenth of its spread in root mean square.
    """
    from certus.cli.fragile_words import list_features

    list_features(context, run, share, split, samples or None, seed, plot, model, run_data, as_json=as_json)


def whatif(
    context: typer.Context,
    run: RunArgument,
    feature: Annotated[str, typer.Option(help="A column of the table.")],
    by: Annotated[float, typer.Option(help="How far, in its units; of a category, a share of rows.")],
    split: SplitOption = "test",
    samples: SampleCount = 100,
    seed: SampleSeed = 0,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Say what happens to the error if one feature moves.

    \b
    certus whatif runs/people --feature age --by 2
    certus whatif runs/people --feature town --by 0.1
    """
    from certus.cli.fragile_words import say_what_if

    say_what_if(context, run, feature, by, split, samples or None, seed, model, run_data, as_json=as_json)
