"""What an interrupted certification keeps in files, so that it can resume.

A file is bound to the question, to the version of the bounds and to its own content by digests. They find
damage and answers to another problem, not forgery: see ``recall`` for what else is asked of a level, and
``certus verify`` for a certificate that rests on nothing kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import certus
from certus.certificates.levels import PER_SAMPLE, Level
from certus.certificates.proven.version import BOUNDS_VERSION
from certus.storage.files import RunError
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import WriteError, sweep_temporaries

_ATTEMPTS = 5


def _in_silence(text: str) -> None:
    """What is said to nobody."""


@dataclass(frozen=True)
class KeptFiles:
    """Tensors in a folder, by name.

    Attributes:
        question: all that they depend on beside their names and the code, as JSON: settings, digests of
            weights and samples.
        remark: called with a sentence for every file that is not used.
    """

    folder: Path
    question: object
    remark: Callable[[str], None] = _in_silence

    @property
    def count(self) -> int:
        """How many files of this question are kept."""
        return len(self._own())

    def forget(self) -> None:
        """Remove the files of this question. Those of others stay: somebody may go on with them."""
        for path in self._own():
            path.unlink(missing_ok=True)
        sweep_temporaries(self.folder)
        with suppress(OSError):
            self.folder.rmdir()  # if it is empty

    def read(self, name: str, words: str, about: dict[str, object]) -> dict[str, Tensor] | None:
        """What was kept for this very question, as it was written; None if there is nothing such.

        Args:
            words: what it is called in a remark; about: what it must have been written with.
        """
        path = self._file(name)
        try:
            tensors, note = load_tensors(path)
        except RunError as reason:
            if path.exists():  # else another process, with the same question, has its answer
                self.drop(name, words, str(reason).rstrip("."))
            return None
        if note != self._note(about):
            self.drop(name, words, "it was kept for another question, or by another version of the bounds")
            return None
        return tensors

    def write(self, name: str, tensors: dict[str, Tensor], about: dict[str, object]) -> None:
        """Keep tensors under a name."""
        for attempt in range(_ATTEMPTS):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                save_tensors(self._file(name), tensors, self._note(about))
                return
            except WriteError as reason:
                # Another process that has finished takes the folder away, if it seems to be empty.
                if not isinstance(reason.__cause__, FileNotFoundError) or attempt == _ATTEMPTS - 1:
                    raise

    def drop(self, name: str, words: str, reason: str) -> None:
        """Remove what cannot be used, and say why."""
        self._file(name).unlink(missing_ok=True)
        self.remark(f"{words} is computed again: {reason}.")

    def _own(self) -> list[Path]:
        return list(self.folder.glob(f"{self._key[:16]}-*.safetensors"))

    @property
    def _key(self) -> str:
        asked = [BOUNDS_VERSION, certus.__version__, torch.__version__, self.question]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def _note(self, about: dict[str, object]) -> dict[str, object]:
        return {"question": self._key, "bounds_version": BOUNDS_VERSION, **about}

    def _file(self, name: str) -> Path:
        return self.folder / f"{self._key[:16]}-{name}.safetensors"


@dataclass(frozen=True)
class FileMemory(KeptFiles):
    """Finished levels in a folder, each of one portion of the samples, by its number."""

    def load(self, gamma: float, portion: int = 0) -> Level | None:
        """The level, if it was kept for this very question and is as it was written."""
        tensors = self.read(_name(gamma, portion), _words(gamma), _about(gamma, portion))
        if tensors is None:
            return None
        if tensors.keys() != set(PER_SAMPLE):
            self.reject(
                gamma, portion, "it was kept for another question, or by another version of the bounds"
            )
            return None
        return Level(gamma, **tensors)

    def reject(self, gamma: float, portion: int, reason: str) -> None:
        """Drop a level that cannot be used, and say why."""
        self.drop(_name(gamma, portion), _words(gamma), reason)

    def save(self, level: Level, portion: int = 0) -> None:
        tensors = {name: getattr(level, name) for name in PER_SAMPLE}
        self.write(_name(level.gamma, portion), tensors, _about(level.gamma, portion))


def _name(gamma: float, portion: int) -> str:
    return f"{gamma.hex()}-{portion}"


def _about(gamma: float, portion: int) -> dict[str, object]:
    return {"gamma": gamma.hex(), "portion": portion}


def _words(gamma: float) -> str:
    return f"The kept level of gamma = {gamma:.6g}"
