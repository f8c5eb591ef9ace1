"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from certus.attacks.budgets import typical_length
from certus.attacks.comparison import paired_differences
from certus.attacks.sweeps import as_row
from certus.cli.attacking import (
    Attack,
    Clip,
    Epsilon,
    Gamma,
    ModelFile,
    NormOption,
    Plot,
    Relative,
    Restarts,
    Samples,
    Save,
    Seed,
    Steps,
    StepSize,
    draw,
    first_samples,
    make_trials,
    print_rows,
    run_trials,
    where,
)
from certus.cli.budgets import read_norm
from certus.cli.output import Json, console, print_json
from certus.errors import require
from certus.runs.directory import RunDirectory
from certus.runs.files import write_json
from certus.runs.trained import open_trained


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more runs; differences are to the first.")],
    attacks: Attack = None,
    norm: NormOption = "inf",
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = 15,
    step_size: StepSize = None,
    restarts: Restarts = 1,
    clip: Clip = True,
    samples: Samples = None,
    seed: Seed = 0,
    plot: Plot = None,
    output: Save = None,
    model: ModelFile = None,
    as_json: Json = False,
) -> None:
    """Attack several models on the same samples, side by side with paired differences.

    \b
    certus compare runs/digits-wrm runs/digits-erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgm --norm 2 --epsilon from:runs/wrm --plot compare.png

    The differences are sample by sample, so that much smaller ones show than two intervals would tell.
    """
    different = len({path.resolve() for path in runs}) == len(runs)
    named = ", ".join(str(path) for path in runs)
    require(different and len(runs) >= 2, "runs", "be two or more, each once", named)
    opened = {str(path): open_trained(RunDirectory.open(path), model=model) for path in runs}
    first = next(iter(opened.values()))
    for name, other in opened.items():
        same = other.data.sha256 == first.data.sha256 and torch.equal(
            other.data.rows["test"], first.data.rows["test"]
        )
        require(same, "runs", f"have the test samples of {runs[0]}", f"{name}, which has others")
    data = first_samples(first.data.test, samples)
    unit = typical_length(first.data.train, read_norm(norm)) if relative else 1.0
    trials = make_trials(attacks, norm, epsilon, gamma, steps, step_size, restarts, clip, unit, model)
    # Every model meets the same adversary: wrm as an attack pays the cost of the first run.
    done = {
        name: run_trials(replace(one, cost=first.cost), data, trials, seed) for name, one in opened.items()
    }
    base = next(iter(done.values()))
    content = []
    for name, results in done.items():
        for (trial, outcome), (_, reference) in zip(results, base, strict=True):
            difference = None if results is base else paired_differences(outcome, reference)
            content.append(
                {
                    "run": name,
                    **as_row(trial, outcome),
                    "minus_first": None if difference is None else asdict(difference),
                }
            )
    about = {"data": first.data.name, "seed": seed, "rows": content}
    if output is not None:
        write_json(output, about)
    if plot is not None:
        draw(done, plot)
    if as_json:
        print_json(about)
        return
    print_rows(content)
    console.print(f"{len(data)} test samples; {where(trials)}. Differences are paired, to {runs[0]}.")
