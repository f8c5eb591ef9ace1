"""``certus attack``: what a model loses to attacks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from certus.attacks.smallest import nearest_error
from certus.cli.attack_trials import (
    Attack,
    AttackSeed,
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
    Steps,
    StepSize,
    check_places,
    clipping,
    describe,
    draw,
    idle_in_attacks,
    make_rows,
    make_trials,
    print_rows,
    run_attacks,
    save_result,
    some_samples,
    where,
)
from certus.cli.epsilon import read_norm
from certus.cli.idle import of_data, of_network, refuse_idle
from certus.cli.output import Json, console, make_table, messages, number, print_json
from certus.cli.progress import counting
from certus.domains import Unbounded
from certus.errors import require_count
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.subsets import Subset

_AT_ANY_DISTANCE: dict[str, str | None] = dict.fromkeys(
    ("attacks", "epsilon", "gamma", "plot", "relative", "step_size"),
    "with --nearest, which looks at any distance",
)


def attack(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    attacks: Attack = None,
    norm: NormOption = None,
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = None,
    step_size: StepSize = None,
    restarts: Restarts = None,
    clip: Clip = True,
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Search the nearest error of each sample instead.")
    ] = False,
    samples: Samples = None,
    seed: AttackSeed = 0,
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
    check_places(output, plot)
    opened = RunDirectory.open(run)
    refuse_idle(context, of_network(opened))
    refuse_idle(context, _AT_ANY_DISTANCE if nearest else idle_in_attacks(attacks, epsilon, samples))
    trained = open_trained(opened, model=model)
    refuse_idle(context, of_data(trained.data))
    chosen = some_samples(trained, samples, seed)
    if nearest:
        _show_nearest(trained, chosen, norm or "inf", clip, steps, restarts, seed, output, as_json)
        return
    trials = make_trials(
        trained,
        attacks=attacks,
        norm=norm,
        epsilon=epsilon,
        gamma=gamma,
        relative=relative,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        clip=clip,
        models=[] if model is None else [model],
    )
    done = run_attacks(trained, chosen.data, trials, seed)
    rows = make_rows(done, trained.cost)
    about = {"run": str(run), **describe(trained, chosen, seed), "rows": rows}
    said = f"{chosen.words}; {where(rows, trained.data.domain)}"
    try:
        save_result(output, about)
        if plot is not None:
            draw({str(run): done}, plot, f"{said}; 95% intervals")
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            print_rows(rows)
            console.print(f"{said}. Attained by actual points: a lower bound.")


def _show_nearest(
    trained: TrainedRun,
    chosen: Subset,
    norm: str,
    clip: bool,
    steps: int | None,
    restarts: int | None,
    seed: int,
    output: Path | None,
    as_json: bool,
) -> None:
    options: dict[str, Any] = {"steps": 20 if steps is None else steps}
    options["restarts"] = 1 if restarts is None else restarts
    for name, count in options.items():
        require_count(f"--{name}", count)
    domain = trained.data.domain if clip else Unbounded()
    data, distances = chosen.data, []
    with counting(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            found = nearest_error(
                trained.loss,
                batch.inputs,
                batch.targets,
                norm=read_norm(norm),
                domain=domain,
                seed=seed,
                **options,
            )
            distances.append(found.distance)
            advance(len(batch))
    lengths = torch.cat(distances).double().tolist()
    about = {"run": str(trained.run.path), **describe(trained, chosen, seed), "norm": norm}
    about |= {"clipped": clip, **options}
    about["distances"] = [value if value < math.inf else None for value in lengths]
    try:
        save_result(output, about)
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            _print_nearest(lengths)
            kept = clipping(clip, trained.data.domain)
            console.print(f"{chosen.words}; norm {norm}, {kept}. Attained: no nearest error is farther.")


def _print_nearest(lengths: list[float]) -> None:
    shown = make_table("share of samples", "nearest error within")
    for percent in (5, 25, 50, 75, 95):
        reached = -(-percent * len(lengths) // 100)  # so many samples, rounded up
        shown.add_row(f"{percent}%", number(sorted(lengths)[reached - 1]))
    console.print(shown)
