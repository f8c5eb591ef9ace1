"""``certus distance``: transport distance between two data sets, and the certificate of a run at it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._format import at_least, at_most
from certus.cli import options as cli
from certus.cli.output import console, messages, print_json
from certus.display.text import make_table, number
from certus.errors import ArgumentError, require, require_number
from certus.runs.settings import CertifySettings
from certus.storage.files import plain_json
from certus.table_options import TABLES, TableOptions

if TYPE_CHECKING:
    from certus.certificates.transport import Shift
    from certus.data import Samples
    from certus.datasets import SplitDataset
    from certus.runs.loaded_run import LoadedRun
    from certus.runs.shifts import MovedFeature


@cli.command("distance")
@cli.argument("first")
@cli.argument("second")
@cli.new_rows_options
@cli.panel("Run and output")
@cli.option("--label-cost", type=float, show_default="labels do not change", help="Cost of changing a label.")
@cli.option("--run", type=cli.PATH, help="Run directory to certify at the measured distance.")
@cli.option("--samples", type=int, show_default="all", help="Number of samples of each, drawn at random.")
@cli.option("--seed", default=0, help="Seed of the drawn samples, the halves and the blocks.")
@cli.model_option
@cli.run_data_option
@cli.json_option
def distance(
    first: str,
    second: str,
    label_cost: float | None,
    run: Path | None,
    samples: int | None,
    seed: int,
    model: str | None,
    run_data: str | None,
    as_json: bool,
    **reading: str | None,
) -> None:
    """Measure the transport distance between two data sets.

    \b
    certus distance employment@test employment@2018 --label-cost 1
    certus distance wine@test wine@train --label-cost 1 --run runs/wine

    FIRST and SECOND are data sets as for certus train, or DATA@SPLIT such as employment@2018. The distance is
    in the units of the first, or of the run.
    """
    import torch

    from certus.certificates.consistency import check_observed
    from certus.certificates.transport import estimated_distance, transport_distance
    from certus.data import Subset, halves
    from certus.datasets import load
    from certus.runs.certification import certify_run
    from certus.runs.factory import default_cost
    from certus.runs.shifts import shifted_features

    if run is None:
        alone = {"model": "it names the network of a run", "run_data": "it locates the data of a run"}
        cli.refuse_unused({option: f"without --run: {why}" for option, why in alone.items()})
    trained = None if run is None else cli.TypedRun(run, model, run_data).load()
    sources = {}
    for argument, text in (("first", first), ("second", second)):
        spec, at, name = text.rpartition("@")
        sources[argument] = (spec, name) if at else (text, "all")
    spec, name = sources["first"]
    with _about("first"):
        options = cli.reading_of_new_rows(
            TableOptions() if trained is None else trained.settings.table, reading
        )
        tabular = trained is None and spec.startswith(TABLES)
        data = load(spec, options=options if tabular else None) if trained is None else trained.data
    cli.refuse_unused(cli.unused_without_labels(data))
    if label_cost is not None:
        require_number("label_cost", label_cost)
    require(samples is None or samples >= 2, "samples", "be at least 2", samples)
    chosen = []
    for argument, source in sources.items():
        with _about(argument):
            part = _read(data, *source, trained, spec, options)
        chosen.append(Subset.of(part, "@".join(source), samples, seed=seed, stratify=True))
    here, there = (part.data for part in chosen)
    unlabelled = data.classes is not None and there.targets.is_floating_point()
    if unlabelled:
        cli.refuse_unused({"label_cost": f"for {second}, which has no labels"})
        here = replace(here, targets=torch.zeros(len(here)))
    if trained is not None:
        rule = "freeze no column: rows that differ in one are infinitely far apart (measure without --run)"
        require(trained.cost.finite, "run", rule, f"the feature costs {trained.settings.feature_cost}")
        outside = int((~trained.domain.contains(there.inputs)).sum())
        rule = f"lie in the domain of the run, {trained.domain}, for its certificate to apply"
        require(outside == 0, "second", rule, f"{outside} of {len(there)} samples of {second} outside")
    cost = default_cost(data) if trained is None else trained.cost
    measured = transport_distance(here, there, cost, label_cost=label_cost, seed=seed)
    # One half of the first against the other: the distance that is due to chance.
    half, rest = halves(here, seed)
    chance = transport_distance(half, rest, cost, label_cost=label_cost, seed=seed) if len(half) else None
    estimate = estimated_distance(here, there, cost, label_cost=label_cost, seed=seed)
    moved = shifted_features(data, here.inputs, there.inputs, cost)
    bracket: dict[str, Any] | None = None
    if trained is not None and measured.reason is None and not unlabelled:
        messages.print(f"Certifying {run} on {first} at rho = {measured.high:.4g}.")
        other = None if spec == trained.settings.data else spec
        settings = CertifySettings(
            (measured.high,), label_cost=label_cost, data=other, split=name, samples=samples, seed=seed
        )
        certificate = certify_run(trained, settings)
        assert certificate.source is not None  # it was just made
        loss, error = certificate.source.evaluate(there)  # the second sample, which lies within rho
        check_observed(certificate, measured.high, loss, error, second)
        bracket = asdict(certificate.bracket(measured.high)) | {"loss_met": loss, "error_met": error}
        bracket |= {"evidence": certificate.evidence, "assumptions": list(certificate.assumptions)}
    if as_json:
        content: dict[str, Any] = {"first": first, "second": second}
        content |= {"rows": [part.as_json() for part in chosen], "distance": plain_json(measured)}
        content |= {"chance": plain_json(chance), "bracket": bracket, "estimate": estimate}
        print_json(content | {"features": [asdict(feature) for feature in moved]})
        return
    if samples is not None:
        words = ", and ".join(part.words for part in chosen)
        console.print(f"Measured on {words}. Between all rows the transport cost is usually smaller.")
    _show_moved(moved, estimate, second)
    _show(first, second, measured, chance, data, bracket)


def _show(
    first: str,
    second: str,
    measured: Shift,
    chance: Shift | None,
    data: SplitDataset,
    bracket: dict[str, Any] | None,
) -> None:
    from certus.bounds.smoothness import format_assumptions

    if measured.reason is not None:
        console.print(
            f"{first} and {second} are infinitely far apart: {measured.reason}. With --label-cost, "
            "labels may change at a finite price."
        )
        return
    how = "computed exactly"
    if not measured.exact:
        how = f"bounded by a coupling in {measured.blocks} blocks, standard error {measured.spread:.2g}"
    console.print(
        f"The transport cost between {first} and {second} is at least {at_least(measured.low)} and at most "
        f"{at_most(measured.high)} ({how}): a root mean square distance of at most "
        f"{at_most(measured.high**0.5)} ({data.units})."
    )
    if measured.labels is not None:
        console.print(f"Label shares differ by {measured.labels:.4f} in total variation.")
    if chance is not None and chance.reason is None:
        console.print(
            f"Between two random halves of {first} it is at most {number(chance.high)}: that much comes from "
            "chance and sample size alone."
        )
    if bracket is None:
        return
    sides, met = [], []
    for name, limit in (("loss", math.log(data.classes or math.inf)), ("error", 1.0)):
        low, high = bracket[f"{name}_low"], bracket[f"{name}_high"]
        if high is not None:
            vacuous = " (vacuous)" if high >= limit else ""
            sides.append(f"{name} at least {at_least(low)}, at most {at_most(high)}{vacuous}")
            met.append(f"{name} {bracket[f'{name}_met']:.4f}")
    console.print(
        f"Worst case over all distributions within rho = {bracket['rho']:.4g} of {first}: "
        f"{'; '.join(sides)}. At least: attained; at most: {bracket['evidence']}."
    )
    if bracket["assumptions"]:
        console.print(format_assumptions(tuple(bracket["assumptions"])))
    console.print(
        f"{second} is one of these distributions and has {', '.join(met)}. The bound is for the worst of "
        "them, so it is usually far above that; and finite samples are usually farther apart than the "
        "populations that they were drawn from."
    )


@contextmanager
def _about(argument: str) -> Iterator[None]:
    """Name the argument in refusals of its data."""
    try:
        yield
    except ArgumentError as reason:
        raise ArgumentError(re.sub("`(spec|data|split)`", f"`{argument}`", str(reason))) from reason


def _read(
    data: SplitDataset, spec: str, name: str, trained: LoadedRun | None, own: str, options: TableOptions
) -> Samples:
    """Return a split of ``data``, or of another data set in its units."""
    import torch

    from certus.data import Samples
    from certus.datasets.new_data import load_like, new_rows, new_table
    from certus.runs.loaded_run import named_split

    if spec == (own if trained is None else trained.settings.data):
        return named_split(data, name)
    if data.recipe is not None and spec.startswith(TABLES):
        rows = new_rows(data, new_table(data, spec, options), options)
        for note in rows.notes:
            messages.print(note)
        if rows.targets is None:
            require(name == "all", "second", "be all of a table without a target column", f"{spec}@{name}")
            messages.print(f"{spec} has no target column: inputs alone are compared, nothing is certified.")
            return Samples(rows.inputs, torch.zeros(len(rows.inputs)), encoding=data.train.encoding)
    seed, target = (0, None) if trained is None else (trained.settings.seed, trained.settings.target)
    return named_split(load_like(data, spec, seed=seed, target=target, options=options), name)


_MOST = 10  # features that are printed


def _show_moved(moved: list[MovedFeature], estimate: float | None, second: str) -> None:
    """Print a table of the most moved features, and the estimate."""
    if moved:
        rows = []
        for feature in moved[:_MOST]:
            away = f"{feature.moved:.3g} deviations"
            if feature.before is None:
                away = f"{feature.moved:.1%} of rows"
            means = number(feature.before), number(feature.after)
            rows.append((feature.feature, away, number(feature.cost, 3), *means))
        heads = ("feature", "moved by (rms)", "cost", "mean before", "after")
        console.print(make_table(*heads, rows=rows))
        total = sum(feature.cost for feature in moved)
        more = f" ({len(moved) - _MOST} more moved less)" if len(moved) > _MOST else ""
        console.print(
            f"The transport cost between the samples is at least {at_least(total)}, the sum over all "
            f"features{more} (proven). rms: root mean square over the rows."
        )
    if estimate is not None:
        console.print(
            f"The transport cost between the populations is about {number(max(0.0, estimate), 3)} "
            f"(estimated, from halves of both samples). The estimate is too small if the spread of {second} "
            "has changed: do not use it as the rho of a certificate."
        )
