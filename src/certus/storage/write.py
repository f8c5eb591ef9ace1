"""Atomic writing of files and of groups of files, with locks and checksums.

A group of files is written as a transaction: into a temporary folder, which is then renamed to ``.complete``.
From then on this process, or the next one that holds the lock, moves the files into place. The
last file, the commit marker, is absent while the others are exchanged.

A checksum reveals damage: a flipped bit, a number edited by hand, half of a merge. A forger can write a
new checksum; against forgery only recomputing helps.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import platform
import re
import shutil
import stat
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from certus.storage.files import CorruptFileError, RunError

_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TEMPORARY = re.compile(r"\.(?P<file>.+)\.(?P<host>[0-9a-f]{8})-(?P<process>\d+)-\d+\.tmp", re.DOTALL)
_counts = itertools.count()


class WriteError(RunError):
    """A file cannot be written; the message names the file, the reason and the fate of the old content."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a regular file, through links, by new content, or leave it as it was: after a crash, a kill or
    on a full disk either the old content or the new one is there."""
    target = resolve_target(path)
    remove_stale_temporaries(target.parent, target.name)
    temporary, note = temporary_path(target), ""
    try:
        with temporary.open("xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
                note = " Its previous content is unchanged."
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as reason:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(reason, OSError):
            raise WriteError(f"Cannot write {path}: {reason.strerror}.{note}") from reason
        raise


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file atomically."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def resolve_target(path: Path) -> Path:
    """Follow all links to the file to be replaced; raise ``WriteError`` unless it is a regular file."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    except OSError as reason:
        raise WriteError(f"Cannot write {path}: {reason.strerror}.") from reason
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        raise WriteError(f"Cannot write {path}: it is {kind}, and only files are replaced.")
    return target


def temporary_path(target: Path) -> Path:
    """Return a temporary path that encodes host and PID, so that stale files can be detected."""
    return target.with_name(f".{_label(target.name)}.{_HOST}-{os.getpid()}-{next(_counts)}.tmp")


def _label(name: str) -> str:
    """Name of a file, shortened to a hash if the temporary name would be too long for a file system."""
    return name if len(os.fsencode(name)) <= 200 else f"{zlib.crc32(os.fsencode(name)):08x}"


def is_temporary(name: str) -> bool:
    """Whether a name was made by ``temporary_path``."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_stale_temporaries(folder: Path, name: str | None = None, *, locked: bool = False) -> None:
    """Remove temporary files of killed processes from a folder: of one file, or of all. A caller that has
    ``locked`` the folder removes those of other hosts, too."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # writing there will fail with the reason
        return
    wanted = None if name is None else _label(name)
    for entry in entries:
        match = _TEMPORARY.fullmatch(entry.name)
        if match is None or wanted not in (None, match["file"]):
            continue
        here = match["host"] == _HOST
        if (here and not _is_alive(int(match["process"]))) or (locked and not here):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # there, asking would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # of another user
        pass
    return True


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about systems that have soft locks only
    from filelock import FileLock, SoftFileLock

LOCK = ".lock"
_MISSING = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


class LockError(RunError):
    """A folder is in use by another process."""


class RunLock:
    """Lock of a folder, held in a ``with`` block; the system releases it when the process ends.

    On entry, temporary files of killed processes are removed.

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
        if not self._locking:
            return self
        path = self._folder / LOCK
        if not self._folder.is_dir():  # which filelock would create
            raise RunError(f"Cannot write {path}: there is no such folder.")
        try:
            if issubclass(FileLock, SoftFileLock):  # a plain file, which would outlive a killed process
                raise OSError(errno.ENOSYS, "this system has no file locks")
            lock = FileLock(path, fallback_to_soft=False)
            try:
                lock.acquire(timeout=0)
            except TimeoutError:
                if self._waiting is None:
                    raise LockError(f"{self._folder} is in use by another process{_holder(path)}.") from None
                self._waiting()
                lock.acquire()
        except OSError as reason:
            if reason.errno not in _MISSING:
                raise RunError(f"Cannot write {path}: {reason.strerror}.") from None
            raise RunError(
                f"{self._folder} cannot be locked: {reason.strerror}. "
                "If no other process uses the folder, add --no-lock."
            ) from None
        self._held.callback(lock.release)
        with contextlib.suppress(OSError):
            path.write_text(f"{os.getpid()}\n")
        remove_stale_temporaries(self._folder, locked=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()


def _holder(path: Path) -> str:
    """Return " (pid …)" of the process that holds a lock; empty if it cannot be read."""
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        return ""
    return f" (pid {text})" if text.isdecimal() else ""


@contextlib.contextmanager
def temporary_folder(target: Path, named: Path, verb: str) -> Iterator[Path]:
    """Yield a new temporary folder beside ``target``, and remove it after the block; errors say "cannot", the
    verb and the ``named`` path."""
    folder = temporary_path(target)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        yield folder
    except WriteError as reason:
        raise WriteError(str(reason).replace(str(folder), str(named))) from None
    except OSError as reason:
        raise WriteError(f"Cannot {verb} {named}: {reason.strerror}.") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_COMPLETE = ".complete"
_DESCRIPTION = "graph.json"  # the only JSON file that is not the last of its group


@contextlib.contextmanager
def file_transaction(folder: Path, last: str, *, locking: bool = True) -> Iterator[Path]:
    """Yield a temporary folder; at the end of the block move its files into ``folder``, all at once. The
    ``last`` is the one that a reader looks for first, a JSON file."""
    with temporary_folder(folder / _COMPLETE, folder, "write into") as written:
        yield written
        with RunLock(folder, locking=locking, waiting=lambda: None):  # others hold it only briefly
            _put_in_place(folder, last)
            os.rename(written, folder / _COMPLETE)
            _put_in_place(folder, last)


def finish_transaction(folder: Path, last: str, *, locking: bool = True) -> None:
    """Finish a transaction that a killed process left pending; wait for one in progress."""
    with RunLock(folder, locking=locking, waiting=lambda: None):
        _put_in_place(folder, last)


def pending_transaction(folder: Path) -> Path:
    """Folder of a pending transaction; it does not exist if there is none."""
    return folder / _COMPLETE


def _put_in_place(folder: Path, last: str) -> None:
    ready = folder / _COMPLETE
    names = os.listdir(ready) if ready.is_dir() else []
    if last not in names:  # there is nothing, or it was written by a command of another kind
        last = next((name for name in names if name.endswith(".json") and name != _DESCRIPTION), "")
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


CHECKSUM = "sha256"


def add_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the SHA-256 of its other entries, in sorted keys and without spaces.

    >>> once = add_checksum({"rho": 0.1})
    >>> once["sha256"][:8], add_checksum(once) == once
    ('610d21b8', True)
    """
    rest = without_checksum(content)
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {CHECKSUM: hashlib.sha256(text.encode()).hexdigest()}


def without_checksum(content: dict[str, Any]) -> dict[str, Any]:
    """Return a document without its checksum."""
    return {name: value for name, value in content.items() if name != CHECKSUM}


def verify_checksum(content: Any, name: object) -> dict[str, Any]:
    """Return a document without its checksum; raise ``CorruptFileError`` unless it matches."""
    if not isinstance(content, dict) or CHECKSUM not in content:
        raise CorruptFileError(f"{name} is corrupt: it has no {CHECKSUM}.")
    if content[CHECKSUM] != add_checksum(content)[CHECKSUM]:
        raise CorruptFileError(
            f"{name} is corrupt: its content does not have the {CHECKSUM} it was written with."
        )
    return without_checksum(content)
