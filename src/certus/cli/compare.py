"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

from dataclasses import asdict, replace
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
from certus.cli.shared_options import Json
from certus.errors import require


def compare(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(help="Two or more runs; differences are to the first.")],
    attacks: Attack = None,
    norm: NormOption = None,
    epsilon: Epsilon = None,
    gamma: Gamma = None,
    relative: Relative = False,
    steps: Steps = None,
    step_size: StepSize = None,
    restarts: Restarts = None,
    clip: Clip = True,
    samples: Samples = None,
    seed: AttackSeed = 0,
    plot: Plot = None,
    output: Save = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="FILE.py:FACTORY of a run that has its own; several if they differ."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack several models on the same samples, side by side.

    \b
    certus compare runs/digits-wrm runs/digits-erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgm --norm 2 --epsilon from:runs/wrm --plot compare.png

    Differences to the first run are paired, sample by sample: much smaller ones show
    than two intervals would tell.
    """
    import torch

    from certus.attacks.paired import paired_differences
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
    from certus.cli.idle import of_data, refuse_idle
    from certus.cli.output import console, print_json
    from certus.runs.directory import RunDirectory
    from certus.runs.networks import own_model
    from certus.runs.trained import open_trained

    different = len({path.resolve() for path in runs}) == len(runs)
    named = ", ".join(str(path) for path in runs)
    require(different and len(runs) >= 2, "runs", "be two or more, each once", named)
    refuse_idle(context, idle_in_attacks(attacks, epsilon, samples))
    check_places(output, plot)
    folders = {str(path): RunDirectory.open(path) for path in runs}
    own = {name: own_model(folder, models or []) for name, folder in folders.items()}
    unused = [text for text in models or [] if text not in own.values()]
    require(not unused, "--model", f"be of one of the runs {named}", ", ".join(unused))
    opened = {name: open_trained(folder, model=own[name]) for name, folder in folders.items()}
    first = next(iter(opened.values()))
    refuse_idle(context, of_data(first.data))
    for name, other in opened.items():
        same = other.data.sha256 == first.data.sha256 and torch.equal(
            other.data.rows["test"], first.data.rows["test"]
        )
        require(same, "runs", f"have the test samples of {runs[0]}", f"{name}, which has others")
        alike = torch.equal(other.data.test.inputs, first.data.test.inputs)
        require(alike, "runs", f"have inputs scaled as those of {runs[0]}", f"{name}, which scales otherwise")
    chosen = some_samples(first, samples, seed)
    trials = make_trials(
        first,
        attacks=attacks,
        norm=norm,
        epsilon=epsilon,
        gamma=gamma,
        relative=relative,
        steps=steps,
        step_size=step_size,
        restarts=restarts,
        clip=clip,
        models=models or [],
    )
    # Every model meets the same adversary: wrm as an attack pays the cost of the first run.
    done = {
        name: run_attacks(replace(one, cost=first.cost), chosen.data, trials, seed)
        for name, one in opened.items()
    }
    base = next(iter(done.values()))
    content = []
    for name, results in done.items():
        rows = make_rows(results, first.cost)
        for row, (_, outcome), (_, reference) in zip(rows, results, base, strict=True):
            difference = None if results is base else paired_differences(outcome, reference)
            content.append(
                {"run": name, **row, "minus_first": None if difference is None else asdict(difference)}
            )
    about = {**describe(first, chosen, seed), "rows": content}
    said = f"{chosen.words}; {where(content, first.data.domain)}"
    try:
        save_result(output, about)
        if plot is not None:
            draw(done, plot, f"{said}; 95% intervals")
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            print_rows(content)
            console.print(f"{said}. Differences are paired, to {runs[0]}.")
