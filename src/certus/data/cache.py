"""Fetched data on disk: one checked file for each data set, put into place whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
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
from certus.storage.reading import open_regular

if sys.platform != "win32":
    import fcntl


FORMAT = "certus-data-1"
UNFINISHED, LOCK = ".fetch-", ".lock"


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
def workspace(cache: Path, report: Callable[[str], None] = lambda line: None) -> Iterator[Path]:
    """A temporary folder on the cache's own disk, gone afterwards; one process at a time has one.

    What a killed process left behind is removed first. That is safe because of the lock: the system drops it
    with the process that held it, so a folder found under the lock belongs to nobody.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache, report):
            for stale in cache.glob(f"{UNFINISHED}*"):
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=cache) as folder:
                yield Path(folder)
    except OSError as problem:
        raise ArgumentError(
            f"`cache` must be a folder with room to write; got {cache} ({problem})."
        ) from problem


@contextmanager
def _locked(cache: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the cache. Its file stays: to remove it would let two processes lock two files."""
    # Opened for writing, because network file systems lock nothing else.
    with (cache / LOCK).open("a") as handle:
        if sys.platform != "win32":  # a folder in use cannot be removed there, which protects it as well
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"waiting for another fetch into {cache}")
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def store(
    name: str, arrays: Mapping[str, Array], checks: Mapping[str, str], folder: Path, cache: Path
) -> Path:
    """Write the arrays with their digest into ``folder``, then move the finished file into the cache."""
    unfinished, finished = folder / f"{name}.safetensors", cache_file(name, cache)
    metadata = {**checks, "certus": FORMAT, "sha256": digest_arrays(arrays)}
    # Written by ourselves: a file that safetensors writes may be read by its owner only.
    unfinished.write_bytes(
        save({key: np.ascontiguousarray(array) for key, array in arrays.items()}, metadata)
    )
    os.replace(unfinished, finished)
    return finished


def read(name: str, known: str, cache: Path | None = None) -> tuple[dict[str, Array], str]:
    """The arrays of a data set, and their digest.

    Args:
        known: the sha256 of the source. What the file says about itself proves nothing: whoever changed the
            arrays could change that as well.
    """
    path = cache_file(name, cache)
    again = f"run `certus data get {name}`"
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
