"""``certus resume``: continue an interrupted training from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from certus.cli.options import (
    PATH,
    argument,
    command,
    json_option,
    model_option,
    no_lock_option,
    refuse_unused,
    run_data_option,
    tensorboard_option,
    unused_by_network,
)
from certus.cli.output import messages
from certus.cli.train import carry_out, make_fabric, require_tensorboard, show_run


@command("resume", panel="Train")
@argument("run", type=PATH)
@model_option
@run_data_option
@tensorboard_option
@no_lock_option
@json_option
@click.pass_context
def resume(
    context: click.Context,
    run: Path,
    model: str | None,
    run_data: str | None,
    tensorboard: Path | None,
    no_lock: bool,
    as_json: bool,
) -> None:
    """Continue an interrupted training from its last checkpoint.

    \b
    certus resume runs/digits

    RUN is a run directory. The result is the same as without the interruption.
    """
    from certus.runs.directory import RunDirectory

    opened, fabric = RunDirectory.open(run, data=run_data), make_fabric()
    complete = None if opened.result is None else f"for {run}, which is complete: no epoch is left to log"
    refuse_unused(context, unused_by_network(opened) | {"tensorboard": complete})
    require_tensorboard(tensorboard)
    if opened.result is None:
        carry_out(opened, fabric, model, logs=tensorboard, locking=not no_lock, as_json=as_json)
    elif fabric.global_rank == 0:
        messages.print(f"{run} is complete already.")
        show_run(opened, opened.result, as_json)
