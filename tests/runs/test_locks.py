"""Systems and file systems without locks: certus says so, offers to go on without, and is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
TRAIN = ["train", "wine", "--model", "mlp:4:elu", "--method", "erm", "--epochs", "1", "-o", "run"]

NO_MODULE = "import sys; sys.modules['fcntl'] = None"
NO_LOCKS = """
import errno, fcntl

def refuse(handle, operation):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = refuse
"""
COMMANDS = """
import sys
from certus.cli.app import main

for words in sys.argv[1:]:
    sys.argv = ["certus", *words.split()]
    try:
        main()
    except SystemExit as left:
        print("exit", left.code, flush=True)
"""


def python(code: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def check(missing: str, why: str, folder: Path) -> None:
    """Refused in one line, with nothing left behind; then the same command with --no-lock."""
    train = " ".join(TRAIN)
    done = python(missing + COMMANDS, train, f"{train} --no-lock", "runs", folder=folder)
    codes = [line for line in done.stdout.splitlines() if line.startswith("exit")]
    assert codes == ["exit 2", "exit 0", "exit 0"], done
    words = f"run cannot be locked: {why}. If no other process uses the folder,"
    assert f"certus: error: {words} add --no-lock.\n" in done.stderr
    assert (folder / "run/result.json").exists()
    assert not (folder / "run/.lock").exists()


def test_a_system_without_fcntl(tmp_path: Path) -> None:
    imported = python(f"{NO_MODULE}; import certus; certus.fit, certus.runs, certus.mdp", folder=tmp_path)
    assert imported.returncode == 0, imported.stderr
    check(NO_MODULE, "this system has no file locks", tmp_path)


def test_a_file_system_without_locks(tmp_path: Path) -> None:
    check(NO_LOCKS, "No locks available", tmp_path)
