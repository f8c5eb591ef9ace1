"""How a run directory comes into being: whole or not at all, and made by one process of several.

It is built beside its place and renamed. A folder that is there already, and empty, stays the same one: it
gets its files under its lock, the settings last, and until then counts as empty.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from certus.runs.recorder import CHECKPOINT, METRICS
from certus.storage.files import RunError
from certus.storage.write import LOCK, RunLock, WriteError, is_temporary, sweep_temporaries, temporary_beside

SETTINGS, SPLIT, MODEL, RESULT = "run.json", "split.safetensors", "model.safetensors", "result.json"
MADE_WITH = (SPLIT, MODEL, RESULT, SETTINGS)
"""What a run is made with, in the order in which an existing folder gets them."""


class TakenError(RunError):
    """There is something else where a run should be made."""


def settled(path: Path) -> Path:
    """The path that ``..`` leads to, even through folders that do not exist; others as they are."""
    return Path(os.path.realpath(path)) if ".." in path.parts else path


def require_name(path: Path) -> None:
    """Raise ``RunError`` for a path that is not UTF-8: tensor files cannot be read there."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise RunError(f"The name of a run must be valid UTF-8; got {path}: choose or rename it.") from None


def require_free(path: Path) -> None:
    """Raise ``TakenError`` unless a run can be made there; ``RunError`` for a name that is not UTF-8."""
    require_name(path)
    if os.path.lexists(path) and not _is_free(path):
        if (path / SETTINGS).exists():
            complete = (path / RESULT).exists()
            go_on = "choose another `--output`" if complete else f"`certus resume {path}` continues it"
            hint = f"it holds a {'complete ' if complete else ''}run; {go_on}"
        else:
            hint = f"{'the folder is not empty' if path.is_dir() else 'it is no folder'}; choose another"
        raise TakenError(f"{path} is taken: {hint}.")


@contextmanager
def new_run(path: Path, *, locking: bool = True) -> Iterator[Path]:
    """A folder to write the files of a run into; at the end of the block they are at ``path``.

    Args:
        locking: see ``RunLock``; it matters where the folder exists.
    """
    require_free(path)
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep_temporaries(target.parent, target.name)
        exists = target.is_dir()
        beside = temporary_beside(target / "run" if exists else target)
        beside.mkdir()
    except OSError as reason:
        raise WriteError(f"Cannot make {path}: {reason.strerror}.") from None
    try:
        yield beside
        if exists:
            with RunLock(target, locking=locking):
                require_free(path)
                for name in MADE_WITH:
                    with suppress(FileNotFoundError):
                        os.rename(beside / name, target / name)
        else:
            os.rename(beside, target)
    except WriteError as reason:
        raise WriteError(str(reason).replace(str(beside), str(path))) from None
    except OSError as reason:
        if reason.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            require_free(path)
        raise WriteError(f"Cannot make {path}: {reason.strerror}.") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def withdraw(path: Path, *, keep_folder: bool) -> None:
    """Remove a run of which nothing is worth keeping."""
    for name in (SETTINGS, CHECKPOINT, METRICS, *MADE_WITH, LOCK):
        (path / name).unlink(missing_ok=True)
    if not keep_folder:
        with suppress(OSError):
            path.rmdir()


def _is_free(path: Path) -> bool:
    """Whether a folder is empty, but for what a process that was killed while it made a run has left."""
    try:
        names = {name for name in os.listdir(path) if name != LOCK and not is_temporary(name)}
    except OSError:
        return False
    return not names or (SPLIT in names and SETTINGS not in names and names <= set(MADE_WITH))
