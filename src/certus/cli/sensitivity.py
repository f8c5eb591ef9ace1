"""``certus sensitivity``: the worst case if a single feature of a table moves."""

from __future__ import annotations

import math
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
    from certus.runs.sensitivity import FeatureSensitivity, NetworkMoves
    from certus.runs.tree_sensitivity import TreeMoves


@cli.command("sensitivity")
@cli.option(
    "--feature",
    "names",
    metavar="NAME",
    multiple=True,
    show_default="all",
    help="Column of the table to move; may be repeated.",
)
@cli.option("--share", default=0.1, help="Root mean square move of each feature, in standard deviations.")
@cli.option(
    "--by",
    type=float,
    help="Root mean square move of the --feature in its units; of a category, the share of rows that change.",
)
@cli.option("--split", default="test", help="Rows to move: test, calibration, train, all, or a later sample.")
@cli.option("--samples", default=100, help="Number of rows, drawn at random; 0 for all.")
@cli.option("--seed", default=0, help="Seed of the drawn rows.")
@cli.option("--plot", type=cli.PATH, help="Picture of the table to write, such as sensitivity.png.")
@cli.option(
    "--allow-code", is_flag=True, help="Load a tree model that is a pickle or joblib file: it executes code."
)
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
    allow_code: bool,
    as_json: bool,
) -> None:
    """Rank the features of a table by the worst case of each alone.

    \b
    certus sensitivity runs/people
    certus sensitivity runs/people --share 0.2 --plot sensitivity.png
    certus sensitivity runs/people --feature age --by 2
    certus sensitivity runs/people --feature town --by 0.1

    RUN is a run directory of a table, or of a tree model, whose whole table is drawn from. Each feature moves
    alone, and labels stay the same. The worst case is bracketed: "at least" is attained, "at most" is proven.
    """
    from certus.display.canvas import save_figure
    from certus.display.figures import sensitivity_figure
    from certus.display.tables import sensitivity_table
    from certus.runs.sensitivity import check_move_cost
    from certus.runs.tree_run import is_tree_run

    if by is None:
        require_number("--share", share)
    else:
        require(len(names) == 1, "--by", "be given with one --feature", f"{len(names)} features")
        cli.refuse_unused(dict.fromkeys(("share", "plot"), "with --by, which moves one feature"))
    if plot is not None:
        require_picture("--plot", plot)
    moves: NetworkMoves | TreeMoves
    if is_tree_run(run.path):
        cli.refuse_unused(dict.fromkeys(("split", "model", "run_data"), "for the run of a tree model"))
        moves, chosen = _tree_moves(run, samples or None, seed, allow_code=allow_code)
    else:
        cli.refuse_unused({"allow_code": "for a network: it is for tree models"})
        moves, chosen = _network_moves(run, split, samples or None, seed)
    features = [moves.named(name) for name in dict.fromkeys(names)] or moves.features
    now = moves.now
    about = {"rows": chosen.as_json(), "now": now}
    if by is not None:
        feature, count = features[0], len(chosen.data)
        rho = moves.cost_of_moving(feature, by)
        how = f"{feature.name} moves by a root mean square of {by:g}"
        if feature.category:
            changed = math.floor(round(by * count, 9))  # whole rows; 0.29 · 100 is 28.999…
            rho, how = changed / count, f"{by:.1%} of the rows ({changed} of {count}) change {feature.name}"
        result = moves.move(feature, rho)
        if as_json:
            print_json({"run": str(run.path), "by": by, **about, **_as_json(result)})
            return
        bracket = result.bracket
        sides = [("loss", bracket.loss_low, bracket.loss_high, now["loss"])]
        if bracket.error_low is not None and bracket.error_high is not None:
            sides.insert(0, ("error", bracket.error_low, bracket.error_high, 1 - now["accuracy"]))
        for what, low, high, before in sides:
            console.print(
                f"If {how}, the {what} can reach {at_least(low)} (attained) and cannot exceed "
                f"{at_most(high)} ({result.evidence}); unmoved, it is {number(before)}."
            )
        console.print(f"About {chosen.words}; no other feature moves, and labels stay the same.")
        return
    results = []
    for feature in features:
        rho = moves.spread_cost(feature, share)
        if rho > 0:  # a category of one value has no spread
            messages.print(f"Moving {feature.name}.")
            results.append(moves.move(feature, check_move_cost("--share", share, rho)))
    require(len(results) > 0, "run", "have a feature that varies", "none")
    results.sort(key=lambda result: result.rank, reverse=True)
    if plot is not None:
        save_figure(sensitivity_figure(results, now, share), plot)
    if as_json:
        features_json = [_as_json(result) for result in results]
        print_json({"run": str(run.path), "share": share, **about, "features": features_json})
        return
    console.print(sensitivity_table(results))
    words = ", ".join(f"{name} {number(value)}" for name, value in now.items())
    categories = ""
    if any(result.feature.category for result in results):
        categories = "A category changes in some rows instead: its rho is their share times the price of a "
        categories += "change. "
    console.print(
        f"Each feature moves alone, by a root mean square of {share:g} of its standard deviation, on "
        f"{chosen.words}. {categories}Unmoved: {words}. At least: attained; at most: {results[0].evidence}."
    )


def _network_moves(
    run: cli.TypedRun, split: str, samples: int | None, seed: int
) -> tuple[NetworkMoves, Subset]:
    from certus.data import Subset
    from certus.runs.factory import features_of
    from certus.runs.loaded_run import named_split
    from certus.runs.sensitivity import NetworkMoves

    trained = run.load()
    features_of(trained.data)  # refuses data that are not a table
    rows, source = named_split(trained.data, split), f"{trained.data.name}@{split}"
    chosen = Subset.of(rows, source, samples, seed=seed, stratify=True)
    return NetworkMoves(trained, chosen.data), chosen


def _tree_moves(
    run: cli.TypedRun, samples: int | None, seed: int, *, allow_code: bool
) -> tuple[TreeMoves, Subset]:
    from certus.data import Samples, Subset
    from certus.runs.tree_run import load_tree_run
    from certus.runs.tree_sensitivity import TreeMoves

    trained = load_tree_run(run.path, allow_code=allow_code)
    rows = Samples(trained.rows, trained.targets)
    chosen = Subset.of(rows, trained.settings.data, samples, seed=seed, stratify=trained.right is not None)
    return TreeMoves(trained, chosen.data), chosen


def _as_json(result: FeatureSensitivity) -> dict[str, Any]:
    return {"feature": result.feature.name, "evidence": result.evidence, **asdict(result.bracket)}
