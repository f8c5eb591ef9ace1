"""What ``certus report`` does: runs are opened, measured on the same samples, and written as a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch

from certus._progress import counting
from certus.cli.output import console, messages, require_file, require_folder, same_place
from certus.cli.same_data import require_same_test
from certus.display.report.findings import find_out, unit_of, work
from certus.display.report.page import Page, plotly_js
from certus.display.report.print import draw_figures
from certus.errors import require, require_count
from certus.runs.directory import RunDirectory, owner_of
from certus.runs.factory import own_model
from certus.runs.loaded_run import open_trained
from certus.storage.write import write_atomically


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
    opened = [open_trained(folder, model=own_model(folder, models)) for folder in folders]
    first = opened[0]
    for other in opened[1:]:
        same = torch.equal(other.data.test.inputs, first.data.test.inputs)
        rule = f"have inputs scaled as those of {runs[0]}"
        require(same, "runs", rule, f"{other.run.path}, which scales otherwise")
    total = sum(work(one, samples) for one in opened)
    with counting(messages, "measuring", total) as advance:
        findings = [find_out(one, unit_of(first), samples, seed, advance) for one in opened]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, Page(findings).html().encode())
    console.print(f"Written: {output}. Open it in a browser; it needs no network.")
    if figures is not None:
        drawn = draw_figures(findings, figures)
        console.print(f"Figures in {figures}: {', '.join(drawn)}, each as .png, .svg and .pdf.")
    for found in findings:
        for line in found.remarks:
            messages.print(f"{found.name}: {line}")
