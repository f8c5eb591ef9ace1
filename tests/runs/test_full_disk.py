"""A disk that is full: a real one, of 256 kB, mounted where no other process sees it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = ["unshare", "--map-root-user", "--mount", "--"]
MOUNT = 'mount -t tmpfs -o size=256k tmpfs "$1"'


def can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*ALONE, "sh", "-c", MOUNT, "sh", str(folder)], capture_output=True, check=False)
    return tried.returncode == 0


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """See tests/runs/full_disk.py; a limit on the size of files is in test_storage.py, for every system."""
    disk, other = tmp_path / "disk", tmp_path / "other"
    disk.mkdir()
    other.mkdir()
    if not can_mount(disk):
        pytest.skip("this system lets nobody mount a disk of their own")
    script = f'{MOUNT} && exec "$2" -m tests.runs.full_disk "$1" "$3"'
    command = [*ALONE, "sh", "-c", script, "sh", str(disk), sys.executable, str(other)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(disk.iterdir()) == []
