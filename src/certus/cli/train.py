"""``certus train``, ``certus resume`` and ``certus import``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from certus.cli.epsilon import read_epsilon
from certus.cli.idle import of_data, of_network, of_others, of_source, refuse_idle
from certus.cli.no_lock import NoLock
from certus.cli.options import options_of
from certus.cli.output import Json, messages
from certus.cli.training_run import carry_out, carry_out_new, make_fabric, show_run
from certus.data import DataSet
from certus.errors import ArgumentError, require
from certus.losses import ModelLoss
from certus.models import default_model
from certus.models.own_code import Sources
from certus.models.registry import build_from
from certus.runs.building import certified_set, chosen_cost, load_data
from certus.runs.creation import TakenError, require_free
from certus.runs.directory import RunDirectory
from certus.runs.execute import start_run
from certus.runs.result_file import result_of
from certus.runs.settings import METHOD_OPTIONS, METHODS, Settings
from certus.storage.tensors import load_tensors
from certus.training import Fit
from certus.training.criterion_choice import default_criterion
from certus.training.guidance import suggest_rho
from certus.training.prospects import prospects

DataName = Annotated[
    str, typer.Argument(help="A name from `certus data list`, or npz:FILE, csv:FILE, folder:PATH, idx:PATH.")
]
Model = Annotated[
    str | None,
    typer.Option(
        help="toy, toy-relu, mnist-cnn, mlp:128,64:elu, resnet:16,32,64, certified-mlp:1024, "
        "certified-cnn:32, or FILE.py:FACTORY. Fits the data by default."
    ),
]
RunFolder = Annotated[Path | None, typer.Option("--output", "-o", help="The run directory to make.")]

_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@options_of(
    Settings,
    flags={"learning_rate": "--lr", "certified": "--certified"},
    types={"epsilon": str | None, "steps": int | None, "learning_rate": float | None, "schedule": str | None},
)
def train(
    context: typer.Context,
    data: DataName,
    model: Model = None,
    output: RunFolder = None,
    no_lock: NoLock = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a model, robustly by default, into a run directory that can be resumed.

    \b
    certus train digits
    certus train digits --rho 0.1 -o runs/digits
    certus train mnist --method erm --epochs 5
    certus train mnist --certified --gamma 1.5 --jitter 1 --warp 0.1
    certus train csv:people.csv --target income --gamma 2
    certus train digits --gamma 6 --noise 0.25 --loss bounded
    certus train digits --method pgm --norm 2 --epsilon from:runs/digits
    torchrun --nproc-per-node 2 -m certus train mnist --gamma 0.38

    With neither --gamma nor --rho, a level is chosen on the data's own scale, and said.
    """
    fabric = make_fabric()
    leader = fabric.global_rank == 0
    if output is not None and leader:
        require_free(output)
    method, certified, seed = options["method"], options["certified"], options["seed"]
    chosen_model, own = model or "mlp:128,128:elu", [] if model is None else [model]
    idle = of_others([method], METHOD_OPTIONS) if method in METHODS else {}
    idle |= {"gamma": None} if certified else {}
    idle["schedule"] = "with --epochs 1: it moves on after each epoch" if options["epochs"] == 1 else None
    refuse_idle(context, idle | of_source(data))
    if options["epsilon"] is not None:
        norm = options["norm"] or "inf"
        options["epsilon"] = read_epsilon(options["epsilon"], norm, data, options["standardize"], own)
    suggested = method == "wrm" and options["gamma"] is None and options["rho"] is None
    given = options | {"rho": 1.0} if suggested else options
    draft = Settings.chosen(data=data, model=chosen_model, **given)
    loaded = load_data(draft)
    refuse_idle(context, of_data(loaded) | _training_options(loaded, draft))
    settings = replace(draft, model=model or default_model(loaded, certified))
    if suggested:
        suggestion = suggest_rho(loaded.train, chosen_cost(settings, loaded), seed)
        settings = replace(settings, rho=suggestion.rho)
        if leader:
            messages.print(f"Neither --gamma nor --rho given: {suggestion.reason} ({loaded.units}).")
    path, existed = Path(), False
    if leader:
        built = build_from(settings.model, loaded, seed)
        if certified:
            certified_set(settings, built.network, loaded)  # refuses what cannot be proven
        else:
            line = prospects(built.network, tuple(loaded.train.inputs.shape[1:]))
            messages.print(line, highlight=False, markup=False)
        existed = output is not None and output.exists()
        start = functools.partial(
            start_run, settings=settings, data=loaded, sources=built.sources, locking=not no_lock
        )
        path = start(output).path if output else _start_in_free(f"{loaded.name}-{method}", start)
        _say_covered(built.sources)
        messages.print(f"Training {settings.model} on {loaded.name} by {method}; run directory {path}")
    # One process makes the run, the others hear where.
    run = RunDirectory.open(fabric.broadcast(path))
    carry_out_new(run, fabric, settings.model, keep_folder=existed, locking=not no_lock, as_json=as_json)


def resume(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    model: Annotated[
        str | None, typer.Option(help="The run's own FILE.py:FACTORY, if it has one: it is executed.")
    ] = None,
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run, exactly where its last checkpoint left off.

    \b
    certus resume runs/digits
    """
    opened, fabric = RunDirectory.open(run), make_fabric()
    refuse_idle(context, of_network(opened))
    if opened.result is None:
        carry_out(opened, fabric, model, locking=not no_lock, as_json=as_json)
    elif fabric.global_rank == 0:
        messages.print(f"{run} is complete already.")
        show_run(opened, opened.result, as_json)


def import_weights(
    context: typer.Context,
    weights: Annotated[Path, typer.Option(help="A safetensors file with the model's state dict.")],
    data: Annotated[str, typer.Option(help="The data that the model is for.")],
    model: Annotated[str, typer.Option(help="Its architecture: a name, or FILE.py:FACTORY.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The run directory to make.")],
    seed: Annotated[int, typer.Option(help="Decides the split of the data.")] = 0,
    target: Annotated[str | None, typer.Option(help="Target column of a csv: file.")] = None,
    standardize: Annotated[bool, typer.Option(help="As the weights were trained.")] = True,
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Make a run directory of weights that were trained elsewhere.

    \b
    certus import --model net.py:make --weights net.safetensors --data mnist -o runs/mine
    """
    refuse_idle(context, of_source(data))
    require_free(output)
    settings = Settings(
        data=data, model=model, method="erm", seed=seed, target=target, standardize=standardize
    )
    loaded = load_data(settings)
    refuse_idle(context, of_data(loaded))
    built = build_from(model, loaded, seed)
    network = built.network
    state, _ = load_tensors(weights, require_digest=False)
    own = network.state_dict()
    for name, tensor in state.items():
        whole = name in own and not own[name].is_floating_point()  # such as a count of batches
        real = tensor.dtype in _REAL or (whole and tensor.dtype == own[name].dtype)
        require(real, "weights", "be of real floating-point numbers", f"{tensor.dtype} in {name}")
        usable = bool(torch.isfinite(tensor).all())
        require(usable, "weights", "be real and finite", f"{name}, which is not")
    try:
        network.load_state_dict(state)
    except RuntimeError as reason:
        lines = [line.strip() for line in str(reason).splitlines()[1:3]]
        raise ArgumentError(f"`weights` must fit the model {model}; {' '.join(lines)}") from None
    loss = ModelLoss(network, default_criterion(loaded.train))
    result = result_of(Fit(network, [], None), loss, loaded)
    imported = (network.state_dict(), result)
    run = start_run(output, settings, loaded, imported=imported, sources=built.sources, locking=not no_lock)
    _say_covered(built.sources)
    show_run(run, result, as_json)


def _training_options(data: DataSet, settings: Settings) -> dict[str, str | None]:
    """What idles in training for these data, unless it is off as it is by default."""
    regression = f"for {data.name}, a regression: it is about classes" if data.classes is None else None
    no_images = None if data.train.inputs.dim() == 4 else f"for {data.name}, which has no images"
    idle = dict.fromkeys(("label_smoothing", "margin", "temperature", "loss"), regression)
    idle |= dict.fromkeys(("jitter", "warp"), no_images)
    return {name: why for name, why in idle.items() if getattr(settings, name) != getattr(Settings, name)}


def _say_covered(sources: Sources | None) -> None:
    """Which code of the user's the run is bound to."""
    if sources is None:
        return
    left = "".join(f", {name}" for name in sources.uncovered)
    messages.print(
        f"The run is bound to {', '.join(sources.files)} by sha256, not to installed packages{left}."
    )


def _start_in_free(name: str, start: Callable[[Path], RunDirectory]) -> Path:
    """A new run in the first of runs/NAME, runs/NAME-2, … that is free."""
    for count in itertools.count(1):
        path = Path("runs") / (name if count == 1 else f"{name}-{count}")
        if not path.exists():
            with suppress(TakenError):  # by somebody who was quicker
                return start(path).path
    raise AssertionError("there are more numbers than folders")
