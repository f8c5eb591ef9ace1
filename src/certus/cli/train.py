"""``certus train``, ``certus resume`` and ``certus import``: how they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from certus.cli.options import options_of
from certus.cli.shared_options import Json, ModelFile, NoLock, RunData
from certus.runs.settings import FLAGS, Settings

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
    from certus.cli.training_start import start_training

    start_training(
        context, data, model, output, options, logs=tensorboard, locking=not no_lock, as_json=as_json
    )


def resume(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    model: ModelFile = None,
    run_data: RunData = None,
    tensorboard: LogFolder = None,
    no_lock: NoLock = False,
    as_json: Json = False,
) -> None:
    """Go on with an interrupted run, exactly from its last checkpoint.

    \b
    certus resume runs/digits
    """
    from certus.cli.training_start import go_on

    go_on(context, run, model, run_data, logs=tensorboard, locking=not no_lock, as_json=as_json)


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
    certus import --model net.py:Net --weights net.safetensors --data mnist -o net
    """
    from certus.cli.imported_weights import import_into

    asked = Settings(data=data, model=model, method="erm", seed=seed, target=target, standardize=standardize)
    import_into(context, output, weights, asked, locking=not no_lock, as_json=as_json)
