"""``certus export``: write the network of a run as a torch.export file, for use without certus."""

from __future__ import annotations

from pathlib import Path

from certus.cli import options as cli
from certus.cli.output import console, require_file


@cli.command("export")
@cli.option("--output", "-o", type=cli.PATH, default="model.pt2", help="File to write.")
@cli.takes_run
def export(run: cli.TypedRun, output: Path) -> None:
    """Write the network of a run as a torch.export file.

    \b
    certus export runs/digits -o digits.pt2

    RUN is a run directory. torch.export.load("digits.pt2").module() reads the file, which contains standard
    operations of torch only.
    """
    from certus.runs.prediction import export_model

    require_file("--output", output)
    trained = run.load()
    difference = export_model(trained.loss.model, trained.data.test.inputs[:256], output)
    console.print(
        f"Written: {output}. Its outputs differ from the run's own by at most {difference:.2g}, relative, on "
        f"{min(256, len(trained.data.test))} test samples."
    )
