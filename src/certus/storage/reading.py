"""Reading what others have put there: regular files only, and no more bytes than a reader can use.

A device, a pipe or a socket may never end, or wait for somebody; a header may promise more than there is.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Protocol

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
