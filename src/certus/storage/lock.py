"""One process at a time in a folder."""

from __future__ import annotations

import contextlib
import errno
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from certus.storage.files import RunError
from certus.storage.writing import sweep_temporaries

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # where there are soft locks only; see _system_lock
    from filelock import BaseFileLock, FileLock, SoftFileLock

LOCK = ".lock"
_MISSING = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


class LockError(RunError):
    """A folder is in use by another process."""


class NoLockError(RunError):
    """A folder cannot be locked at all; the message offers ``--no-lock``."""


class RunLock:
    """Held from ``with`` to its end; the system releases it when the process dies, however it dies.

    Whoever holds it sweeps away what killed processes have left unfinished.

    Args:
        locking: False leaves the lock alone, where the system has none.
        waiting: called once before waiting for another process; None refuses instead of waiting.
    """

    def __init__(
        self, folder: Path, *, locking: bool = True, waiting: Callable[[], None] | None = None
    ) -> None:
        self._folder, self._locking, self._waiting = folder, locking, waiting
        self._held = contextlib.ExitStack()

    def __enter__(self) -> RunLock:
        if self._locking:
            self._acquire()
            sweep_temporaries(self._folder, locked=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def _acquire(self) -> None:
        path = self._folder / LOCK
        if not self._folder.is_dir():  # which would be made, else
            raise RunError(f"Cannot write {path}: there is no such folder.")
        try:
            lock = _system_lock(path)
            try:
                lock.acquire(timeout=0)
            except TimeoutError:
                if self._waiting is None:
                    words = f"{self._folder} is in use by another process{_owner(path)}."
                    raise LockError(words) from None
                self._waiting()
                lock.acquire()
        except OSError as reason:
            if reason.errno not in _MISSING:
                raise RunError(f"Cannot write {path}: {reason.strerror}.") from None
            raise self._missing(str(reason.strerror)) from None
        except NotImplementedError:
            raise self._missing("this system has none") from None
        self._held.callback(lock.release)
        with contextlib.suppress(OSError):
            path.write_text(f"{os.getpid()}\n")

    def _missing(self, why: str) -> NoLockError:
        return NoLockError(
            f"{self._folder} needs a lock, and there is none to be had: {why}. "
            "If no other process uses the folder, --no-lock continues without one."
        )


def _system_lock(path: Path) -> BaseFileLock:
    """A lock that the system drops with its holder: a file alone would outlive a killed process."""
    if issubclass(FileLock, SoftFileLock):
        raise NotImplementedError
    return FileLock(path, fallback_to_soft=False)


def _owner(path: Path) -> str:
    """Who holds the lock, where it can be read."""
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return ""
    return f" (pid {text})" if text.isdecimal() else ""
