"""``--tensorboard DIR``: what is measured in each epoch, for TensorBoard, in a folder named after the run."""

from __future__ import annotations

from pathlib import Path

from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from certus.cli.output import messages, require_folder, same_place
from certus.errors import UnsupportedError, require
from certus.training import Observer
from certus.training.callbacks import Logged

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


def tensorboard_of(folder: Path | None, run: Path) -> list[Observer]:
    """Who writes DIR/RUN, if anybody is asked to; epochs that a resumed run had before are written again.

    What an earlier process wrote there from the first epoch on is then hidden, so each epoch counts once.
    """
    if folder is None:
        return []
    place = folder / run.resolve().name
    require(not same_place(place, run), OPTION, "be another folder than that of the runs", folder)
    messages.print(f"TensorBoard: tensorboard --logdir {folder}")
    return [Logged(TensorBoardLogger(folder, name=place.name, version="", purge_step=1))]
