"""Files that a reader never sees half of, whatever happens to the writer."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import re
import shutil
import stat
import sys
import zlib
from pathlib import Path

from certus.storage.files import RunError

_HOST = f"{zlib.crc32(platform.node().encode()):08x}"
_TEMPORARY = re.compile(r"\.(?P<file>.+)\.(?P<host>[0-9a-f]{8})-(?P<process>\d+)-\d+\.tmp", re.DOTALL)
_counts = itertools.count()


class WriteError(RunError):
    """A file cannot be written; the message says which, why, and what became of the old one."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content, or leave it as it was.

    Written beside it, flushed to the disk, then renamed: a crash, a kill or a full disk leaves either the
    old file or the new one. A link is followed, and what is no file is never replaced.
    """
    target = replaceable(path)
    sweep_temporaries(target.parent, target.name)
    temporary, kept = temporary_beside(target), ""
    try:
        with temporary.open("xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
                kept = " What it held before is kept."
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as reason:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(reason, OSError):
            raise WriteError(f"Cannot write {path}: {reason.strerror}.{kept}") from reason
        raise


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def replaceable(path: Path) -> Path:
    """The file that the path means, at the end of all links; raises ``WriteError`` for what is no file."""
    target = Path(os.path.realpath(path))
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return target
    except OSError as reason:
        raise WriteError(f"Cannot write {path}: {reason.strerror}.") from reason
    if not stat.S_ISREG(mode):
        raise WriteError(f"Cannot write {path}: it is {_words(mode)}, and only files are replaced.")
    return target


def _words(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((words for holds, words in kinds.items() if holds(mode)), "a device")


def temporary_beside(target: Path) -> Path:
    """A new name in the same folder that says whose it is, so that somebody else can tell when nobody's."""
    return target.with_name(f".{_label(target.name)}.{_HOST}-{os.getpid()}-{next(_counts)}.tmp")


def _label(name: str) -> str:
    """The name of a file, unless its temporary would have one too long for a file system."""
    return name if len(os.fsencode(name)) <= 200 else f"{zlib.crc32(os.fsencode(name)):08x}"


def is_temporary(name: str) -> bool:
    """Whether it is a name of ``temporary_beside``."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep_temporaries(folder: Path, name: str | None = None, *, locked: bool = False) -> None:
    """Remove what killed processes have left unfinished in a folder: of one file, or of all.

    Args:
        locked: nobody else writes into the folder, so that what processes of other machines left goes, too.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError:  # whoever writes there will say why not
        return
    wanted = None if name is None else _label(name)
    for entry in entries:
        found = _TEMPORARY.fullmatch(entry.name)
        if found is None or wanted not in (None, found["file"]):
            continue
        here = found["host"] == _HOST
        if (here and not _is_alive(int(found["process"]))) or (locked and not here):
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
    except (PermissionError, OverflowError):  # somebody else's
        return True
    return True
