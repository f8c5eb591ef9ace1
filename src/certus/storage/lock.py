"""One process at a time in a run directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from certus.storage.files import RunError


class RunLock:
    """Held from ``with`` to its end; the system releases it when the process dies, however it dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        self._handle: int | None = None

    def __enter__(self) -> RunLock:
        try:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as reason:
            raise RunError(f"Cannot write {self._path}: {reason.strerror}.") from None
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._handle)
            self._handle = None
            raise RunError(f"{self._path.parent} is in use by another process (pid {owner}).") from None
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
