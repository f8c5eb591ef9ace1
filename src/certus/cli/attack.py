"""``certus attack``: the loss and error of a model under attack, and the nearest error of each sample."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certus._progress import counting_bar
from certus.cli.options import AttackOptions, Json, ModelFile, RunData, options_of
from certus.cli.output import console, messages, print_json
from certus.display.text import make_table, number
from certus.errors import ArgumentError, require_count

if TYPE_CHECKING:
    from certus.data import Subset
    from certus.runs.loaded_run import LoadedRun


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
    from certus.cli.attack_support import (
        check_places,
        describe,
        frozen_words,
        idle_in_attacks,
        make_rows,
        make_trials,
        run_attacks,
        some_samples,
        tell,
    )
    from certus.cli.options import of_data, of_network, refuse_idle
    from certus.errors import require
    from certus.runs.directory import RunDirectory
    from certus.runs.loaded_run import open_run

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
    trained = open_run(opened, model=model)
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


def show_nearest(trained: LoadedRun, chosen: Subset, asked: AttackOptions, *, as_json: bool) -> None:
    """Look for them, write them and print their quantiles."""
    import torch

    from certus.attacks.minimum_norm import minimum_norm_attack
    from certus.cli.attack_support import clipping, describe, frozen_words, read_norm, save_result
    from certus.domains import Unbounded

    norm, clip, seed = asked.norm or "inf", asked.clip, asked.seed
    options: dict[str, Any] = {"steps": 20 if asked.steps is None else asked.steps}
    options["restarts"] = 1 if asked.restarts is None else asked.restarts
    for name, count in options.items():
        require_count(f"--{name}", count)
    domain = trained.data.domain if clip else Unbounded()
    data, distances = chosen.data, []
    with counting_bar(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            found = minimum_norm_attack(
                trained.loss,
                batch.inputs,
                batch.targets,
                norm=read_norm(norm),
                domain=domain,
                seed=seed,
                free=None if data.encoding is None else data.encoding.attackable,
                **options,
            )
            distances.append(found.distance)
            advance(len(batch))
    lengths = torch.cat(distances).double().tolist()
    about = {"run": str(trained.run.path), **describe(trained, chosen, seed), "norm": norm}
    about |= {"clipped": clip, **options}
    about["distances"] = [value if value < math.inf else None for value in lengths]
    try:
        save_result(asked.output, about)
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            _print_nearest(lengths)
            kept = clipping(clip, trained.data.domain)
            console.print(
                f"{chosen.words}; norm {norm}, {kept}. Attained: an error was found at these distances; the "
                f"nearest error may be closer.{frozen_words(data)}"
            )


def _print_nearest(lengths: list[float]) -> None:
    shown = make_table("share of samples", "nearest error within")
    for percent in (5, 25, 50, 75, 95):
        reached = -(-percent * len(lengths) // 100)  # so many samples, rounded up
        shown.add_row(f"{percent}%", number(sorted(lengths)[reached - 1]))
    console.print(shown)


def show_penalties(trained: LoadedRun, chosen: Subset, asked: AttackOptions, *, as_json: bool) -> None:
    """Look for them, write them and print their quantiles, the most fragile samples first."""
    import torch

    from certus.attacks.minimum_norm import largest_penalty
    from certus.cli.attack_support import clipping, describe, frozen_words, save_result
    from certus.costs.masked import masked_to
    from certus.domains import Unbounded

    domain = trained.data.domain if asked.clip else Unbounded()
    encoding, cost = chosen.data.encoding, trained.cost
    if encoding is not None and encoding.attackable is not None:
        moving = masked_to(cost, encoding.attackable)
        if moving is None:
            raise ArgumentError(f"`run` must have a number without gaps to move; got {trained.data.name}.")
        cost = moving
    penalties, distances = [], []
    with counting_bar(messages, f"attacking {trained.run.path}", len(chosen.data)) as advance:
        for start in range(0, len(chosen.data), 256):
            batch = chosen.data[start : start + 256]
            found = largest_penalty(trained.loss, batch.inputs, batch.targets, cost=cost, domain=domain)
            penalties.append(found.gamma)
            distances.append(found.distance)
            advance(len(batch))
    gammas, lengths = torch.cat(penalties).double().tolist(), torch.cat(distances).double().tolist()
    about = {"run": str(trained.run.path), **describe(trained, chosen, asked.seed), "clipped": asked.clip}
    about["gammas"] = [value if value < math.inf else None for value in gammas]  # None: wrong as it is
    about["distances"] = [value if value < math.inf else None for value in lengths]  # None: no error found
    try:
        save_result(asked.output, about)
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            _print_penalties(gammas, lengths)
            kept = clipping(asked.clip, trained.data.domain)
            console.print(
                f"{chosen.words}; {trained.cost}, {kept}. Attained: wrm made an error of these samples at "
                f"this gamma; it may be possible at a larger one.{frozen_words(chosen.data)}"
            )


def _print_penalties(gammas: list[float], lengths: list[float]) -> None:
    shown = make_table("share of samples", "an error at gamma of at least", "nearest error within")
    for percent in (5, 25, 50, 75, 95):
        reached = -(-percent * len(gammas) // 100) - 1  # so many samples, rounded up
        cells = (sorted(gammas, reverse=True)[reached], sorted(lengths)[reached])
        shown.add_row(f"{percent}%", *(number(value) for value in cells))
    console.print(shown)
