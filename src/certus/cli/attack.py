"""``certus attack``: what a model loses to attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.attack_options import (
    Attack,
    AttackSeed,
    Clip,
    Epsilon,
    Gamma,
    NormOption,
    Plot,
    Relative,
    Restarts,
    Samples,
    Save,
    Steps,
    StepSize,
)
from certus.cli.shared_options import Json, ModelFile

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
    """Attack the test data of a run; results have 95% intervals.

    \b
    certus attack runs/digits --epsilon 0.05
    certus attack runs/digits --attack pgm --attack fgm --norm 2 --epsilon 0.5 --epsilon 1 --plot sweep.png
    certus attack runs/digits --norm 2 --epsilon from:runs/digits --no-clip
    certus attack runs/digits --attack wrm --gamma 4 --gamma 2 --gamma 1
    certus attack runs/digits --nearest --norm 2

    What an attack finds is attained: a lower bound on the worst case, never a certificate.
    """
    from certus.cli.attack_trials import (
        check_places,
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
    from certus.cli.idle import of_data, of_network, refuse_idle
    from certus.cli.nearest_errors import show_nearest
    from certus.cli.output import console, print_json
    from certus.runs.directory import RunDirectory
    from certus.runs.trained import open_trained

    check_places(output, plot)
    opened = RunDirectory.open(run)
    refuse_idle(context, of_network(opened))
    refuse_idle(context, _AT_ANY_DISTANCE if nearest else idle_in_attacks(attacks, epsilon, samples))
    trained = open_trained(opened, model=model)
    refuse_idle(context, of_data(trained.data))
    chosen = some_samples(trained, samples, seed)
    if nearest:
        show_nearest(trained, chosen, norm or "inf", clip, steps, restarts, seed, output, as_json)
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
