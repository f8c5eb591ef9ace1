"""The ordinary package clients, pip, apt and npm, used to download a package without installing it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from certus.errors import CertusError


class ClientError(CertusError):
    """A client is missing or failed; the message is one line."""


def download_wheel(requirement: str, folder: Path) -> Path:
    """Let pip download one wheel into ``folder``. Nothing is installed, and no code of the package runs."""
    # Only wheels: pip would run the build script of a source package to learn its name.
    options = ["--no-deps", "--only-binary=:all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    run(
        "pip download",
        [sys.executable, "-m", "pip", "download", *options, "--dest", ".", requirement],
        folder,
    )
    return _only(folder, "*.whl")


def download_debian(package: str, folder: Path) -> Path:
    """Let apt download one package into ``folder`` and unpack it there; needs no root. Returns the root."""
    run("apt-get download", ["apt-get", "download", "--quiet", package], folder)
    unpacked = folder / "unpacked"
    run("dpkg-deb", ["dpkg-deb", "-x", str(_only(folder, "*.deb")), str(unpacked)], folder)
    return unpacked


def download_npm(spec: str, folder: Path) -> Path:
    """Let npm download one package into ``folder``, without what it depends on. No code of it runs."""
    if shutil.which("npm") is None:
        raise ClientError("npm is missing (it comes with Node.js, or by apt-get install npm)")
    # By itself npm tries again for minutes where there is no network.
    waits = ["--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000"]
    run("npm pack", ["npm", "pack", spec, "--ignore-scripts", "--loglevel=error", *waits], folder)
    return _only(folder, "*.tgz")


def run(client: str, command: Sequence[str], folder: Path) -> None:
    """Run a client in ``folder``; its last error line becomes the message of a ``ClientError``."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as problem:
        raise ClientError(f"{client} cannot be run ({problem.strerror})") from problem
    if done.returncode != 0:
        raise ClientError(f"{client} failed ({last_error(done.stderr) or f'exit code {done.returncode}'})")


def last_error(output: str) -> str:
    """The last line that a client calls an error, or npm's first, else the last line.

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
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise ClientError(f"the client left {len(found)} files {pattern} instead of 1")
    return found[0]
