"""From the options of ``certus train`` and ``certus resume`` to a run directory that is being trained."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from certus._names import PAPER_NAMES
from certus.cli.column_table import show_columns
from certus.cli.epsilon import read_epsilon
from certus.cli.idle import of_data, of_network, of_others, of_source, refuse_idle
from certus.cli.output import messages
from certus.cli.tensorboard import require_tensorboard
from certus.cli.training_run import carry_out, carry_out_new, make_fabric, say_covered, show_run
from certus.datasets import SplitDataset
from certus.models import default_model
from certus.models.registry import build_from
from certus.runs.directory import RunDirectory, TakenError, require_free, settled
from certus.runs.factory import certified_set, chosen_cost, load_data
from certus.runs.settings import METHOD_OPTIONS, METHODS, Settings, decay_of_layers, typed_decay
from certus.runs.train_run import start_run
from certus.training.calibration import enough_epochs, suggest_rho
from certus.training.optimizers import decay_groups
from certus.training.preflight import prospects


def start_training(
    context: typer.Context,
    data: str,
    model: str | None,
    output: Path | None,
    options: dict[str, Any],
    *,
    logs: Path | None,
    locking: bool,
    as_json: bool,
) -> None:
    """Check what was asked, make the run, and train it to the end."""
    fabric = make_fabric()
    leader = fabric.global_rank == 0
    if output is not None:
        output = settled(output)
        if leader:
            require_free(output)
    require_tensorboard(logs)
    method = options["method"] = PAPER_NAMES.get(options["method"], options["method"])
    certified, seed = options["certified"], options["seed"]
    chosen_model, own = ("mlp:128,128:elu", []) if model is None else (model, [model])
    idle = of_others([method], METHOD_OPTIONS) if method in METHODS else {}
    idle |= {"gamma": None} if certified else {}
    if method == "wrm" and options["ascent"] == "paper":
        idle |= {"steps": None, "tolerance": "for the ascent paper, which takes all its steps"}
    idle["schedule"] = "with --epochs 1: it moves on after each epoch" if options["epochs"] == 1 else None
    refuse_idle(context, idle | of_source(data))
    if options["epsilon"] is not None:
        norm = options["norm"] or "inf"
        options["epsilon"] = read_epsilon(options["epsilon"], norm, data, options["standardize"], own)
    if options["weight_decay"] is not None:
        options["weight_decay"] = typed_decay(options["weight_decay"])
    suggested = method == "wrm" and options["gamma"] is None and options["rho"] is None
    given = options | {"rho": 1.0} if suggested else options
    folder = str(Path.cwd()) if ":" in data else ""
    draft = Settings.chosen(data=data, model=chosen_model, folder=folder, **given)
    loaded = load_data(draft)
    refuse_idle(context, of_data(loaded) | _training_options(loaded, draft))
    settings = replace(draft, model=default_model(loaded, certified) if model is None else model)
    if options["epochs"] is None:
        settings = replace(settings, epochs=enough_epochs(len(loaded.train), settings.batch_size))
    if options["learning_rate"] is None and settings.model.startswith("mlp:") and not certified:
        settings = replace(settings, learning_rate=4e-3)
    if suggested:
        suggestion = suggest_rho(loaded.train, chosen_cost(settings, loaded).unmasked, seed)
        settings = replace(settings, rho=suggestion.rho)
        if leader:
            messages.print(f"Neither --gamma nor --rho given: {suggestion.reason} ({loaded.units}).")
    path, existed = Path(), False
    if leader:
        show_columns(loaded)
        built = build_from(settings.model, loaded, seed)
        decay_groups(built.network, decay_of_layers(settings.weight_decay))  # refuses layers that it has not
        if certified:
            certified_set(settings, built.network, loaded)  # refuses what cannot be proven
        else:
            line = prospects(built.network, tuple(loaded.train.inputs.shape[1:]))
            messages.print(line, highlight=False, markup=False)
        existed = output is not None and output.exists()
        start = functools.partial(
            start_run, settings=settings, data=loaded, sources=built.sources, locking=locking
        )
        path = start(output).path if output else _start_in_free(f"{loaded.name}-{method}", start)
        say_covered(built.sources)
        messages.print(f"Training {settings.model} on {loaded.name} by {method}; run directory {path}")
    # One process makes the run, the others hear where.
    run = RunDirectory.open(fabric.broadcast(path))
    carry_out_new(
        run, fabric, settings.model, logs=logs, keep_folder=existed, locking=locking, as_json=as_json
    )


def go_on(
    context: typer.Context,
    run: Path,
    model: str | None,
    run_data: str | None,
    *,
    logs: Path | None,
    locking: bool,
    as_json: bool,
) -> None:
    """Train an interrupted run to the end; show one that is complete."""
    opened, fabric = RunDirectory.open(run, data=run_data), make_fabric()
    trained = None if opened.result is None else f"for {run}, which is complete: no epoch is left to log"
    refuse_idle(context, of_network(opened) | {"tensorboard": trained})
    require_tensorboard(logs)
    if opened.result is None:
        carry_out(opened, fabric, model, logs=logs, locking=locking, as_json=as_json)
    elif fabric.global_rank == 0:
        messages.print(f"{run} is complete already.")
        show_run(opened, opened.result, as_json)


def _training_options(data: SplitDataset, settings: Settings) -> dict[str, str | None]:
    """What idles in training for these data, unless it is off as it is by default."""
    regression = f"for {data.name}, a regression: it is about classes" if data.classes is None else None
    no_images = None if data.train.inputs.dim() == 4 else f"for {data.name}, which has no images"
    idle = dict.fromkeys(("label_smoothing", "margin", "temperature", "loss", "class_weights"), regression)
    idle |= dict.fromkeys(("jitter", "warp"), no_images)
    return {name: why for name, why in idle.items() if getattr(settings, name) != getattr(Settings, name)}


def _start_in_free(name: str, start: Callable[[Path], RunDirectory]) -> Path:
    """A new run in the first of runs/NAME, runs/NAME-2, … that is free."""
    for count in itertools.count(1):
        path = Path("runs") / (name if count == 1 else f"{name}-{count}")
        if not path.exists():
            with suppress(TakenError):  # by somebody who was quicker
                return start(path).path
    raise AssertionError("there are more numbers than folders")
