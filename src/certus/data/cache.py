"""Fetched data on disk: one checked file for each data set, put into place whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from certus.data.arrays import Array
from certus.data.splits import digest_arrays
from certus.errors import ArgumentError
from certus.storage.files import open_regular
from certus.storage.write import RunLock, write_atomically

FORMAT = "certus-data-1"
UNFINISHED = ".fetch-"


def default_cache() -> Path:
    """$CERTUS_CACHE, else $XDG_CACHE_HOME/certus, else ~/.cache/certus."""
    try:
        if named := os.environ.get("CERTUS_CACHE"):
            return Path(named).expanduser()
        if shared := os.environ.get("XDG_CACHE_HOME"):
            return Path(shared) / "certus"
        return Path.home() / ".cache" / "certus"
    except RuntimeError as problem:  # ~nobody, or nobody's home
        raise ArgumentError(f"`CERTUS_CACHE` must name a folder: {problem}") from None


def cache_file(name: str, cache: Path | None = None) -> Path:
    """Where the data set lies once it is fetched."""
    return (cache or default_cache()) / f"{name}.safetensors"


@contextmanager
def workspace(
    cache: Path, report: Callable[[str], None] = lambda line: None, *, locking: bool = True
) -> Iterator[Path]:
    """A temporary folder on the cache's own disk, gone afterwards; one process at a time has one.

    What a killed process left behind is removed first. That is safe because of the lock: the system drops it
    with the process that held it, so a folder found under the lock belongs to nobody.

    Args:
        locking: False where the file system has no locks; then nothing is removed.
    """

    def waiting() -> None:
        report(f"waiting for another fetch into {cache}")

    try:
        cache.mkdir(parents=True, exist_ok=True)
        with RunLock(cache, locking=locking, waiting=waiting):
            for stale in cache.glob(f"{UNFINISHED}*") if locking else ():
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=cache) as folder:
                yield Path(folder)
    except OSError as problem:
        raise no_room(cache, str(problem)) from problem


def no_room(cache: Path, problem: str) -> ArgumentError:
    """The error to raise where the cache cannot be written to."""
    return ArgumentError(f"`cache` must be a folder with room to write; got {cache} ({problem}).")


def store(name: str, arrays: Mapping[str, Array], checks: Mapping[str, str], cache: Path) -> Path:
    """Write the arrays with their digest into the cache."""
    finished = cache_file(name, cache)
    metadata = {**checks, "certus": FORMAT, "sha256": digest_arrays(arrays)}
    # Written by ourselves: a file that safetensors writes may be read by its owner only.
    content = save({key: np.ascontiguousarray(array) for key, array in arrays.items()}, metadata)
    write_atomically(finished, content)
    return finished


def read(
    name: str, known: str, cache: Path | None = None, *, fetch: str | None = None
) -> tuple[dict[str, Array], str]:
    """The arrays of a data set, and their digest.

    Args:
        known: the sha256 of the source. What the file says about itself proves nothing: whoever changed the
            arrays could change that as well.
        fetch: the command that fetches it; `certus data get` with its name by default.
    """
    path = cache_file(name, cache)
    again = f"run `{fetch or f'certus data get {name}'}`"
    if not path.exists():
        raise ArgumentError(f"`{name}` must be fetched first: {again} (looked for {path}).")
    try:
        open_regular(path).close()
        with safe_open(path, framework="np") as stored:
            metadata = stored.metadata() or {}
            arrays = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118  (not a mapping)
    # Types that NumPy does not have, such as bfloat16, end in others than safetensors' own errors.
    except (OSError, ValueError, TypeError, AttributeError, SafetensorError) as problem:
        raise ArgumentError(f"`{path}` is damaged ({problem}); {again} to fetch it again.") from problem
    if metadata.get("certus") != FORMAT:
        raise ArgumentError(f"`{path}` is not of the format {FORMAT}; {again} to fetch it again.")
    sha256 = digest_arrays(arrays)
    if sha256 != known:
        raise ArgumentError(
            f"`{path}` is damaged (its checksum does not match: sha256 {sha256[:12]}… instead of "
            f"{known[:12]}…); {again} to fetch it again."
        )
    return arrays, sha256
