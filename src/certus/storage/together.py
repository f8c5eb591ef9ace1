"""Several files that belong to each other: whoever sees the last of them sees all of one writing.

They are written into a folder of their own, which then gets the name ``.complete``: from there on, whatever
happens, they will be put into their places, by this process or by the next one that holds the lock. The last
file, which names or seals the others, is away while they are exchanged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from certus.storage.lock import RunLock
from certus.storage.writing import WriteError, temporary_beside, write_atomically

_COMPLETE = ".complete"


@contextlib.contextmanager
def appearing_together(folder: Path, last: str, *, locking: bool = True) -> Iterator[Path]:
    """A folder to write into; at the end of the block its files are in ``folder``, all at once.

    Args:
        last: the file that a reader looks for first, the only JSON file among them.
        locking: see ``RunLock``.
    """
    written = temporary_beside(folder / _COMPLETE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written.mkdir()
        yield written
        with RunLock(folder, locking=locking, waiting=_in_patience):
            _put_in_place(folder, last)
            os.rename(written, folder / _COMPLETE)
            _put_in_place(folder, last)
    except WriteError as reason:
        raise WriteError(str(reason).replace(str(written), str(folder))) from None
    except OSError as reason:
        raise WriteError(f"Cannot write into {folder}: {reason.strerror}.") from None
    finally:
        shutil.rmtree(written, ignore_errors=True)


def complete(folder: Path, last: str, *, locking: bool = True) -> None:
    """Put into place what a killed process had written; waits for one that is alive."""
    with RunLock(folder, locking=locking, waiting=_in_patience):
        _put_in_place(folder, last)


def pending(folder: Path) -> Path:
    """Where the files lie that are to be put into place; there is no such folder if there are none."""
    return folder / _COMPLETE


def remove_files(folder: Path, names: Iterable[str]) -> None:
    """Remove files that no longer belong to the rest."""
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def _put_in_place(folder: Path, last: str) -> None:
    ready = folder / _COMPLETE
    names = os.listdir(ready) if ready.is_dir() else []
    if last not in names:  # there is nothing, or it was written by a command of another kind
        last = next((name for name in names if name.endswith(".json")), "")
    if last == "":  # all but the empty folder is done
        shutil.rmtree(ready, ignore_errors=True)
        return
    if not (folder / last).is_symlink():
        (folder / last).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: (name == last, name)):
        if (folder / name).is_symlink():
            write_atomically(folder / name, (ready / name).read_bytes())
        else:
            os.replace(ready / name, folder / name)
    shutil.rmtree(ready, ignore_errors=True)


def _in_patience() -> None:
    """Others hold this lock for a moment only."""
