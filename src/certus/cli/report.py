"""``certus report``: an HTML page about one run or several."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from certus._progress import counting_bar
from certus.cli.options import RunData
from certus.cli.output import console, messages, require_file, require_folder, same_place
from certus.errors import require, require_count
from certus.storage.write import write_atomically


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

    make_report(runs, output, figures, samples, seed, models or [], run_data)


def make_report(
    runs: Sequence[Path],
    output: Path,
    figures: Path | None,
    samples: int,
    seed: int,
    models: Sequence[str],
    run_data: str | None,
) -> None:
    """Measure, write, and say where."""
    import torch

    from certus.cli.attack_support import require_same_test
    from certus.display.report.contents import attack_unit, evaluations, measure_run
    from certus.display.report.figure_files import draw_figures
    from certus.display.report.page import plotly_js, render_report
    from certus.runs.directory import RunDirectory, owner_of
    from certus.runs.factory import own_model
    from certus.runs.loaded_run import open_run

    different = len({os.path.realpath(path) for path in runs}) == len(runs)
    require(different, "runs", "be named once each", ", ".join(map(str, runs)))
    require_count("--samples", samples, least=2)
    require_file("--output", output)
    if figures is not None:
        require_folder("--figures", figures)
        require(not same_place(figures, output), "--figures", "be another place than --output", figures)
        owner = owner_of(figures)
        taken = "" if owner is None else f"{figures}, which holds {owner.words}"
        require(not taken, "--figures", "be a folder of its own", taken)
    plotly_js()  # what is missing is said before anything is attacked
    folders = [RunDirectory.open(path, data=run_data) for path in runs]
    require_same_test(folders)
    opened = [open_run(folder, model=own_model(folder, models)) for folder in folders]
    first = opened[0]
    for other in opened[1:]:
        same = torch.equal(other.data.test.inputs, first.data.test.inputs)
        rule = f"have inputs scaled as those of {runs[0]}"
        require(same, "runs", rule, f"{other.run.path}, which scales otherwise")
    total = sum(evaluations(one, samples) for one in opened)
    with counting_bar(messages, "measuring", total) as advance:
        reports = [measure_run(one, attack_unit(first), samples, seed, advance) for one in opened]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, render_report(reports).encode())
    console.print(f"Written: {output}. Open it in a browser; it needs no network.")
    if figures is not None:
        drawn = draw_figures(reports, figures)
        console.print(f"Figures in {figures}: {', '.join(drawn)}, each as .png, .svg and .pdf.")
    for report in reports:
        for line in report.remarks:
            messages.print(f"{report.name}: {line}")
