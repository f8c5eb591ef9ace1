"""What certus does on a disk that is full: run by test_full_disk.py, in a process that has such a disk.

python -m tests.runs.full_disk DISK OTHER     DISK has 256 kB, OTHER has room
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from certus.datasets.fetching import fetch_package, run
from certus.errors import ArgumentError
from certus.storage.write import WriteError, write_atomically
from tests.cli.test_cli import certus
from tests.datasets.test_cache import held, package, quiet, small
from tests.runs.metrics import without_time

TRAIN = [
    *("train", "breast-cancer", "--model", "mlp:32:elu", "--rho", "0.05"),
    *("--epochs", "2", "--batch-size", "64", "-o", "run"),
]
FULL = "No space left on device"


def leave(disk: Path, kilobytes: int) -> None:
    """Fill the disk but for so much, by a file named ballast."""
    ballast = disk / "ballast"
    with pytest.raises(OSError, match=FULL):
        ballast.write_bytes(bytes(1 << 20))
    os.truncate(ballast, ballast.stat().st_size - 1024 * kilobytes)


def check_a_file_is_replaced_or_kept(disk: Path) -> None:
    write_atomically(disk / "x", b"old")
    leave(disk, 8)
    write_atomically(disk / "x", b"new" * 1000)
    with pytest.raises(
        WriteError, match=f"Cannot write {disk / 'x'}: {FULL}. Its previous content is unchanged."
    ):
        write_atomically(disk / "x", bytes(20_000))
    assert (disk / "x").read_bytes() == b"new" * 1000
    assert {path.name for path in disk.iterdir()} == {"x", "ballast"}


def check_a_training_goes_on_when_there_is_room(disk: Path, other: Path) -> None:
    """The checkpoint of the first epoch fits; a second one beside it, before it is replaced, does not."""
    assert certus(*TRAIN, folder=other).returncode == 0
    leave(disk, 44)
    done = certus(*TRAIN, folder=disk)
    assert done.returncode == 2, done
    wanted = (
        f"certus: error: Cannot write run/checkpoint.safetensors: {FULL}. Its previous content is unchanged. "
        "run has a checkpoint after 1 of 2 epochs; `certus resume run` continues."
    )
    assert done.stderr.splitlines()[-1] == wanted, done
    assert certus("resume", "run", folder=disk).returncode == 2
    (disk / "ballast").unlink()
    done = certus("resume", "run", folder=disk)
    assert done.returncode == 0, done
    for file in ("model.safetensors", "result.json"):
        assert (disk / "run" / file).read_bytes() == (other / "run" / file).read_bytes()
    assert without_time(disk / "run") == without_time(other / "run")


def check_a_fetch_leaves_the_cache_as_it_was(disk: Path) -> None:
    cache = disk / "cache"
    kept = fetch_package(package(lambda _: small()), cache, quiet).path.read_bytes()
    leave(disk, 0)
    with pytest.raises(ArgumentError, match=f"`cache` must be a writable folder .* got {cache} .*{FULL}"):
        fetch_package(package(lambda _: small(1)), cache, quiet)
    assert held(cache) == ["small.safetensors"]
    os.truncate(disk / "ballast", (disk / "ballast").stat().st_size - 40_000)
    for script in ("head -c 100000 /dev/zero > package", "head -c 100000 /dev/zero > package 2> /dev/null"):

        def download(folder: Path, script: str = script) -> Path:
            run("the client", ["sh", "-c", script], folder)
            return folder

        with pytest.raises(ArgumentError, match=f"`cache` must be a writable folder .* got {cache} .*{FULL}"):
            fetch_package(package(lambda _: small(1), download), cache, quiet)
    assert held(cache) == ["small.safetensors"]
    assert (cache / "small.safetensors").read_bytes() == kept


if __name__ == "__main__":
    here, elsewhere = Path(sys.argv[1]), Path(sys.argv[2])
    check_a_file_is_replaced_or_kept(here)
    check_a_training_goes_on_when_there_is_room(here, elsewhere)
    check_a_fetch_leaves_the_cache_as_it_was(here)
