"""``certus export``: the network of a run as a torch.export file, for use without certus."""

from __future__ import annotations

from pathlib import Path

import click

from certus.cli.options import (
    PATH,
    argument,
    command,
    model_option,
    option,
    refuse_unused,
    run_data_option,
    unused_by_network,
)
from certus.cli.output import console, require_file


@command("export", panel="Deploy")
@argument("run", type=PATH)
@option("--output", "-o", type=PATH, default="model.pt2", help="File to write.")
@model_option
@run_data_option
@click.pass_context
def export(context: click.Context, run: Path, output: Path, model: str | None, run_data: str | None) -> None:
    """Write the network of a run as a torch.export file.

    \b
    certus export runs/digits -o digits.pt2

    RUN is a run directory. torch.export.load("digits.pt2").module() reads the file, which contains standard
    operations of torch only.
    """
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run
    from certus.runs.prediction import export_model

    require_file("--output", output)
    opened = RunDirectory.open(run, data=run_data)
    refuse_unused(context, unused_by_network(opened))
    trained = open_run(opened, model=model)
    difference = export_model(trained.loss.model, trained.data.test.inputs[:256], output)
    console.print(
        f"Written: {output}. Its outputs differ from the run's own by at most {difference:.2g}, relative, on "
        f"{min(256, len(trained.data.test))} test samples."
    )
