"""``certus attack``: the loss and error of a model under attack, and the nearest error of each sample."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from certus._names import NORMS
from certus._progress import counting_bar
from certus.cli import options as cli
from certus.cli.output import console, messages, print_json, print_table
from certus.display.text import number
from certus.errors import ArgumentError, require, require_count

if TYPE_CHECKING:
    from torch import Tensor

    from certus.costs import Cost
    from certus.data import Subset
    from certus.runs.loaded_run import LoadedRun

_AT_ANY_DISTANCE: dict[str, str | None] = dict.fromkeys(
    ("epsilon", "gamma", "plot", "relative", "step_size"), "with --nearest, which looks at any distance"
)
_OF_PENALTY: dict[str, str | None] = dict.fromkeys(
    ("norm", "steps", "restarts"), "with --nearest --attack wrm, which looks for the largest gamma"
)


@cli.command("attack")
@cli.options_of(cli.AttackOptions)
@cli.option(
    "--nearest",
    is_flag=True,
    panel="Attack",
    help="Search for the nearest error of each sample by a minimum-norm attack; with --attack wrm, for the "
    "largest gamma at which wrm makes an error.",
)
@cli.takes_run
@cli.json_option
def attack(run: cli.TypedRun, nearest: bool, as_json: bool, **options: Any) -> None:
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
    from certus.cli import attack_support as support

    typed = cli.AttackOptions(**options)
    support.check_places(typed)
    by_penalty = typed.attacks == ("wrm",)
    if nearest:
        allowed = not typed.attacks or by_penalty
        require(allowed, "attack", "be left out with --nearest, or be wrm", ", ".join(typed.attacks))
        cli.refuse_unused(_AT_ANY_DISTANCE | (_OF_PENALTY if by_penalty else {}))
        as_rows = typed.output is not None and typed.output.suffix.lower() in (".tex", ".csv")
        require(not as_rows, "--output", "be a JSON file with --nearest, which has no rows", typed.output)
    else:
        cli.refuse_unused(support.unused_in_attacks(typed))
    trained = run.load()
    cli.refuse_unused(cli.unused_by_data(trained.data))
    chosen = support.choose_samples(trained, typed)
    content = {"run": str(run.path), **support.describe(trained, chosen, typed.seed)}
    if nearest:
        _attack_nearest(trained, chosen, typed, content, by_penalty=by_penalty, as_json=as_json)
        return
    trials = support.make_trials(trained, typed, models=[] if run.model is None else [run.model])
    outcomes = support.run_attacks(trained, chosen.data, trials, typed.seed)
    content["rows"] = support.make_rows(outcomes, trained.cost)
    last = "Attained: the attack found such points, so the worst case is at least this bad."
    results = {str(run.path): outcomes}
    support.show_results(typed, results, content, chosen, trained.data.domain, last, as_json=as_json)


def _attack_nearest(
    trained: LoadedRun,
    chosen: Subset,
    typed: cli.AttackOptions,
    content: dict[str, Any],
    *,
    by_penalty: bool,
    as_json: bool,
) -> None:
    """Search for the nearest errors, or the largest penalties, write them, and print their quantiles."""
    from certus.attacks.minimum_norm import largest_penalty, minimum_norm_attack
    from certus.cli.attack_support import clipping, frozen_words, save_result
    from certus.domains import Unbounded

    data, norm = chosen.data, typed.norm or "inf"
    settings: dict[str, Any] = {
        "steps": 20 if typed.steps is None else typed.steps,
        "restarts": 1 if typed.restarts is None else typed.restarts,
    }
    for name, count in settings.items():
        require_count(f"--{name}", count)
    free = None if data.encoding is None else data.encoding.attackable
    domain = trained.data.domain if typed.clip else Unbounded()
    cost = _movable_cost(trained, free) if by_penalty else trained.cost
    penalties, distances = [], []
    with counting_bar(messages, f"attacking {trained.run.path}", len(data)) as advance:
        for start in range(0, len(data), 256):
            batch = data[start : start + 256]
            if by_penalty:
                penalty = largest_penalty(trained.loss, batch.inputs, batch.targets, cost=cost, domain=domain)
                penalties += penalty.gamma.double().tolist()
                distances += penalty.distance.double().tolist()
            else:
                error = minimum_norm_attack(
                    trained.loss,
                    batch.inputs,
                    batch.targets,
                    norm=NORMS[norm],
                    domain=domain,
                    seed=typed.seed,
                    free=free,
                    **settings,
                )
                distances += error.distance.double().tolist()
            advance(len(batch))
    columns = {"nearest error within": sorted(distances)}
    where = clipping(typed.clip, trained.data.domain)
    if by_penalty:
        content["clipped"] = typed.clip
        content["gammas"] = _finite(penalties)  # None: wrong without a move
        columns = {"an error at gamma of at least": sorted(penalties, reverse=True)} | columns
        caption = f"{trained.cost}, {where}. Attained: wrm made an error of these samples at this gamma; "
        caption += "it may be possible at a larger one."
    else:
        content |= {"norm": norm, "clipped": typed.clip, **settings}
        caption = f"norm {norm}, {where}. Attained: an error was found at these distances; the nearest error "
        caption += "may be closer."
    content["distances"] = _finite(distances)  # None: no error was found
    try:
        save_result(typed.output, content)
    finally:  # shown even if it cannot be written
        if as_json:
            print_json(content)
        else:
            lasts = {percent: -(-percent * len(data) // 100) - 1 for percent in (5, 25, 50, 75, 95)}
            print_table(
                ("share of samples", *columns),
                [
                    (f"{percent}%", *(number(values[last]) for values in columns.values()))
                    for percent, last in lasts.items()
                ],
            )
            console.print(f"{chosen.words}; {caption}{frozen_words(data)}")


def _finite(values: list[float]) -> list[float | None]:
    return [value if value < math.inf else None for value in values]


def _movable_cost(trained: LoadedRun, free: Tensor | None) -> Cost:
    """Return the cost of the run, infinite for columns that attacks leave alone."""
    from certus.costs.masked import masked_to

    cost = trained.cost if free is None else masked_to(trained.cost, free)
    if cost is None:
        raise ArgumentError(f"`run` must have a number without gaps to move; got {trained.data.name}.")
    return cost
