"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from certus.cli.options import (
    ATTACK_PANELS,
    PATH,
    AttackOptions,
    argument,
    command,
    json_option,
    models_option,
    options_of,
    refuse_unused,
    run_data_option,
    unused_by_data,
)
from certus.errors import require


@command("compare", panel="Attack", panels=ATTACK_PANELS)
@argument("runs", type=PATH, nargs=-1, required=True)
@options_of(AttackOptions)
@models_option
@run_data_option
@json_option
@click.pass_context
def compare(
    context: click.Context,
    /,
    runs: tuple[Path, ...],
    models: tuple[str, ...],
    run_data: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Attack several models on the same samples, side by side.

    \b
    certus compare runs/wrm runs/erm --epsilon 0 --epsilon 0.05 --epsilon 0.1
    certus compare runs/wrm runs/pgd --norm 2 --epsilon from:runs/wrm
    certus compare runs/wrm runs/pgd --epsilon 0.05 --plot compare.png

    RUNS are two or more complete run directories with the same test data. Differences to the first run are
    paired, sample by sample, which detects much smaller differences than two separate intervals.
    """
    from certus.attacks.evaluation import paired_differences
    from certus.cli.attack_support import (
        check_places,
        choose_samples,
        describe,
        frozen_words,
        make_rows,
        make_trials,
        open_comparable,
        run_attacks,
        show_results,
        unused_in_attacks,
    )

    typed = AttackOptions(**options)
    require(len(runs) >= 2, "runs", "be two or more", ", ".join(map(str, runs)))
    refuse_unused(context, unused_in_attacks(typed))
    check_places(typed)
    opened = open_comparable(runs, models, run_data)
    first = opened[0]
    refuse_unused(context, unused_by_data(first.data))
    chosen = choose_samples(first, typed)
    trials = make_trials(first, typed, models=models)
    # Every model meets the same adversary: wrm as an attack pays the cost of the first run.
    outcomes = {
        str(path): run_attacks(replace(trained, cost=first.cost), chosen.data, trials, typed.seed)
        for path, trained in zip(runs, opened, strict=True)
    }
    base = outcomes[str(runs[0])]
    rows = []
    for name, results in outcomes.items():
        own_rows = make_rows(results, first.cost)
        for row, (_, outcome), (_, reference) in zip(own_rows, results, base, strict=True):
            difference = None if results is base else asdict(paired_differences(outcome, reference))
            rows.append({"run": name, **row, "minus_first": difference})
    content = {**describe(first, chosen, typed.seed), "rows": rows}
    last = f"Attained. Differences are to {runs[0]}, paired sample by sample.{frozen_words(chosen.data)}"
    show_results(typed, outcomes, content, chosen.words, first.data.domain, last, as_json=as_json)
