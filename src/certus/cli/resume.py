"""``certus resume``: continue an interrupted training from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from certus.cli.options import Json, ModelFile, NoLock, RunData, of_network, refuse_idle
from certus.cli.output import messages
from certus.cli.train import LogFolder


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

    go_on(context, run, model, run_data, logs=tensorboard, locking=not no_lock, as_json=as_json)


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
    from certus.cli.train import carry_out, make_fabric, require_tensorboard, show_run
    from certus.runs.directory import RunDirectory

    opened, fabric = RunDirectory.open(run, data=run_data), make_fabric()
    trained = None if opened.result is None else f"for {run}, which is complete: no epoch is left to log"
    refuse_idle(context, of_network(opened) | {"tensorboard": trained})
    require_tensorboard(logs)
    if opened.result is None:
        carry_out(opened, fabric, model, logs=logs, locking=locking, as_json=as_json)
    elif fabric.global_rank == 0:
        messages.print(f"{run} is complete already.")
        show_run(opened, opened.result, as_json)
