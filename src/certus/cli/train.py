"""``certus train``: train a model inside a run directory."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._defaults import default_epochs, defaults_for
from certus._format import at_most
from certus.cli import options as cli
from certus.cli import output as out
from certus.cli.output import console, messages
from certus.display.text import make_table, number
from certus.errors import UnsupportedError, require
from certus.runs.settings import (
    METHOD_OPTIONS,
    MODEL,
    OPTIMISATION,
    PANELS,
    Settings,
    decay_of_layers,
    typed_decay,
)
from certus.storage.files import RunError
from certus.storage.write import LockError, WriteError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from certus.datasets import SplitDataset
    from certus.models.own_code import Sources
    from certus.runs.directory import RunDirectory
    from certus.training import Callback
    from certus.training.calibration import Suggestion

device_option = cli.option(
    "--device",
    panel=OPTIMISATION,
    default="auto",
    type=cli.Choice(("auto", "cpu", "cuda", "mps")),
    help="Device of the training: auto is cuda where there is one, else the CPU.",
)
_IMBALANCED = 0.5  # of its equal share: a class below it is rare
_MOST_CLASSES = 10  # whose confusion matrix is printed


@cli.command("train", panels=PANELS)
@cli.argument("data")
@cli.option(
    "--model",
    metavar="NAME",
    panel=MODEL,
    show_default="a model that fits the data",
    help="Network: toy, toy-relu, mnist-cnn, mlp:128,64:elu, resnet:16,32,64, certified-mlp:1024, "
    "certified-cnn:32, lipschitz:128x10, or FILE.py:FACTORY for a file that is executed.",
)
@cli.options_of(Settings, types={"epsilon": cli.Radius, "weight_decay": tuple[str, ...]})
@cli.option("--output", "-o", type=cli.PATH, show_default="runs/DATA-METHOD", help="Run directory to create.")
@device_option
@cli.tensorboard_option
@cli.no_lock_option
@cli.json_option
def train(
    data: str,
    model: str | None,
    output: Path | None,
    device: str,
    tensorboard: Path | None,
    no_lock: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a model, robustly by default; the run can be resumed.

    \b
    certus train digits
    certus train digits --rho 0.1 -o runs/digits
    certus train mnist --method erm --epochs 5
    certus train mnist --certified --gamma 1.5 --translate 1 --affine 0.1
    certus train csv:people.csv --target income --gamma 2
    certus train csv:shops.csv --target sold --drop note --split-by day
    certus train digits --gamma 6 --noise 0.25 --loss bounded
    certus train mnist --gamma 1 --weight-decay 0=0.1 --weight-decay 2=0.02
    certus train digits --method pgd --norm 2 --epsilon from:runs/digits
    torchrun --nproc-per-node 2 -m certus train mnist --gamma 0.38

    DATA is a name from `certus data list`, or csv:FILE, parquet:FILE, npz:FILE, folder:PATH (images) or
    idx:PATH (files in the format of MNIST). A table is a csv: or parquet: file.

    With neither --gamma nor --rho, wrm takes a rho that suits the scale of the data, and prints it.
    """
    draft = _typed_settings(data, model, options)
    from certus.losses import inferred_criterion
    from certus.models.networks import build_from
    from certus.runs import directory, factory
    from certus.runs.train_run import start_run
    from certus.training import optimizers, preflight

    fabric = make_fabric(device, options["precision"])
    leader = fabric.global_rank == 0
    if output is not None:
        output = directory.resolve_parents(output)
        if leader:
            directory.require_new_run(output)
    require_tensorboard(tensorboard)
    settings, loaded, suggestion = _complete_settings(draft, model, options)
    path, existed = Path(), False
    if leader:
        built = build_from(settings.model, loaded, settings.seed)
        shape = tuple(loaded.train.inputs.shape[1:])
        # The next lines refuse layers that the network does not have, and what cannot be proven.
        optimizers.decay_groups(built.network, decay_of_layers(settings.weight_decay))
        training = factory.build_certified_training(settings, loaded)
        if training is not None:
            cost = factory.build_cost(settings, loaded)
            training.theta(built.network, shape, inferred_criterion(loaded.train.targets), cost)
        if suggestion is not None:
            messages.print(f"Neither --gamma nor --rho given: {suggestion.reason} ({loaded.units}).")
        _show_columns(loaded)
        if training is None:
            messages.print(preflight.certificate_outlook(built.network, shape))
        existed = output is not None and output.exists()
        start = functools.partial(
            start_run, settings=settings, data=loaded, sources=built.sources, locking=not no_lock
        )
        path = start(output).path if output else _start_in_free(f"{loaded.name}-{settings.method}", start)
        show_sources(built.sources)
        messages.print(
            f"Training {settings.model} on {loaded.name} by {settings.method}; run directory {path}"
        )
    # One process makes the run, the others hear where.
    run = directory.RunDirectory.open(fabric.broadcast(path))
    try:
        train_and_show(run, fabric, settings.model, logs=tensorboard, locking=not no_lock, as_json=as_json)
    except LockError:  # another process continues it
        raise
    except Exception as error:
        # Nothing remains of a run that fails before its first step, so that the same command can be repeated.
        file, untouched = run.path / directory.CHECKPOINT, False
        with suppress(RunError):
            untouched = run.result is None and directory.checkpoint_position(file) == (0, 0)
        if leader and untouched and not (isinstance(error, WriteError) and file.exists()):
            directory.remove_run(run.path, keep_folder=existed)
        raise


def _typed_settings(data: str, model: str | None, options: dict[str, Any]) -> Settings:
    """Return the settings as typed, with placeholders for a rho and a model that follow from the data; raise
    ``ArgumentError`` for wrong values and for options without effect."""
    method = options["method"]
    unused = cli.unused_by_methods([method], METHOD_OPTIONS)
    unused |= {"gamma": None} if options["certified"] else {}
    if method == "wrm" and options["maximizer"] == "paper":
        unused |= {"steps": None, "tolerance": "with --maximizer paper, which takes a fixed number of steps"}
    if options["epochs"] == 1 and options["schedule"] != "onecycle":
        unused["schedule"] = "with --epochs 1: it changes the rate after each epoch"
    cli.refuse_unused(unused | cli.unused_by_source(data))
    if isinstance(options["epsilon"], str):
        from certus.cli.attack_support import epsilon_from

        norm, own_files = options["norm"] or "inf", [] if model is None else [model]
        options["epsilon"] = epsilon_from(options["epsilon"], norm, data, options["standardize"], own_files)
    options["weight_decay"] = typed_decay(options["weight_decay"]) if options["weight_decay"] else None
    return Settings.chosen(
        data=data,
        model="mlp:128,128:elu" if model is None else model,
        folder=str(Path.cwd()) if ":" in data else "",
        **options | ({"rho": 1.0} if _suggests(options) else {}),
    )


def _suggests(options: dict[str, Any]) -> bool:
    return options["method"] == "wrm" and options["gamma"] is None and options["rho"] is None


def _complete_settings(
    draft: Settings, model: str | None, options: dict[str, Any]
) -> tuple[Settings, SplitDataset, Suggestion | None]:
    """Return the settings with the defaults that depend on the data, the data, and the ρ that suits them if
    none was typed; raise ``ArgumentError`` for options without effect on the data."""
    from certus.models import default_model
    from certus.runs import factory
    from certus.training import calibration

    loaded, certified = factory.load_data(draft), draft.certified
    regression = f"for {loaded.name}, a regression: it applies to classes" if loaded.classes is None else None
    no_images = None if loaded.train.inputs.dim() == 4 else f"for {loaded.name}, whose inputs are not images"
    about_classes = ("label_smoothing", "margin", "temperature", "loss", "class_weights")
    unused = dict.fromkeys(about_classes, regression)
    unused |= dict.fromkeys(("translate", "affine", "flip"), no_images)
    changed = {name for name in unused if getattr(draft, name) != getattr(Settings, name)}
    cli.refuse_unused(cli.unused_by_data(loaded) | {name: unused[name] for name in changed})
    settings = replace(draft, model=default_model(loaded, certified) if model is None else model)
    if options["epochs"] is None:
        settings = replace(settings, epochs=default_epochs(len(loaded.train), settings.batch_size))
    defaults = defaults_for(settings.model, certified=certified)
    if options["learning_rate"] is None:
        settings = replace(settings, learning_rate=defaults.learning_rate)
    if options["schedule"] is None:
        settings = replace(settings, schedule=defaults.schedule)
    suggestion, cost = None, factory.build_cost(settings, loaded)
    if _suggests(options):
        suggestion = calibration.suggest_rho(loaded.train, cost.unmasked, draft.seed)
        settings = replace(settings, rho=suggestion.rho)
    return settings, loaded, suggestion


def _start_in_free(name: str, start: Callable[[Path], RunDirectory]) -> Path:
    """Return the path of a new run: the first of runs/NAME, runs/NAME-2, … that is free."""
    from certus.runs.directory import RunExistsError

    for count in itertools.count(1):
        path = Path("runs") / (name if count == 1 else f"{name}-{count}")
        if not path.exists():
            with suppress(RunExistsError):  # another process was quicker
                return start(path).path
    raise AssertionError("itertools.count is infinite")


def make_fabric(device: str, precision: str) -> Fabric:
    """Return a Fabric of one process, or of those that torchrun has started; ``precision`` as in settings."""
    import torch
    from lightning_fabric import Fabric

    from certus.training._fit import FABRIC_PRECISIONS

    present = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    accelerator = device if device != "auto" else "cuda" if present["cuda"] else "cpu"
    devices = " or ".join(name for name, there in present.items() if there)
    require(present[accelerator], "--device", f"be a device of this machine: auto, {devices}", device)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = Fabric(
        accelerator=accelerator, devices=local, num_nodes=nodes, precision=FABRIC_PRECISIONS[precision]
    )
    if local * nodes > 1:
        fabric.launch()
    return fabric


def train_and_show(
    run: RunDirectory, fabric: Fabric, model: str | None, *, logs: Path | None, locking: bool, as_json: bool
) -> None:
    """Train to the end under the lock of the run, and show the result."""
    from lightning_fabric.loggers.tensorboard import TensorBoardLogger

    from certus.runs import RunLock
    from certus.runs.directory import CHECKPOINT
    from certus.runs.train_run import train_run
    from certus.training.callbacks import MetricsLogger, ProgressBar

    if fabric.global_rank != 0:
        train_run(run, model=model, fabric=fabric)
        return
    callbacks: list[Callback] = []
    if logs is not None:  # what an earlier process wrote there is hidden
        place = logs / run.path.resolve().name
        rule = "be a folder other than that of the runs"
        require(not out.same_place(place, run.path), "--tensorboard", rule, logs)
        messages.print(f"TensorBoard: tensorboard --logdir {logs}")
        logger = TensorBoardLogger(logs, name=place.name, version="", purge_step=1)
        callbacks.append(MetricsLogger(logger))
    try:
        words = functools.partial(_checkpoint_words, run)
        with RunLock(run.path, locking=locking), ProgressBar(messages) as bar, out.if_interrupted(words):
            train_run(run, model=model, callbacks=[bar, *callbacks], fabric=fabric)
    except WriteError as reason:
        if not (run.path / CHECKPOINT).exists():
            raise
        raise WriteError(f"{reason} {_checkpoint_words(run)}") from None
    assert run.result is not None
    show_run(run, run.result, as_json)


def _checkpoint_words(run: RunDirectory) -> str:
    """Return a sentence about the checkpoint of a run and the command that continues it."""
    from certus.runs.directory import CHECKPOINT, checkpoint_position
    from certus.runs.factory import read_settings

    try:
        (epoch, step), epochs = checkpoint_position(run.path / CHECKPOINT), read_settings(run).epochs
    except RunError as reason:
        return str(reason)
    done = f"{epoch} of {epochs} epochs" + (f" and {step} steps" if step else "")
    return f"{run.path} has a checkpoint after {done}; `certus resume {run.path}` continues."


def show_sources(sources: Sources | None) -> None:
    """Print the files of the user's code that the run is bound to."""
    if sources is not None:
        left = "".join(f", {name}" for name in sources.uncovered)
        files = ", ".join(sources.files)
        messages.print(f"The run records the sha256 of {files}, and not of installed packages{left}.")


def show_run(run: RunDirectory, result: dict[str, Any], as_json: bool) -> None:
    """Print a table of the last epochs and the final measurements."""
    from certus.bounds.smoothness import format_assumptions
    from certus.display.tables import epoch_parts, proof_words, reached_words
    from certus.runs.factory import read_settings

    history = run.history
    if as_json:
        settings = asdict(read_settings(run))
        out.print_json({"run": str(run.path), "settings": settings, "history": history, "result": result})
        return
    for part in epoch_parts(history):
        console.print(part)
    share = history[-1]["converged"] if history else None
    if share is not None and share < 0.5:
        messages.print(
            f"Only {share:.0%} of the inner problems converged: gamma is probably too small for the "
            "curvature of the loss, where the worst case may be unbounded. A larger gamma or a smaller "
            "rho may help."
        )
    words = [f"{name} {number(value)}" for name, value in result["test"].items()]
    console.print(f"On the unmoved test data: {', '.join(words)}.")
    if "regression" in result:
        regression = result["regression"]
        explained = f", R² {number(regression['r2'])}" if "r2" in regression else ""
        error = f"root mean squared error {number(regression['rmse'])}"
        console.print(f"In units of the target: {error}{explained}.")
    if "classes" in result:
        _show_classes(result["classes"])
    if result["robustness"] is not None:
        console.print(reached_words(result["robustness"]))
    if "smoothed" in result:
        smoothed = result["smoothed"]
        concavity = "the loss is unbounded, so concavity is not proven (it can be with --loss bounded)"
        if smoothed["threshold"] is not None:
            verb = "is" if smoothed["concave"] else "is not proven to be"
            proven = f"(proven for every gamma above {at_most(smoothed['threshold'], 5)})"
            concavity = f"averaged over all noise, it {verb} strongly concave {proven}"
        console.print(
            f"Inner problem with noise of sigma {smoothed['sigma']:g} at gamma {smoothed['gamma']:.4g}: "
            f"{concavity}; the moved points themselves are {smoothed['points']}."
        )
    if "proof" in result:
        proof = result["proof"]
        console.print(proof_words(proof))
        if proof.get("assumptions"):
            console.print(format_assumptions(tuple(proof["assumptions"])))
    console.print(f"Run directory: {run.path}")


def require_tensorboard(folder: Path | None) -> None:
    """Raise unless TensorBoard is installed and the folder can be written to."""
    if folder is None:
        return
    if importlib.util.find_spec("tensorboard") is None:
        raise UnsupportedError("--tensorboard needs tensorboard: pip install 'certus[tensorboard]'.")
    out.require_folder("--tensorboard", folder)


def _show_classes(classes: dict[str, Any]) -> None:
    """Print recall by class, balanced accuracy and the majority's share."""
    labels = classes["names"]
    if len(labels) <= _MOST_CLASSES:
        columns = zip(labels, classes["confusion"], classes["recall"], strict=True)
        rows = [(label, *map(str, counts), number(recall, 3)) for label, counts, recall in columns]
        console.print(make_table("true class", *labels, "recall", rows=rows))
        console.print("Counts of test samples: a row for each true class, a column for each predicted class.")
    label, share = labels[classes["majority"]], classes["majority_share"]
    majority = f"Always predicting {label} would be right on {share:.1%} of the test samples."
    console.print(f"Balanced accuracy {number(classes['balanced_accuracy'])}. {majority}")
    rarest = classes.get("rarest")
    if rarest is not None and rarest["share"] < _IMBALANCED / len(labels):
        precision, share = number(rarest["average_precision"]), number(rarest["share"])
        console.print(
            f"Rarest class: {labels[rarest['label']]}, {rarest['share']:.1%} of the test samples. Average "
            f"precision {precision} (a constant answer: {share}), AUC {number(rarest['auc'])}."
        )
    if classes["never_predicted"]:
        never = ", ".join(labels[at] for at in classes["never_predicted"][:_MOST_CLASSES])
        messages.print(f"Never predicted: {never}. With --class-weights balanced every class counts equally.")


def _show_columns(data: SplitDataset) -> None:
    """Print how each column of a table is encoded."""
    if data.recipe is None:
        return
    rows = []
    for column in data.recipe.columns:
        kind = "–" if column.kind == "dropped" else column.kind
        rows.append((column.name, kind, str(column.missing), str(column.distinct), column.becomes))
    heads = ("column", "kind", "missing", "distinct", "becomes")
    messages.print(make_table(*heads, rows=rows, words=("kind", "becomes")))
    what = "a regression" if data.classes is None else f"{data.classes} classes"
    messages.print(f"Target: {data.recipe.target} ({what}).")
    for note in data.notes:
        messages.print(note)
