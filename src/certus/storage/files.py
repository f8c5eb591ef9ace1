"""Strict reading of JSON and regular files, and the errors of files.

The errors of files, and JSON read strictly.

Reading what others have put there: regular files only, and no more bytes than a reader can use.

A device, a pipe or a socket may never end, or wait for somebody; a header may promise more than there is.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from certus.errors import CertusError

MOST_JSON = 2**28
MOST_DEPTH = 64


class RunError(CertusError):
    """A run directory cannot be written, read or trusted; the message says which file and why."""


class CorruptFileError(RunError):
    """A file is not what certus wrote: it was damaged, or altered."""


def read_json(path: Path) -> Any:
    """The content of a JSON file, read by ``parse_json``."""
    try:
        return parse_json(read_regular(path, MOST_JSON).decode())
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except CorruptFileError as reason:
        raise CorruptFileError(f"{path} is corrupt: {reason}") from None
    except ValueError:
        raise RunError(f"{path} is corrupt: it is no JSON file.") from None


def parse_json(text: str) -> Any:
    """JSON in which every key of an object is its own, and every number is finite: what certus writes.

    Other readers take the first or the last of two equal keys, so that one file would say two things.

    >>> parse_json('{"rho": 0.1, "rho": 0.2}')
    Traceback (most recent call last):
    certus.storage.files.CorruptFileError: the key "rho" is there twice.
    """
    try:
        content = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
    except RecursionError:
        raise CorruptFileError("it is nested too deeply.") from None
    _check_depth(content)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise CorruptFileError(f'the key "{name}" is there twice.')
        found[name] = value
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise CorruptFileError(f"{text[:20]} is no finite number.")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(number := int(text)) >= 2**63:
        raise CorruptFileError(f"{text[:20]}… is too large a number.")
    return number


def _check_depth(content: Any) -> None:
    """Whoever reads on may recurse."""
    layer, depth = [content], 0
    while layer:
        depth += 1
        if depth > MOST_DEPTH:
            raise CorruptFileError("it is nested too deeply.")
        inside = (
            one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, dict | list)
        )
        layer = [one for values in inside for one in values if isinstance(one, dict | list)]


_CHUNK = 2**20


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def open_regular(path: Path, most: int | None = None) -> BinaryIO:
    """A regular file, open for reading; raises ``OSError`` for anything else.

    Args:
        most: refuse a file of more bytes.
    """
    try:
        # Without waiting: to open a pipe is to wait for a writer.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except ValueError:  # a NUL byte, or half of a surrogate pair
        raise OSError(errno.EINVAL, "its name is no name of a file", str(path)) from None
    about = os.fstat(handle)
    problem = None
    if stat.S_ISDIR(about.st_mode):
        problem = OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    elif not stat.S_ISREG(about.st_mode):
        problem = OSError(errno.EINVAL, "it is a device, a pipe or a socket, not a regular file", str(path))
    elif most is not None and about.st_size > most:
        problem = OSError(
            errno.EFBIG, f"it has {about.st_size} bytes, and at most {most} are read", str(path)
        )
    if problem is not None:
        os.close(handle)
        raise problem
    return os.fdopen(handle, "rb")


def read_regular(path: Path, most: int) -> bytes:
    """All bytes of a regular file of at most so many; raises ``OSError`` for anything else."""
    with open_regular(path, most) as stream:
        content = read_up_to(stream, most + 1)
    if len(content) > most:  # a file of the system, whose size is said to be 0, or one that grows
        raise OSError(errno.EFBIG, f"it has more than the {most} bytes that are read", str(path))
    return content


def read_up_to(stream: _Readable, count: int) -> bytes:
    """The next bytes, fewer at the end. Memory is taken for those that there are, not for those asked for."""
    parts = []
    while count > 0 and (part := stream.read(min(count, _CHUNK))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
