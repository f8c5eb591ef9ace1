"""``certus sensitivity``: the worst case if a single feature of a table moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._format import at_least, at_most
from certus.cli import options as cli
from certus.cli.output import console, messages, print_json, require_picture
from certus.display.text import number
from certus.errors import require, require_number

if TYPE_CHECKING:
    from certus.data import Subset
    from certus.runs.factory import Feature
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.sensitivity import FeatureSensitivity

_CATEGORIES = "A category changes in some rows instead: its rho is their share times the price of a change. "


@cli.command("sensitivity")
@cli.option(
    "--feature",
    "names",
    metavar="NAME",
    multiple=True,
    show_default="all",
    help="Column of the table to move; may be repeated.",
)
@cli.option(
    "--share",
    default=0.1,
    help="Root mean square move of each feature, as a share of its standard deviation.",
)
@cli.option(
    "--by",
    type=float,
    help="Root mean square move of the --feature in its units; of a category, the share of rows that change.",
)
@cli.option(
    "--split", default="test", help="Samples to move: test, calibration, train, all, or a named later sample."
)
@cli.option("--samples", default=100, help="Number of rows, drawn at random; 0 for all.")
@cli.option("--seed", default=0, help="Seed of the drawn rows.")
@cli.option("--plot", type=cli.PATH, help="Picture of the table to write, such as sensitivity.png.")
@cli.takes_run
@cli.json_option
def sensitivity(
    run: cli.TypedRun,
    names: tuple[str, ...],
    share: float,
    by: float | None,
    split: str,
    samples: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Rank the features of a table by the loss if one of them moves.

    \b
    certus sensitivity runs/people
    certus sensitivity runs/people --share 0.2 --plot sensitivity.png
    certus sensitivity runs/people --feature age --by 2
    certus sensitivity runs/people --feature town --by 0.1

    RUN is a run directory of a table. Each feature moves alone, and labels stay the same. The worst case is
    bracketed: at least is attained, at most is proven.
    """
    from certus.runs.factory import features_of, named_feature
    from certus.runs.sensitivity import choose_subset

    if by is None:
        require_number("--share", share)
    else:
        require(len(names) == 1, "--by", "be given with one --feature", f"{len(names)} of them")
        cli.refuse_unused(dict.fromkeys(("share", "plot"), "with --by, which moves one feature"))
    if plot is not None:
        require_picture("--plot", plot)
    trained = run.load()
    features = features_of(trained.data)  # refuses data that are not a table
    if names:
        features = [named_feature(trained.data, name) for name in dict.fromkeys(names)]
    chosen = choose_subset(trained, split, samples or None, seed)
    if by is not None:
        _show_move(trained, chosen, features[0], by, as_json=as_json)
    else:
        _show_ranking(trained, chosen, features, share, plot, as_json=as_json)


def _show_ranking(
    trained: LoadedRun,
    chosen: Subset,
    features: Sequence[Feature],
    share: float,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Move every feature alone by a share of its spread, and rank the features by the worst case."""
    from certus.display.canvas import save_figure
    from certus.display.figures import sensitivity_figure
    from certus.display.tables import sensitivity_table
    from certus.runs.sensitivity import check_move_cost, move_feature, spread_cost
    from certus.training.metrics import clean_metrics

    results = []
    for feature in features:
        rho = spread_cost(trained.data, chosen.data, feature, share)
        if rho > 0:  # a category of one value has no spread
            messages.print(f"Moving {feature.name}.")
            rho = check_move_cost("--share", share, rho)
            results.append(move_feature(trained, chosen.data, feature, rho))
    require(len(results) > 0, "run", "have a feature that varies", "none")
    results.sort(key=lambda result: result.rank, reverse=True)
    now = clean_metrics(trained.loss, chosen.data)
    if plot is not None:
        save_figure(sensitivity_figure(results, now, share), plot)
    if as_json:
        content = {"run": str(trained.run.path), "share": share, "rows": chosen.as_json(), "now": now}
        print_json(content | {"features": [_as_json(result) for result in results]})
        return
    console.print(sensitivity_table(results))
    words = ", ".join(f"{name} {number(value)}" for name, value in now.items())
    console.print(
        f"Each feature moves alone, by a root mean square of {share:g} of its standard deviation, on "
        f"{chosen.words}. {_CATEGORIES if any(result.feature.category for result in results) else ''}"
        f"Unmoved: {words}. At least: attained; at most: {results[0].evidence}."
    )


def _show_move(trained: LoadedRun, chosen: Subset, feature: Feature, by: float, *, as_json: bool) -> None:
    """Move one feature by an amount in its units."""
    from certus.runs.sensitivity import cost_of_moving, move_feature
    from certus.training.metrics import clean_metrics

    rho, changed = cost_of_moving(trained.data, feature, by), 0
    if feature.category:
        changed = math.floor(round(by * len(chosen.data), 9))  # whole rows; 0.29 · 100 is 28.999…
        rho = changed / len(chosen.data)
    result = move_feature(trained, chosen.data, feature, rho)
    now = clean_metrics(trained.loss, chosen.data)
    if as_json:
        content = {"run": str(trained.run.path), "by": by, "rows": chosen.as_json(), "now": now}
        print_json(content | _as_json(result))
        return
    how = f"{feature.name} moves by a root mean square of {by:g}"
    if feature.category:
        how = f"{by:.1%} of the rows ({changed} of {len(chosen.data)}) change {feature.name}"
    bracket = result.bracket
    sides = []
    if bracket.error_low is not None and bracket.error_high is not None:
        sides.append(("error", bracket.error_low, bracket.error_high, 1 - now["accuracy"]))
    sides.append(("loss", bracket.loss_low, bracket.loss_high, now["loss"]))
    for what, low, high, before in sides:
        console.print(
            f"If {how}, the {what} can reach {at_least(low)} (attained) and cannot exceed {at_most(high)} "
            f"({result.evidence}); unmoved, it is {number(before)}."
        )
    console.print(f"About {chosen.words}; no other feature moves, and labels stay the same.")


def _as_json(result: FeatureSensitivity) -> dict[str, Any]:
    return {"feature": result.feature.name, "evidence": result.evidence, **asdict(result.bracket)}
