"""``certus features`` and ``certus whatif``: the worst case if a single feature moves."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certus._format import at_least, at_most
from certus.cli.options import Json, ModelFile, RunData, of_network, refuse_idle
from certus.cli.output import console, messages, print_json, require_picture
from certus.display.text import number
from certus.errors import require, require_number

if TYPE_CHECKING:
    from certus.data import Subset
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.sensitivity import FeatureSensitivity


RunArgument = Annotated[Path, typer.Argument(help="A run directory, trained on a table.")]

SplitOption = Annotated[str, typer.Option(help="test, calibration, train, all, or a later sample.")]

SampleCount = Annotated[int | None, typer.Option(help="How many rows, chosen by the seed; all if 0.")]

SampleSeed = Annotated[int, typer.Option(help="Chooses them.")]


def features(
    context: typer.Context,
    run: RunArgument,
    share: Annotated[float, typer.Option(help="How far each moves, as a share of its spread.")] = 0.1,
    split: SplitOption = "test",
    samples: SampleCount = 100,
    seed: SampleSeed = 0,
    plot: Annotated[Path | None, typer.Option(help="Where to draw bars, such as features.png.")] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """List the features that a run is most fragile in.

    \b
    certus features runs/people
    certus features runs/people --share 0.2 --plot fragile.png

    Each moves alone, by a tenth of its spread in root mean square.
    """

    list_features(context, run, share, split, samples or None, seed, plot, model, run_data, as_json=as_json)


def whatif(
    context: typer.Context,
    run: RunArgument,
    feature: Annotated[str, typer.Option(help="A column of the table.")],
    by: Annotated[float, typer.Option(help="How far, in its units; of a category, a share of rows.")],
    split: SplitOption = "test",
    samples: SampleCount = 100,
    seed: SampleSeed = 0,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Say what happens to the error if one feature moves.

    \b
    certus whatif runs/people --feature age --by 2
    certus whatif runs/people --feature town --by 0.1
    """

    say_what_if(context, run, feature, by, split, samples or None, seed, model, run_data, as_json=as_json)


_CATEGORIES = "A category changes in some rows instead: its rho is their share times the price of a change. "


def list_features(
    context: typer.Context,
    run: Path,
    share: float,
    split: str,
    samples: int | None,
    seed: int,
    plot: Path | None,
    model: str | None,
    run_data: str | None,
    *,
    as_json: bool,
) -> None:
    """Move every feature alone, and sort them by what it may cost."""
    from certus.display.canvas import save_figure
    from certus.display.figures import sensitivity_figure
    from certus.display.tables import sensitivity_table
    from certus.losses import ModelLoss
    from certus.runs.factory import features_of
    from certus.runs.sensitivity import check_move_cost, move_feature, spread_cost
    from certus.training.metrics import clean_metrics

    require_number("--share", share)
    if plot is not None:
        require_picture("--plot", plot)
    trained, chosen = _opened(context, run, split, samples, seed, model, run_data)
    found = []
    for feature in features_of(trained.data):
        rho = spread_cost(trained.data, chosen.data, feature, share)
        if rho > 0:  # a category of one value has no spread
            messages.print(f"Moving {feature.name}.")
            rho = check_move_cost("--share", share, rho)
            found.append(move_feature(trained, chosen.data, feature, rho))
    require(len(found) > 0, "run", "have a feature that varies", "none")
    found.sort(key=lambda one: one.rank, reverse=True)
    now = clean_metrics(ModelLoss(trained.loss.model, trained.loss.criterion), chosen.data)
    if plot is not None:
        save_figure(sensitivity_figure(found, now, share), plot)
    if as_json:
        print_json(
            {
                "run": str(run),
                "share": share,
                "rows": chosen.as_json(),
                "now": now,
                "features": [_told(one) for one in found],
            }
        )
        return
    console.print(sensitivity_table(found))
    words = ", ".join(f"{name} {number(value)}" for name, value in now.items())
    console.print(
        f"Each feature moves alone, by a root mean square of {share:g} of its standard deviation, on "
        f"{chosen.words}. {_CATEGORIES if any(one.feature.category for one in found) else ''}"
        f"Unmoved: {words}. At least: attained; at most: {found[0].evidence}."
    )


def say_what_if(
    context: typer.Context,
    run: Path,
    name: str,
    by: float,
    split: str,
    samples: int | None,
    seed: int,
    model: str | None,
    run_data: str | None,
    *,
    as_json: bool,
) -> None:
    """One feature, moved by so much."""
    from certus.runs.factory import named_feature
    from certus.runs.sensitivity import cost_of_moving, move_feature
    from certus.training.metrics import clean_metrics

    trained, chosen = _opened(context, run, split, samples, seed, model, run_data)
    feature = named_feature(trained.data, name)
    rho, changed = cost_of_moving(trained.data, feature, by), 0
    if feature.category:
        changed = math.floor(round(by * len(chosen.data), 9))  # whole rows; 0.29 · 100 is 28.999…
        rho = changed / len(chosen.data)
    found = move_feature(trained, chosen.data, feature, rho)
    now = clean_metrics(trained.loss, chosen.data)
    if as_json:
        print_json({"run": str(run), "by": by, "rows": chosen.as_json(), "now": now, **_told(found)})
        return
    how = f"{name} moves by a root mean square of {by:g}"
    if feature.category:
        how = f"{by:.1%} of the rows ({changed} of {len(chosen.data)}) change {name}"
    bracket = found.bracket
    sides = []
    if bracket.error_low is not None and bracket.error_high is not None:
        sides.append(("error", bracket.error_low, bracket.error_high, 1 - now["accuracy"]))
    sides.append(("loss", bracket.loss_low, bracket.loss_high, now["loss"]))
    for what, low, high, before in sides:
        console.print(
            f"If {how}, the {what} can reach {at_least(low)} (attained) and cannot exceed {at_most(high)} "
            f"({found.evidence}); unmoved, it is {number(before)}."
        )
    console.print(f"About {chosen.words}; no other feature moves, and labels stay the same.")


def _opened(
    context: typer.Context,
    run: Path,
    split: str,
    samples: int | None,
    seed: int,
    model: str | None,
    run_data: str | None,
) -> tuple[LoadedRun, Subset]:
    from certus.runs.directory import RunDirectory
    from certus.runs.factory import features_of
    from certus.runs.loaded_run import open_run
    from certus.runs.sensitivity import choose_subset

    opened = RunDirectory.open(run, data=run_data)
    refuse_idle(context, of_network(opened))
    trained = open_run(opened, model=model)
    features_of(trained.data)  # refuses what is no table
    return trained, choose_subset(trained, split, samples, seed)


def _told(one: FeatureSensitivity) -> dict[str, Any]:
    return {"feature": one.feature.name, "evidence": one.evidence, **asdict(one.bracket)}
