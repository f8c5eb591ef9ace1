"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from certus.cli.options import AttackOptions, Json, RunData, options_of
from certus.errors import require


@options_of(AttackOptions)
def compare(
    context: typer.Context,
    runs: Annotated[list[Path], typer.Argument(help="Two or more runs; differences are to the first.")],
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="FILE.py:FACTORY of a run that has its own; several if they differ."),
    ] = None,
    run_data: RunData = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Attack several models on the same samples, side by side.

    \b
    certus compare runs/wrm runs/erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgd --norm 2 --epsilon from:runs/wrm
    certus compare runs/wrm runs/pgd --epsilon 0.05 --plot compare.png

    Differences to the first run are paired, sample by sample: much smaller ones show
    than two intervals would tell.
    """
    import torch

    from certus.attacks.evaluation import paired_differences
    from certus.cli.attack_support import (
        check_places,
        describe,
        frozen_words,
        idle_in_attacks,
        make_rows,
        make_trials,
        require_same_test,
        run_attacks,
        some_samples,
        tell,
    )
    from certus.cli.options import of_data, refuse_idle
    from certus.runs.directory import RunDirectory
    from certus.runs.factory import own_model
    from certus.runs.loaded_run import open_run

    asked = AttackOptions(**options)
    different = len({os.path.realpath(path) for path in runs}) == len(runs)
    named = ", ".join(str(path) for path in runs)
    require(different and len(runs) >= 2, "runs", "be two or more, each once", named)
    refuse_idle(context, idle_in_attacks(asked))
    check_places(asked)
    folders = {str(path): RunDirectory.open(path, data=run_data) for path in runs}
    own = {name: own_model(folder, models or []) for name, folder in folders.items()}
    unused = [text for text in models or [] if text not in own.values()]
    require(not unused, "--model", f"be of one of the runs {named}", ", ".join(unused))
    require_same_test(list(folders.values()))
    opened = {name: open_run(folder, model=own[name]) for name, folder in folders.items()}
    first = next(iter(opened.values()))
    refuse_idle(context, of_data(first.data))
    for name, other in opened.items():
        alike = torch.equal(other.data.test.inputs, first.data.test.inputs)
        require(alike, "runs", f"have inputs scaled as those of {runs[0]}", f"{name}, which scales otherwise")
    chosen = some_samples(first, asked)
    trials = make_trials(first, asked, models=models or [])
    # Every model meets the same adversary: wrm as an attack pays the cost of the first run.
    done = {
        name: run_attacks(replace(one, cost=first.cost), chosen.data, trials, asked.seed)
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
    about = {**describe(first, chosen, asked.seed), "rows": content}
    last = f"Attained. Differences are to {runs[0]}, paired sample by sample.{frozen_words(chosen.data)}"
    tell(asked, done, about, chosen.words, first.data.domain, last, as_json=as_json)
