"""``certus attack``: what a model loses to attacks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from certus.cli.attack_options import AttackOptions
from certus.cli.options import options_of
from certus.cli.shared_options import Json, ModelFile, RunData

_AT_ANY_DISTANCE: dict[str, str | None] = dict.fromkeys(
    ("epsilon", "gamma", "plot", "relative", "step_size"), "with --nearest, which looks at any distance"
)
_OF_PENALTY: dict[str, str | None] = dict.fromkeys(
    ("norm", "steps", "restarts"), "with --nearest --attack wrm, which looks for the largest gamma"
)


@options_of(AttackOptions)
def attack(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A complete run directory.")],
    nearest: Annotated[
        bool, typer.Option("--nearest", help="Search the nearest error of each sample instead.")
    ] = False,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Attack the test data of a run; results have 95% intervals.

    \b
    certus attack runs/digits
    certus attack runs/digits --epsilon 0.05
    certus attack runs/digits --norm 2 --epsilon 0.5 --epsilon 1 --plot sweep.png
    certus attack runs/digits --attack pgd --attack fgsm --epsilon 0.05
    certus attack runs/digits --norm 2 --epsilon from:runs/digits --no-clip
    certus attack runs/digits --attack wrm --gamma 4 --gamma 2 --gamma 1
    certus attack runs/digits --nearest --norm 2
    certus attack runs/digits --nearest --attack wrm

    What an attack finds is attained: a lower bound on the worst case, never a certificate.
    """
    from certus.cli.attack_table import describe, frozen_words, make_rows, tell
    from certus.cli.attack_trials import (
        check_places,
        idle_in_attacks,
        make_trials,
        run_attacks,
        some_samples,
    )
    from certus.cli.idle import of_data, of_network, refuse_idle
    from certus.cli.nearest_errors import show_nearest
    from certus.cli.nearest_penalties import show_penalties
    from certus.errors import require
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_trained

    asked = AttackOptions(**options)
    check_places(asked)
    opened = RunDirectory.open(run, data=run_data)
    refuse_idle(context, of_network(opened))
    by_penalty = nearest and asked.attacks == ["wrm"]
    if nearest:
        known = asked.attacks is None or by_penalty
        require(known, "attack", "be left out with --nearest, or be wrm", ", ".join(asked.attacks or []))
        refuse_idle(context, _AT_ANY_DISTANCE | (_OF_PENALTY if by_penalty else {}))
        as_rows = asked.output is not None and asked.output.suffix.lower() in (".tex", ".csv")
        require(not as_rows, "--output", "be a JSON file with --nearest, which has no rows", asked.output)
    else:
        refuse_idle(context, idle_in_attacks(asked))
    trained = open_trained(opened, model=model)
    refuse_idle(context, of_data(trained.data))
    chosen = some_samples(trained, asked)
    if nearest:
        show = show_penalties if by_penalty else show_nearest
        show(trained, chosen, asked, as_json=as_json)
        return
    trials = make_trials(trained, asked, models=[] if model is None else [model])
    done = run_attacks(trained, chosen.data, trials, asked.seed)
    rows = make_rows(done, trained.cost)
    about = {"run": str(run), **describe(trained, chosen, asked.seed), "rows": rows}
    last = "Attained: the attack found such points, so the worst case is at least this bad."
    last += frozen_words(chosen.data)
    tell(asked, {str(run): done}, about, chosen.words, trained.data.domain, last, as_json=as_json)
