"""``certus export``: the network of a run, for programs that know nothing of certus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.options import ModelFile, RunData


def export(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("model.pt2"),
    model: ModelFile = None,
    run_data: RunData = None,
) -> None:
    """Write the network of a run as a torch.export file.

    \b
    certus export runs/digits -o digits.pt2

    Read it with torch.export.load("digits.pt2").module(); it has plain operations only.
    """
    from certus.cli.options import of_network, refuse_idle
    from certus.cli.output import console, require_file
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run
    from certus.runs.prediction import export_model

    require_file("--output", output)
    opened = RunDirectory.open(run, data=run_data)
    refuse_idle(context, of_network(opened))
    trained = open_run(opened, model=model)
    apart = export_model(trained.loss.model, trained.data.test.inputs[:256], output)
    console.print(
        f"Written: {output}. Its outputs differ from the run's own by at most {apart:.2g}, relative, on "
        f"{min(256, len(trained.data.test))} test samples."
    )
