"""``certus shift``: how far one data set is from another, and what a run is certified to lose by it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from certus.certificates.held_out import named_split
from certus.certificates.runs import CertifySettings, certify_run
from certus.certificates.shift import Shift, transport_distance
from certus.cli.attacking import ModelFile
from certus.cli.output import Json, console, messages, number, print_json
from certus.data import DataSet, Split, load
from certus.errors import ArgumentError, require
from certus.runs.directory import RunDirectory
from certus.runs.execute import natural_cost
from certus.runs.trained import open_trained


def shift(
    first: Annotated[str, typer.Argument(help="DATA@SPLIT, such as employment@test.")],
    second: Annotated[str, typer.Argument(help="DATA@SPLIT, such as employment@2018.")],
    label_price: Annotated[
        float | None, typer.Option(help="What changing a label costs; else labels stay.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="Certify this run at the distance found.")] = None,
    samples: Annotated[int | None, typer.Option(help="How many samples of each, from the first.")] = None,
    seed: Annotated[int, typer.Option(help="Of the order in which large samples are cut.")] = 0,
    model: ModelFile = None,
    as_json: Json = False,
) -> None:
    """Measure the transport distance between two data sets, in the units that certificates use.

    \b
    certus shift employment@test employment@2018 --label-price 1
    certus shift employment@test employment@2018 --label-price 1 --run runs/jobs
    """
    data, here = _read(first)
    there = _read(second)[1]
    if samples is not None:
        require(samples >= 2, "samples", "be at least 2", samples)
        here, there = here[:samples], there[:samples]
    trained = None if run is None else open_trained(RunDirectory.open(run), model=model)
    cost = natural_cost(data) if trained is None else trained.cost
    found = transport_distance(here, there, cost, label_price=label_price, seed=seed)
    half = len(here) // 2
    # One half of the first against the other: what chance alone makes of samples of this kind.
    chance = transport_distance(here[:half], here[half:], cost, label_price=label_price, seed=seed)
    bracket: dict[str, Any] | None = None
    if trained is not None and found.reason is None:
        messages.print(f"Certifying {run} at rho = {found.high:.4g}.")
        settings = CertifySettings(rho=(found.high,), label_price=label_price, samples=samples)
        bracket = asdict(certify_run(trained, settings).bracket(found.high))
    if as_json:
        plain = {name: _finite(asdict(value)) for name, value in (("shift", found), ("chance", chance))}
        print_json({"first": first, "second": second, **plain, "bracket": bracket})
        return
    _show(first, second, found, chance, data, bracket)


def _show(
    first: str, second: str, found: Shift, chance: Shift, data: DataSet, bracket: dict[str, Any] | None
) -> None:
    if found.reason is not None:
        console.print(f"{first} and {second} are infinitely far apart: {found.reason}. Give --label-price.")
        return
    how = (
        "exactly"
        if found.exact
        else f"by a coupling in {found.blocks} blocks, standard error {found.spread:.2g}"
    )
    console.print(
        f"W_c({first}, {second}): at least {found.low:.4g}, at most {found.high:.4g} ({how}); "
        f"a distance of at most {found.high**0.5:.3g} {data.units}."
    )
    if found.labels is not None:
        console.print(f"Label shares differ by {found.labels:.4f} in total variation.")
    console.print(
        f"Between the two halves of {first} it is at most {number(chance.high)}: so much is "
        "chance and sample size."
    )
    if bracket is None:
        return
    console.print(
        f"Over all distributions within rho = {bracket['rho']:.4g} of this run's test data: loss at least "
        f"{bracket['loss_low']:.4f}, at most {bracket['loss_high']:.4f}"
        + (
            f"; error at least {bracket['error_low']:.4f}, at most {bracket['error_high']:.4f}."
            if bracket["error_high"] is not None
            else "."
        )
    )
    console.print(
        "The second sample is one of these distributions if the first is the test data; the bound is on the "
        "worst of them, not on the one that came."
    )


def _read(text: str) -> tuple[DataSet, Split]:
    """``employment@2018``: a data set and one of its splits."""
    spec, at, name = text.rpartition("@")
    if not at:
        raise ArgumentError(f"`data` must name a split, such as {text}@test; got {text!r}.")
    data = load(spec)
    return data, named_split(data, name)


def _finite(content: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value == float("inf") else value for name, value in content.items()}
