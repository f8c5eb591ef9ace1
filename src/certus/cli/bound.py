"""``certus bound``: how smooth a trained network is, layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import Json, ModelFile, RunData


def bound(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    samples: Annotated[
        int, typer.Option(help="Test samples at which curvature is estimated; 0 for none.")
    ] = 256,
    seed: Annotated[int, typer.Option(help="Chooses these samples.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Where to draw; RUN/bound.png by default.")] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Bound the curvature of a network's loss, layer by layer.

    \b
    certus bound runs/digits
    certus bound runs/digits --json

    Above the gamma that follows from it, the inner problem is strongly concave at the final weights.
    """
    from certus.cli.smoothness_table import bound_run

    bound_run(context, run, samples, seed, plot, model, run_data, as_json=as_json)
