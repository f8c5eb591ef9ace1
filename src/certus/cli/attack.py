"""``certus attack``: what a model loses to attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from certus.attacks.budgets import typical_length
from certus.attacks.smallest import nearest_error
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
from certus.cli.output import Json, console, messages, number, print_json, table
from certus.cli.progress import counting
from certus.data import Split
from certus.errors import require
from certus.runs.directory import RunDirectory
from certus.runs.files import write_json
from certus.runs.trained import TrainedRun, open_trained


def attack(
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    attacks: Attack = None,
    norm: NormOption = "inf",
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = 15,
    step_size: StepSize = None,
    restarts: Restarts = 1,
    clip: Clip = True,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Search the nearest error of each sample instead.")
    ] = False,
    samples: Samples = None,
    seed: Seed = 0,
    plot: Plot = None,
    output: Save = None,
    model: ModelFile = None,
    as_json: Json = False,
) -> None:
    """Attack the test data of a run: error, loss and distance, with 95% intervals.

    \b
    certus attack runs/digits --epsilon 0.05
    certus attack runs/digits --attack pgm --attack fgm --norm 2 --epsilon 0.5 --epsilon 1 --plot sweep.png
    certus attack runs/digits --norm 2 --epsilon from:runs/digits --no-clip
    certus attack runs/digits --attack wrm --gamma 4 --gamma 2 --gamma 1
    certus attack runs/digits --nearest --norm 2

    What an attack finds is attained: a lower bound on the worst case, never a certificate.
    """
    trained = open_trained(RunDirectory.open(run), model=model)
    data = first_samples(trained.data.test, samples)
    if nearest:
        for name, given in (("attack", attacks), ("epsilon", epsilon), ("gamma", gamma), ("plot", plot)):
            require(not given, name, "be left out with --nearest", given)
        _show_nearest(trained, data, norm, clip, steps, restarts, seed, output, as_json)
        return
    unit = typical_length(trained.data.train, read_norm(norm)) if relative else 1.0
    trials = make_trials(attacks, norm, epsilon, gamma, steps, step_size, restarts, clip, unit, model)
    done = run_trials(trained, data, trials, seed)
    rows = [as_row(trial, outcome) for trial, outcome in done]
    about = {"run": str(run), "data": trained.data.name, "seed": seed, "rows": rows}
    if output is not None:
        write_json(output, about)
    if plot is not None:
        draw({str(run): done}, plot)
    if as_json:
        print_json(about)
        return
    print_rows(rows)
    console.print(f"{len(data)} test samples; {where(trials)}. Attained by actual points: a lower bound.")


def _show_nearest(
    trained: TrainedRun,
    data: Split,
    norm: str,
    clip: bool,
    steps: int,
    restarts: int,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    options: dict[str, Any] = {"domain": trained.data.domain} if clip else {}
    distances = []
    with counting(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            found = nearest_error(
                trained.loss,
                batch.inputs,
                batch.targets,
                norm=read_norm(norm),
                steps=steps,
                restarts=restarts,
                seed=seed,
                **options,
            )
            distances.append(found.distance)
            advance(len(batch))
    lengths = torch.cat(distances).double()
    shares = (0.05, 0.25, 0.5, 0.75, 0.95)
    quantiles = {share: float(lengths.quantile(share, interpolation="lower")) for share in shares}
    plain = [value if value < float("inf") else None for value in lengths.tolist()]
    about = {"run": str(trained.run.path), "norm": norm, "clipped": clip, "seed": seed, "distances": plain}
    if output is not None:
        write_json(output, about)
    if as_json:
        print_json(about)
        return
    clipped = "clipped to the data's domain" if clip else "not clipped"
    shown = table("share of samples", "nearest error within")
    for share, length in quantiles.items():
        shown.add_row(f"{share:.0%}", number(length))
    console.print(shown)
    console.print(
        f"{len(data)} test samples; norm {norm}, {clipped}. Attained: the nearest error is no farther."
    )
