"""Writing files so that a reader never sees half of one, whatever happens to the writer."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from certus.errors import CertusError


class RunError(CertusError):
    """A run directory cannot be written, read or trusted; the message says which file and why."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content, or leave it as it was.

    Written beside it, flushed to the disk, then renamed: a crash, a kill or a full disk leaves either the
    old file or the new one.
    """
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.fchmod(handle, 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as reason:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise RunError(f"Cannot write {path}: {reason.strerror}. Nothing was lost.") from None


def write_json(path: Path, content: object) -> None:
    """Replace a JSON file."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json.loads(path.read_text())
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except ValueError:
        raise RunError(f"{path} is corrupt: it is no JSON file.") from None
