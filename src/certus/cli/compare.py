"""``certus compare``: several models under the same attacks."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from certus.cli import options as cli
from certus.errors import require


@cli.command("compare")
@cli.argument("runs", type=cli.PATH, nargs=-1, required=True)
@cli.options_of(cli.AttackOptions)
@cli.models_option
@cli.run_data_option
@cli.json_option
def compare(
    runs: tuple[Path, ...], models: tuple[str, ...], run_data: str | None, as_json: bool, **options: Any
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
    from certus.cli import attack_support as support

    typed = cli.AttackOptions(**options)
    require(len(runs) >= 2, "runs", "be two or more", ", ".join(map(str, runs)))
    cli.refuse_unused(support.unused_in_attacks(typed))
    support.check_places(typed)
    opened = support.open_comparable(runs, models, run_data)
    first = opened[0]
    cli.refuse_unused(cli.unused_by_data(first.data))
    chosen = support.choose_samples(first, typed)
    trials = support.make_trials(first, typed, models=models)
    # Every model meets the same adversary: wrm as an attack pays the cost of the first run.
    outcomes = {
        str(path): support.run_attacks(replace(trained, cost=first.cost), chosen.data, trials, typed.seed)
        for path, trained in zip(runs, opened, strict=True)
    }
    base = outcomes[str(runs[0])]
    rows = []
    for name, results in outcomes.items():
        own_rows = support.make_rows(results, first.cost)
        for row, (_, outcome), (_, reference) in zip(own_rows, results, base, strict=True):
            difference = None if results is base else asdict(paired_differences(outcome, reference))
            rows.append({"run": name, **row, "minus_first": difference})
    content = {**support.describe(first, chosen, typed.seed), "rows": rows}
    last = f"Attained. Differences are to {runs[0]}, paired sample by sample."
    support.show_results(typed, outcomes, content, chosen, first.data.domain, last, as_json=as_json)
