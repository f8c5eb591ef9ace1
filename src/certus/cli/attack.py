"""``certus attack``: the loss and error of a model under attack, and the nearest error of each sample."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from certus._progress import counting_bar
from certus.cli.options import (
    ATTACK_PANELS,
    PATH,
    AttackOptions,
    argument,
    command,
    json_option,
    model_option,
    option,
    options_of,
    refuse_unused,
    run_data_option,
    unused_by_data,
    unused_by_network,
)
from certus.cli.output import console, messages, print_json
from certus.display.text import make_table, number
from certus.errors import ArgumentError, require, require_count

if TYPE_CHECKING:
    from certus.costs import Cost
    from certus.data import Samples, Subset
    from certus.runs.loaded_run import LoadedRun

_AT_ANY_DISTANCE: dict[str, str | None] = dict.fromkeys(
    ("epsilon", "gamma", "plot", "relative", "step_size"), "with --nearest, which looks at any distance"
)
_OF_PENALTY: dict[str, str | None] = dict.fromkeys(
    ("norm", "steps", "restarts"), "with --nearest --attack wrm, which looks for the largest gamma"
)


@command("attack", panel="Attack", panels=ATTACK_PANELS)
@argument("run", type=PATH)
@options_of(AttackOptions)
@option(
    "--nearest",
    is_flag=True,
    panel="Attack",
    help="Search for the nearest error of each sample by a minimum-norm attack; with --attack wrm, for the "
    "largest gamma at which wrm makes an error.",
)
@model_option
@run_data_option
@json_option
@click.pass_context
def attack(
    context: click.Context,
    /,
    run: Path,
    nearest: bool,
    model: str | None,
    run_data: str | None,
    as_json: bool,
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

    RUN is a complete run directory. The result of an attack is attained: a lower bound on the worst case,
    never a certificate.
    """
    from certus.cli.attack_support import (
        check_places,
        choose_samples,
        describe,
        frozen_words,
        make_rows,
        make_trials,
        run_attacks,
        show_results,
        unused_in_attacks,
    )
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run

    typed = AttackOptions(**options)
    check_places(typed)
    opened = RunDirectory.open(run, data=run_data)
    refuse_unused(context, unused_by_network(opened))
    by_penalty = typed.attacks == ("wrm",)
    if nearest:
        allowed = not typed.attacks or by_penalty
        require(allowed, "attack", "be left out with --nearest, or be wrm", ", ".join(typed.attacks))
        refuse_unused(context, _AT_ANY_DISTANCE | (_OF_PENALTY if by_penalty else {}))
        as_rows = typed.output is not None and typed.output.suffix.lower() in (".tex", ".csv")
        require(not as_rows, "--output", "be a JSON file with --nearest, which has no rows", typed.output)
    else:
        refuse_unused(context, unused_in_attacks(typed))
    trained = open_run(opened, model=model)
    refuse_unused(context, unused_by_data(trained.data))
    chosen = choose_samples(trained, typed)
    if nearest:
        _attack_nearest(trained, chosen, typed, by_penalty=by_penalty, as_json=as_json)
        return
    trials = make_trials(trained, typed, models=[] if model is None else [model])
    outcomes = run_attacks(trained, chosen.data, trials, typed.seed)
    content = {
        "run": str(run),
        **describe(trained, chosen, typed.seed),
        "rows": make_rows(outcomes, trained.cost),
    }
    last = "Attained: the attack found such points, so the worst case is at least this bad."
    last += frozen_words(chosen.data)
    show_results(
        typed, {str(run): outcomes}, content, chosen.words, trained.data.domain, last, as_json=as_json
    )


def _attack_nearest(
    trained: LoadedRun, chosen: Subset, typed: AttackOptions, *, by_penalty: bool, as_json: bool
) -> None:
    """Search for the nearest errors, or the largest penalties, write them, and print their quantiles."""
    import torch

    from certus.attacks.minimum_norm import largest_penalty, minimum_norm_attack
    from certus.cli.attack_support import clipping, describe, frozen_words, read_norm, save_result
    from certus.domains import Unbounded

    data, norm = chosen.data, typed.norm or "inf"
    settings: dict[str, Any] = {"steps": 20 if typed.steps is None else typed.steps}
    settings["restarts"] = 1 if typed.restarts is None else typed.restarts
    domain = trained.data.domain if typed.clip else Unbounded()
    cost = _movable_cost(trained, data) if by_penalty else trained.cost
    if not by_penalty:
        for name, count in settings.items():
            require_count(f"--{name}", count)
    penalties, distances = [], []
    with counting_bar(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            if by_penalty:
                penalty = largest_penalty(trained.loss, batch.inputs, batch.targets, cost=cost, domain=domain)
                penalties.append(penalty.gamma)
                distances.append(penalty.distance)
            else:
                error = minimum_norm_attack(
                    trained.loss,
                    batch.inputs,
                    batch.targets,
                    norm=read_norm(norm),
                    domain=domain,
                    seed=typed.seed,
                    free=None if data.encoding is None else data.encoding.attackable,
                    **settings,
                )
                distances.append(error.distance)
            advance(len(batch))
    columns = {"nearest error within": sorted(torch.cat(distances).double().tolist())}
    content = {"run": str(trained.run.path), **describe(trained, chosen, typed.seed)}
    content |= {"clipped": typed.clip} if by_penalty else {"norm": norm, "clipped": typed.clip, **settings}
    if by_penalty:
        gammas = torch.cat(penalties).double().tolist()
        content["gammas"] = [value if value < math.inf else None for value in gammas]  # None: wrong as it is
        columns = {"an error at gamma of at least": sorted(gammas, reverse=True)} | columns
    # None: no error was found
    content["distances"] = [
        value if value < math.inf else None for value in torch.cat(distances).double().tolist()
    ]
    try:
        save_result(typed.output, content)
    finally:  # shown even if it cannot be written
        if as_json:
            print_json(content)
        else:
            table = make_table("share of samples", *columns)
            for percent in (5, 25, 50, 75, 95):
                last = -(-percent * len(data) // 100) - 1  # rounded up
                table.add_row(f"{percent}%", *(number(values[last]) for values in columns.values()))
            console.print(table)
            where = clipping(typed.clip, trained.data.domain)
            words = f"{chosen.words}; norm {norm}, {where}. Attained: an error was found at these distances; "
            words += "the nearest error may be closer."
            if by_penalty:
                words = f"{chosen.words}; {trained.cost}, {where}. Attained: wrm made an error of these "
                words += "samples at this gamma; it may be possible at a larger one."
            console.print(words + frozen_words(data))


def _movable_cost(trained: LoadedRun, data: Samples) -> Cost:
    """Return the cost of the run, infinite for columns that attacks leave alone."""
    from certus.costs.masked import masked_to

    if data.encoding is None or data.encoding.attackable is None:
        return trained.cost
    cost = masked_to(trained.cost, data.encoding.attackable)
    if cost is None:
        raise ArgumentError(f"`run` must have a number without gaps to move; got {trained.data.name}.")
    return cost
