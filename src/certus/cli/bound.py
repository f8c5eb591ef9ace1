"""``certus bound``: bounds on the curvature of a network's loss, layer by layer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from certus.cli.options import Json, ModelFile, RunData, of_network, refuse_idle
from certus.cli.output import console, messages, print_json, require_picture
from certus.display.text import make_table, number
from certus.errors import CertusError, require_count
from certus.evidence import Evidence

if TYPE_CHECKING:
    from certus.bounds import SmoothnessBound


def bound(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    samples: Annotated[
        int, typer.Option(help="Test samples at which curvature is estimated; 0 for none.")
    ] = 256,
    seed: Annotated[int, typer.Option(help="Chooses these samples.")] = 0,
    plot: Annotated[Path | None, typer.Option(help="Where to draw; RUN/bound.png by default.")] = None,
    model: ModelFile = None,
    run_data: RunData = None,
    as_json: Json = False,
) -> None:
    """Bound the curvature of a network's loss, layer by layer.

    \b
    certus bound runs/digits
    certus bound runs/digits --json

    Above the gamma that follows from it, the inner problem is strongly concave at the final weights.
    """

    bound_run(context, run, samples, seed, plot, model, run_data, as_json=as_json)


_RULES = {
    "paper": "as the paper prints it",
    "corrected": "the paper's, corrected",
    "sum": "sum rule: kappa + D²/4",
    "max": "max rule",
}


def bound_run(
    context: typer.Context,
    run: Path,
    samples: int,
    seed: int,
    plot: Path | None,
    model: str | None,
    run_data: str | None,
    *,
    as_json: bool,
) -> None:
    """Bound, sample, draw and show."""
    import torch

    from certus.bounds import input_smoothness
    from certus.bounds.validation import smoothing_hint
    from certus.data import Subset
    from certus.inner import largest_curvature
    from certus.losses import ModelLoss, inferred_criterion
    from certus.runs.directory import RunDirectory
    from certus.runs.factory import load_data, load_model, read_settings
    from certus.runs.files import deserialize

    require_count("--samples", samples, least=0)
    if plot is not None:
        require_picture("--plot", plot)
    opened = RunDirectory.open(run, data=run_data)
    nothing = "with --samples 0, where there is nothing to choose" if samples == 0 else None
    refuse_idle(context, {"seed": nothing} | of_network(opened))
    settings, record = read_settings(opened), opened.record
    data = load_data(settings)
    network = load_model(opened, model=model).double()
    criterion, cost = deserialize(record.criterion), deserialize(record.cost)
    if settings.certified:
        criterion = inferred_criterion(data.train.targets)  # which the run's own proof is about
    shape = tuple(data.test.inputs.shape[1:])
    found = input_smoothness(network, criterion, input_shape=shape, cost=cost)
    sampled, rows, share = None, None, None
    level = (opened.result or {}).get("level")
    gamma = settings.gamma if level is None else float(level["gamma"])
    if samples > 0:
        subset = Subset.of(data.test, f"{data.name}@test", samples, seed=seed, stratify=True)
        chosen, rows = subset.data, subset.as_json()
        targets = chosen.targets.double() if chosen.targets.is_floating_point() else chosen.targets
        curved = largest_curvature(
            ModelLoss(network, criterion), chosen.inputs.double(), targets, cost=cost, max_products=20
        )
        sampled = float(torch.nan_to_num(curved.largest, nan=-math.inf).max())
        found.check_attained(sampled)
        if gamma is not None:
            share = float(curved.concave(gamma, cost).double().mean())
    picture = plot or run / "bound.png"
    drawn = _draw(found, sampled, picture)
    if as_json:
        estimate = {"value": sampled, "samples": samples, "rows": rows, "evidence": Evidence.ESTIMATED}
        estimate |= {"gamma": gamma, "concave_share": share}
        print_json({"run": str(run), **found.as_json(), "sampled": estimate, "plot": drawn})
        return
    hint = "" if found.obstacle is None else smoothing_hint(network, shape)
    _show(found, sampled, gamma, drawn, hint)
    if share is not None:
        console.print(
            f"At gamma = {gamma:.4g} the inner problem is strongly concave at {share:.1%} of the sampled "
            "test points (estimated: between these points it may not be)."
        )


def _show(
    found: SmoothnessBound, sampled: float | None, gamma: float | None, drawn: str | None, hint: str
) -> None:
    from certus.bounds.smoothness import validity_statement

    heads = ("layer", "kind", "norm", "bend", "slope so far", "adds to the curvature")
    lines = make_table(*heads, words=("kind",))
    for layer in found.layers:
        cells = (layer.norm, layer.second_derivative, layer.lipschitz, layer.curvature)
        lines.add_row(layer.path or "–", layer.kind, *(_cell(value) for value in cells))
    console.print(lines)
    modulus = found.cost.strong_convexity
    names = (f"L+ ({found.evidence})", f"smallest gamma (L+/{modulus:g})", "L+ / sampled curvature")
    rules = make_table("bound", *names)
    for name, value in found.bounds.items():
        slack = value / sampled if sampled is not None and sampled > 0 else None
        rules.add_row(_RULES[name], _cell(value), _cell(found.gammas[name]), number(slack, 3))
    if sampled is not None:
        rules.add_row(
            "sampled on test data (estimated)",
            _cell(sampled),
            _cell(sampled / modulus if modulus else math.inf),
            "1",
        )
    console.print(rules)
    if found.obstacle is not None:
        console.print(
            f"There is no finite bound on the curvature of the loss: {found.obstacle}. {hint}".strip()
        )
    else:
        costly = found.dominant_layer
        console.print(
            "L+ bounds the curvature of the loss at every input. The smallest of these bounds counts: L+ = "
            f"{found.curvature:.4g}, by the {found.rule} rule."
        )
        name = f"layer {costly.path} ({costly.kind})" if costly.path else "the loss itself"
        console.print(f"The largest part of it comes from {name}: {costly.curvature:.4g}.")
        console.print(
            f"At the final weights, the inner problem is strongly concave at every input for gamma > "
            f"{found.gamma:.4g} ({found.evidence}).{_verdict(gamma, found.gamma)} Earlier weights of the "
            "training, and the other conditions of the paper's theorems, are not looked at."
        )
    console.print(
        f"Lipschitz constant of the loss: {found.lipschitz:.4g} ({found.evidence}), in the norm of "
        f"{found.cost}."
    )
    console.print(validity_statement(found.assumptions))
    if drawn is not None:
        console.print(f"Drawn in {drawn}")


def _verdict(gamma: float | None, threshold: float) -> str:
    if gamma is None:
        return ""
    if gamma > threshold:
        return f" This run's gamma = {gamma:.4g} is larger."
    return f" This run's gamma = {gamma:.4g} is not: concavity is not known there."


def _cell(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else number(value)


def _draw(found: SmoothnessBound, sampled: float | None, path: Path) -> str | None:
    """Bars of the bounds and of the layers' shares; None if there is nothing to draw with, or nothing
    finite."""
    from certus.display.canvas import save_figure
    from certus.display.figures import smoothness_figure

    try:
        save_figure(smoothness_figure(found, sampled), path)
        return str(path)
    except CertusError as reason:
        messages.print(f"No plot: {reason}")
        return None
