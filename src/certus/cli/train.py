"""``certus train``: train a model inside a run directory."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from certus._defaults import default_epochs, defaults_for
from certus._format import at_most
from certus._names import PAPER_NAMES
from certus.cli.options import Json, NoLock, of_data, of_others, of_source, options_of, refuse_idle
from certus.cli.output import console, messages, print_json, require_folder, same_place, show_parts
from certus.cli.streams import if_interrupted
from certus.display.text import make_table, number
from certus.errors import UnsupportedError, require
from certus.runs.settings import FLAGS, METHOD_OPTIONS, METHODS, Settings, decay_of_layers, typed_decay
from certus.storage.files import RunError
from certus.storage.write import LockError, WriteError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from certus.datasets import SplitDataset
    from certus.models.own_code import Sources
    from certus.runs.directory import RunDirectory
    from certus.training import Callback


DataName = Annotated[
    str,
    typer.Argument(
        help="A name from `certus data list`, or csv:FILE, parquet:FILE, npz:FILE, folder:PATH, idx:PATH."
    ),
]

Model = Annotated[
    str | None,
    typer.Option(
        help="toy, toy-relu, mnist-cnn, mlp:128,64:elu, resnet:16,32,64, certified-mlp:1024, "
        "certified-cnn:32, or FILE.py:FACTORY. Fits the data by default."
    ),
]

LogFolder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Write what each epoch measures for TensorBoard, in DIR/RUN."),
]

RunFolder = Annotated[Path | None, typer.Option("--output", "-o", help="The run directory to make.")]


@options_of(
    Settings,
    flags=FLAGS,
    types={
        **dict.fromkeys(("steps", "epochs"), int | None),
        **dict.fromkeys(("epsilon", "schedule"), str | None),
        "learning_rate": float | None,
        "weight_decay": list[str] | None,
    },
)
def train(
    context: typer.Context,
    data: DataName,
    model: Model = None,
    output: RunFolder = None,
    tensorboard: LogFolder = None,
    no_lock: NoLock = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Train a model, robustly by default; the run can be resumed.

    \b
    certus train digits
    certus train digits --rho 0.1 -o runs/digits
    certus train mnist --method erm --epochs 5
    certus train mnist --certified --gamma 1.5 --jitter 1 --warp 0.1
    certus train csv:people.csv --target income --gamma 2
    certus train csv:shops.csv --target sold --drop note --split-by day
    certus train digits --gamma 6 --noise 0.25 --loss bounded
    certus train mnist --gamma 1 --weight-decay 0=0.1 --weight-decay 2=0.02
    certus train digits --method pgd --norm 2 --epsilon from:runs/digits
    torchrun --nproc-per-node 2 -m certus train mnist --gamma 0.38

    With neither --gamma nor --rho, a level is chosen on the data's own scale, and said.
    """

    start_training(
        context, data, model, output, options, logs=tensorboard, locking=not no_lock, as_json=as_json
    )


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
    from certus.cli.attack_support import read_epsilon
    from certus.losses import inferred_criterion
    from certus.models import default_model
    from certus.models.registry import build_from
    from certus.runs.directory import RunDirectory, require_new_run, resolve_parents
    from certus.runs.factory import build_certified_training, build_cost, load_data
    from certus.runs.train_run import start_run
    from certus.training.calibration import suggest_rho
    from certus.training.optimizers import decay_groups
    from certus.training.preflight import prospects

    fabric = make_fabric()
    leader = fabric.global_rank == 0
    if output is not None:
        output = resolve_parents(output)
        if leader:
            require_new_run(output)
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
        settings = replace(settings, epochs=default_epochs(len(loaded.train), settings.batch_size))
    if options["learning_rate"] is None:
        rate = defaults_for(settings.model, certified=certified).learning_rate
        settings = replace(settings, learning_rate=rate)
    if suggested:
        suggestion = suggest_rho(loaded.train, build_cost(settings, loaded).unmasked, seed)
        settings = replace(settings, rho=suggestion.rho)
        if leader:
            messages.print(f"Neither --gamma nor --rho given: {suggestion.reason} ({loaded.units}).")
    path, existed = Path(), False
    if leader:
        show_columns(loaded)
        built = build_from(settings.model, loaded, seed)
        decay_groups(built.network, decay_of_layers(settings.weight_decay))  # refuses layers that it has not
        if certified:
            training = build_certified_training(settings, loaded)
            assert training is not None
            shape, cost = tuple(loaded.train.inputs.shape[1:]), build_cost(settings, loaded)
            # Refuses what cannot be proven.
            training.theta(built.network, shape, inferred_criterion(loaded.train.targets), cost)
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


def _training_options(data: SplitDataset, settings: Settings) -> dict[str, str | None]:
    """What idles in training for these data, unless it is off as it is by default."""
    regression = f"for {data.name}, a regression: it is about classes" if data.classes is None else None
    no_images = None if data.train.inputs.dim() == 4 else f"for {data.name}, which has no images"
    idle = dict.fromkeys(("label_smoothing", "margin", "temperature", "loss", "class_weights"), regression)
    idle |= dict.fromkeys(("jitter", "warp"), no_images)
    return {name: why for name, why in idle.items() if getattr(settings, name) != getattr(Settings, name)}


def _start_in_free(name: str, start: Callable[[Path], RunDirectory]) -> Path:
    """A new run in the first of runs/NAME, runs/NAME-2, … that is free."""
    from certus.runs.directory import RunExistsError

    for count in itertools.count(1):
        path = Path("runs") / (name if count == 1 else f"{name}-{count}")
        if not path.exists():
            with suppress(RunExistsError):  # by somebody who was quicker
                return start(path).path
    raise AssertionError("there are more numbers than folders")


def make_fabric() -> Fabric:
    """One process, or those that torchrun has started."""
    import torch
    from lightning_fabric import Fabric

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = Fabric(
        accelerator="cuda" if torch.cuda.is_available() else "cpu", devices=local, num_nodes=nodes
    )
    if local * nodes > 1:
        fabric.launch()
    return fabric


def carry_out(
    run: RunDirectory,
    fabric: Fabric,
    model: str | None,
    *,
    logs: Path | None,
    locking: bool,
    as_json: bool,
) -> None:
    """Train to the end, while no other process may, and show the result."""
    from certus.runs import RunLock
    from certus.runs.directory import CHECKPOINT
    from certus.runs.train_run import train_run
    from certus.training.callbacks import ProgressBar

    if fabric.global_rank != 0:
        train_run(run, model=model, fabric=fabric)
        return
    watchers = tensorboard_of(logs, run.path)
    try:
        with (
            RunLock(run.path, locking=locking),
            ProgressBar(messages) as bar,
            if_interrupted(lambda: _kept(run)),
        ):
            train_run(run, model=model, callbacks=[bar, *watchers], fabric=fabric)
    except WriteError as reason:
        if not (run.path / CHECKPOINT).exists():
            raise
        raise WriteError(f"{reason} {_kept(run)}") from None
    result = run.result
    assert result is not None
    show_run(run, result, as_json)


def carry_out_new(
    run: RunDirectory,
    fabric: Fabric,
    model: str | None,
    *,
    logs: Path | None,
    keep_folder: bool,
    locking: bool,
    as_json: bool,
) -> None:
    """``carry_out`` a run that was just made; if it fails before its first step is kept, nothing remains.

    Then the same command, mended, is not told that the folder is taken.
    """
    from certus.runs.directory import CHECKPOINT, remove_run

    try:
        carry_out(run, fabric, model, logs=logs, locking=locking, as_json=as_json)
    except LockError:  # another process continues it
        raise
    except Exception as reason:
        full = isinstance(reason, WriteError) and (run.path / CHECKPOINT).exists()
        if fabric.global_rank == 0 and _is_untouched(run) and not full:
            remove_run(run.path, keep_folder=keep_folder)
        raise


def _is_untouched(run: RunDirectory) -> bool:
    from certus.runs.checkpoint import checkpoint_position
    from certus.runs.directory import CHECKPOINT

    try:
        return run.result is None and checkpoint_position(run.path / CHECKPOINT) == (0, 0)
    except RunError:
        return False


def _kept(run: RunDirectory) -> str:
    """What there is to go on from, and how."""
    from certus.runs.checkpoint import checkpoint_position
    from certus.runs.directory import CHECKPOINT
    from certus.runs.factory import read_settings

    try:
        (epoch, step), epochs = checkpoint_position(run.path / CHECKPOINT), read_settings(run).epochs
    except RunError as reason:
        return str(reason)
    done = f"{epoch} of {epochs} epochs" + (f" and {step} steps" if step else "")
    return f"{run.path} keeps {done}; `certus resume {run.path}` continues."


def say_covered(sources: Sources | None) -> None:
    """Which code of the user's the run is bound to."""
    if sources is None:
        return
    left = "".join(f", {name}" for name in sources.uncovered)
    messages.print(
        f"The run is bound to {', '.join(sources.files)} by sha256, not to installed packages{left}."
    )


def show_run(run: RunDirectory, result: dict[str, Any], as_json: bool) -> None:
    """A table of the last epochs, and what was measured at the end."""
    from certus.bounds.smoothness import format_assumptions
    from certus.display.tables import epoch_parts, reached_words
    from certus.runs.factory import read_settings

    history = run.history
    if as_json:
        settings = asdict(read_settings(run))
        print_json({"run": str(run.path), "settings": settings, "history": history, "result": result})
        return
    show_parts(epoch_parts(history))
    if history:
        share = history[-1]["converged"]
        if share is not None and share < 0.5:
            messages.print(
                f"Only {share:.0%} of the inner problems converged: gamma is probably too small for the "
                "curvature of the loss, where the worst case may be unbounded. A larger gamma or a smaller "
                "rho may help."
            )
    words = [f"{name} {number(value)}" for name, value in result["test"].items()]
    console.print(f"On the unmoved test data: {', '.join(words)}.")
    show_verdict(result)
    level = result["level"]
    if level is not None:
        console.print(reached_words(level))
    if "smoothed" in result:
        console.print(_smoothed_words(result["smoothed"]))
    if "proof" in result:
        curvature, gamma = (at_most(result["proof"][name], 5) for name in ("curvature", "gamma"))
        evidence = result["proof"]["evidence"]
        console.print(
            f"Certified training ({evidence}): at the final weights the curvature of the loss is at most "
            f"{curvature} at every input, so that the inner problem is concave for every gamma above {gamma}."
        )
        if assumptions := result["proof"].get("assumptions"):
            console.print(format_assumptions(tuple(assumptions)))
    console.print(f"Run directory: {run.path}")


def _smoothed_words(told: dict[str, Any]) -> str:
    """Whether the exact smoothed inner problem is concave, and what the points are."""
    found = f"Inner problem with noise of sigma {told['sigma']:g} at gamma {told['gamma']:.4g}: "
    if told["threshold"] is None:
        found += "the loss is unbounded, so concavity is not proven (it can be with --loss bounded)"
    else:
        verb = "is" if told["concave"] else "is not proven to be"
        above = at_most(told["threshold"], 5)
        found += f"averaged over all noise, it {verb} strongly concave (proven for every gamma above {above})"
    return f"{found}; the moved points themselves are {told['points']}."


OPTION = "--tensorboard"


def require_tensorboard(folder: Path | None) -> None:
    """Raise before any work, where TensorBoard is missing or the folder cannot be one."""
    if folder is None:
        return
    try:
        import tensorboard  # noqa: F401  # only whether it is there
    except ImportError:
        raise UnsupportedError(f"{OPTION} needs tensorboard: pip install 'certus[tensorboard]'.") from None
    require_folder(OPTION, folder)


def tensorboard_of(folder: Path | None, run: Path) -> list[Callback]:
    """Who writes DIR/RUN, if anybody is asked to; epochs that a resumed run had before are written again.

    What an earlier process wrote there from the first epoch on is then hidden, so each epoch counts once.
    """
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    from certus.training.callbacks import MetricsLogger

    if folder is None:
        return []
    place = folder / run.resolve().name
    require(not same_place(place, run), OPTION, "be another folder than that of the runs", folder)
    messages.print(f"TensorBoard: tensorboard --logdir {folder}")
    return [MetricsLogger(TensorBoardLogger(folder, name=place.name, version="", purge_step=1))]


_MOST = 10  # classes that get a table


def show_verdict(result: dict[str, Any]) -> None:
    """Recall by class, balanced accuracy and the majority's share; RMSE and R² of a regression."""
    if "regression" in result:
        told = result["regression"]
        explained = f", R² {number(told['r2'])}" if "r2" in told else ""
        console.print(f"In units of the target: root mean squared error {number(told['rmse'])}{explained}.")
    if "classes" not in result:
        return
    told = result["classes"]
    labels = told["names"]
    if len(labels) <= _MOST:
        shown = make_table("true class", *labels, "recall")
        for label, counts, recall in zip(labels, told["confusion"], told["recall"], strict=True):
            shown.add_row(label, *map(str, counts), number(recall, 3))
        console.print(shown)
        console.print("Counts of test samples: a row for each true class, a column for each predicted class.")
    console.print(
        f"Balanced accuracy {number(told['balanced_accuracy'])}. Always predicting "
        f"{labels[told['majority']]} would be right on {told['majority_share']:.1%} of the test samples."
    )
    if told["never_predicted"]:
        never = ", ".join(labels[at] for at in told["never_predicted"][:_MOST])
        messages.print(
            f"Never predicted: {never}. With --class-weights balanced every class counts equally in training."
        )


def show_columns(data: SplitDataset) -> None:
    """Column, kind, gaps, different values and what becomes of it; nothing for data without a recipe."""
    if data.recipe is None:
        return
    shown = make_table("column", "kind", "missing", "distinct", "becomes", words=("kind", "becomes"))
    for one in data.recipe.columns:
        kind = "–" if one.kind == "dropped" else one.kind
        shown.add_row(one.name, kind, str(one.missing), str(one.distinct), one.becomes)
    messages.print(shown)
    what = "a regression" if data.classes is None else f"{data.classes} classes"
    messages.print(f"Target: {data.recipe.target} ({what}).")
