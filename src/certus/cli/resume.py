"""``certus resume``: continue an interrupted training from its checkpoint."""

from __future__ import annotations

from pathlib import Path

from certus.cli import options as cli
from certus.cli.output import messages
from certus.cli.train import (
    device_option,
    make_fabric,
    require_tensorboard,
    show_run,
    train_and_show,
)


@cli.command("resume")
@cli.takes_run
@device_option
@cli.tensorboard_option
@cli.no_lock_option
@cli.json_option
def resume(run: cli.TypedRun, device: str, tensorboard: Path | None, no_lock: bool, as_json: bool) -> None:
    """Continue an interrupted training from its last checkpoint.

    \b
    certus resume runs/digits

    RUN is a run directory. The result is the same as without the interruption.
    """
    from certus.runs.factory import read_settings

    opened = run.open()
    fabric = make_fabric(device, read_settings(opened).precision)
    if opened.result is not None:
        cli.refuse_unused({"tensorboard": f"for {run.path}, which is complete: no epoch is left to log"})
    require_tensorboard(tensorboard)
    if opened.result is None:
        train_and_show(opened, fabric, run.model, logs=tensorboard, locking=not no_lock, as_json=as_json)
    elif fabric.global_rank == 0:
        messages.print(f"{run.path} is complete already.")
        show_run(opened, opened.result, as_json)
