"""The working copy of the test folder within a process, restored after every change."""

from __future__ import annotations

import contextlib
import encodings
import importlib
import os
import pkgutil
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from tools.soak.box import Snapshot, changes, copy_box, make_box, snapshot
from tools.soak.sandbox import NOBODY

_LATE = ("bz2", "lzma", "zipfile", "gzip", "getpass", "pwd", "tempfile", "ot", "sklearn.datasets", "uuid")


@dataclass
class Ground:
    """A copy of a box in a folder of its own; ``fresh`` before each case."""

    box: Path
    folder: Path
    before: Snapshot = field(default_factory=dict)

    def fresh(self) -> Path:
        """The folder as it was at the start."""
        os.chdir("/")
        if not self.before or snapshot(self.folder) != self.before:
            copy_box(self.box, self.folder / "box")
            self.before = snapshot(self.folder)
        return self.folder / "box"

    def changes(self) -> tuple[set[str], set[str]]:
        """Paths that were altered or removed, and new ones, relative to the box."""
        altered, made = changes(self.box.parent, self.folder, self.before, snapshot(self.folder))
        return {_inner(path) for path in altered}, {_inner(path) for path in made}


def _inner(path: str) -> str:
    return path.removeprefix("box/")


def warm_up() -> None:
    """Import what is imported on first use: nobody may not be allowed to read where Python is installed."""
    Image.init()
    names = [f"encodings.{module.name}" for module in pkgutil.iter_modules(encodings.__path__)]
    for name in (*names, *_LATE):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@contextmanager
def boxed() -> Iterator[Path]:
    """A box, readable by everybody, for as long as it is needed."""
    warm_up()
    with _temporary() as folder:
        kept = dict(os.environ)
        make_box(folder / "box")
        os.environ.clear()
        os.environ.update(kept)  # commands had a home in the box
        os.chdir("/")
        yield folder / "box"


@contextmanager
def ground(box: Path) -> Iterator[Ground]:
    """A place to copy it to, writable by whoever commands run as."""
    with _temporary() as folder:
        if os.getuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        yield Ground(box, folder)


@contextmanager
def _temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="certus-soak-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for path in folder.glob("box/locked"):
            path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)
