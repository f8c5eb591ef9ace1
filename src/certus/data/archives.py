"""Packages of npm are read as they come: nothing of them is unpacked onto the disk."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def opened_archive(package: Path) -> Iterator[tarfile.TarFile]:
    """The archive for reading; whatever goes wrong in it is a ``ValueError``."""
    try:
        with tarfile.open(package, "r:gz") as archive:
            yield archive
    # An OSError of a reader is about the package, not about the disk.
    except (tarfile.TarError, OSError) as problem:
        raise ValueError(str(problem)) from problem


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """One file of an npm package, by its path in there."""
    found = archive.extractfile(f"package/{name}")
    if found is None:
        raise ValueError(f"{name} is no file")
    return found
