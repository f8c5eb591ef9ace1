"""``certus report``: one page about a run, or several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.shared_options import RunData


def report(
    runs: Annotated[list[Path], typer.Argument(help="One or more complete run directories.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also draw its figures into this folder, as PNG, SVG and PDF.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Test samples to attack, chosen by the seed.")] = 200,
    seed: Annotated[int, typer.Option(help="Chooses these samples, and random starts.")] = 0,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="FILE.py:FACTORY of a run that has its own; several if they differ."),
    ] = None,
    run_data: RunData = None,
) -> None:
    """Write one page about runs, to look at offline and to hand on.

    \b
    certus report runs/digits
    certus report runs/digits-wrm runs/digits-erm -o compare.html
    certus report runs/digits --figures figures

    Run `certus certify RUN` first: the page shows the certificate in RUN/certificate. Several runs must
    have the same test data.
    """
    from certus.cli.report_page import make_report

    make_report(runs, output, figures, samples, seed, models or [], run_data)
