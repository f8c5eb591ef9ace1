"""``certus smoothness``: bounds on the curvature of a network's loss, layer by layer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from certus.cli import options as cli
from certus.cli.output import console, messages, print_json, require_picture
from certus.display.text import make_table, number
from certus.errors import CertusError, require_count
from certus.kernel.evidence import Evidence

if TYPE_CHECKING:
    from certus.bounds import SmoothnessBound

_RULES = {
    "paper": "as the paper prints it",
    "corrected": "the paper's, corrected",
    "sum": "sum rule: kappa + D²/4",
    "max": "max rule",
}


@cli.command("smoothness")
@cli.option("--samples", default=256, help="Number of test samples to estimate the curvature at; 0 for none.")
@cli.option("--seed", default=0, help="Seed of the drawn samples.")
@cli.option("--plot", type=cli.PATH, show_default="RUN/smoothness.png", help="Picture of the bounds.")
@cli.takes_run
@cli.json_option
def smoothness(run: cli.TypedRun, samples: int, seed: int, plot: Path | None, as_json: bool) -> None:
    """Bound the curvature of a network's loss, layer by layer.

    \b
    certus smoothness runs/digits
    certus smoothness runs/digits --json

    RUN is a run directory. The bound L+ gives the gamma above which the inner problem is strongly concave at
    the final weights.
    """
    import torch

    from certus.bounds import input_smoothness
    from certus.bounds.validation import smoothing_hint
    from certus.data import Subset
    from certus.display.canvas import save_figure
    from certus.display.figures import smoothness_figure
    from certus.inner import largest_curvature
    from certus.losses import ModelLoss, inferred_criterion
    from certus.runs.factory import load_data, load_model, read_settings
    from certus.runs.serialization import deserialize

    require_count("--samples", samples, least=0)
    if plot is not None:
        require_picture("--plot", plot)
    cli.refuse_unused({"seed": "with --samples 0: no sample is drawn" if samples == 0 else None})
    opened = run.open()
    settings, record = read_settings(opened), opened.record
    data = load_data(settings)
    network = load_model(opened, model=run.model).double()
    criterion, cost = deserialize(record.criterion), deserialize(record.cost)
    if settings.certified:
        criterion = inferred_criterion(data.train.targets)  # which the run's own proof is about
    shape = tuple(data.test.inputs.shape[1:])
    bound = input_smoothness(network, criterion, input_shape=shape, cost=cost)
    sampled, rows, share = None, None, None
    robustness = (opened.result or {}).get("robustness")
    gamma = settings.gamma if robustness is None else float(robustness["gamma"])
    if samples > 0:
        subset = Subset.of(data.test, f"{data.name}@test", samples, seed=seed, stratify=True)
        chosen, rows = subset.data, subset.as_json()
        targets = chosen.targets.double() if chosen.targets.is_floating_point() else chosen.targets
        curved = largest_curvature(
            ModelLoss(network, criterion), chosen.inputs.double(), targets, cost=cost, max_products=20
        )
        sampled = float(torch.nan_to_num(curved.largest, nan=-math.inf).max())
        bound.check_attained(sampled)
        if gamma is not None:
            share = float(curved.concave(gamma, cost).double().mean())
    plotted = None
    try:
        picture = plot or run.path / "smoothness.png"
        save_figure(smoothness_figure(bound, sampled), picture)
        plotted = str(picture)
    except CertusError as reason:  # matplotlib is missing, or nothing is finite
        messages.print(f"No figure: {reason}")
    if as_json:
        estimate = {"value": sampled, "samples": samples, "rows": rows, "evidence": Evidence.ESTIMATED}
        estimate |= {"gamma": gamma, "concave_share": share}
        print_json({"run": str(run.path), **bound.as_json(), "sampled": estimate, "plot": plotted})
        return
    hint = "" if bound.obstacle is None else smoothing_hint(network, shape)
    _show(bound, sampled, gamma, plotted, hint)
    if share is not None:
        console.print(
            f"At gamma = {gamma:.4g} the inner problem is strongly concave at {share:.1%} of the sampled "
            "test points (estimated: between these points it may not be)."
        )


def _show(
    bound: SmoothnessBound, sampled: float | None, gamma: float | None, plotted: str | None, hint: str
) -> None:
    from certus.bounds.smoothness import validity_statement

    heads = ("layer", "kind", "norm", "second derivative", "cumulative Lipschitz", "curvature (sum rule)")
    rows = []
    for layer in bound.layers:
        values = (layer.norm, layer.second_derivative, layer.lipschitz, layer.curvature)
        rows.append((layer.path or "–", layer.kind, *map(_cell, values)))
    console.print(make_table(*heads, rows=rows, words=("kind",)))
    modulus = bound.cost.strong_convexity
    names = (f"L+ ({bound.evidence})", f"smallest gamma (L+/{modulus:g})", "L+ / sampled curvature")
    rules = []
    for name, value in bound.bounds.items():
        slack = value / sampled if sampled is not None and sampled > 0 else None
        rules.append((_RULES[name], _cell(value), _cell(bound.gammas[name]), number(slack, 3)))
    if sampled is not None:
        gamma_sampled = sampled / modulus if modulus else math.inf
        rules.append(("sampled on test data (estimated)", _cell(sampled), _cell(gamma_sampled), "1"))
    console.print(make_table("bound", *names, rows=rules))
    if bound.obstacle is not None:
        unknown = f"There is no finite bound on the curvature of the loss: {bound.obstacle}. {hint}"
        console.print(unknown.strip())
    else:
        costly = bound.dominant_layer
        console.print(
            "L+ bounds the curvature of the loss at every input. The smallest of these bounds counts: L+ = "
            f"{bound.curvature:.4g}, by the {bound.rule} rule."
        )
        name = f"layer {costly.path} ({costly.kind})" if costly.path else "the loss itself"
        console.print(f"By the sum rule, {name} contributes the largest part: {costly.curvature:.4g}.")
        own = ""
        if gamma is not None:
            above = "larger" if gamma > bound.gamma else "not larger, so that concavity is not proven for it"
            own = f" This run's gamma = {gamma:.4g} is {above}."
        console.print(
            f"At the final weights, the inner problem is strongly concave at every input for gamma > "
            f"{bound.gamma:.4g} ({bound.evidence}).{own} Earlier weights of the training, and the other "
            "conditions of the paper's theorems, are not checked."
        )
    steepest = f"{bound.lipschitz:.4g} ({bound.evidence}), in the norm of {bound.cost}"
    console.print(f"Lipschitz constant of the loss: {steepest}.")
    console.print(validity_statement(bound.assumptions))
    if plotted is not None:
        console.print(f"Written: {plotted}.")


def _cell(value: float) -> str:
    return "–" if math.isnan(value) else "∞" if math.isinf(value) else number(value)
