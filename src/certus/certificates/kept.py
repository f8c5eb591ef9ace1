"""Levels kept in files, so that an interrupted certification goes on where it was.

A file is bound to the question, to the version of the bounds and to its own content by digests. They find
damage and levels of another problem, not forgery: see ``recall`` for what else is asked of a level, and
``certus verify`` for a certificate that rests on none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

import torch

import certus
from certus.certificates.levels import Level
from certus.certificates.proven.version import BOUNDS_VERSION
from certus.storage.files import RunError
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.writing import WriteError, sweep_temporaries

_ATTEMPTS = 5
_TENSORS = {field.name for field in fields(Level)} - {"gamma"}


def _in_silence(text: str) -> None:
    """What is said to nobody."""


@dataclass(frozen=True)
class FileMemory:
    """Finished levels in a folder.

    Attributes:
        question: all that a level depends on beside γ and the code, as JSON: settings, digests of weights and
            samples.
        remark: called with a sentence for every level that is not used.
    """

    folder: Path
    question: object
    remark: Callable[[str], None] = _in_silence

    def load(self, gamma: float) -> Level | None:
        """The level, if it was kept for this very question and is as it was written."""
        path = self._file(gamma)
        try:
            tensors, note = load_tensors(path)
        except RunError as reason:
            if not path.exists():  # or no longer: another process, with the same question, has its answer
                return None
            self.reject(gamma, str(reason).rstrip("."))
            return None
        if note != self._note(gamma) or tensors.keys() != _TENSORS:
            self.reject(gamma, "it was kept for another question, or by another version of the bounds")
            return None
        return Level(gamma, **tensors)

    def reject(self, gamma: float, reason: str) -> None:
        """Drop a level that cannot be used, and say why."""
        self._file(gamma).unlink(missing_ok=True)
        self.remark(f"The kept level of gamma = {gamma:.6g} is computed again: {reason}.")

    def save(self, level: Level) -> None:
        tensors = {name: getattr(level, name) for name in _TENSORS}
        for attempt in range(_ATTEMPTS):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                save_tensors(self._file(level.gamma), tensors, self._note(level.gamma))
                return
            except WriteError as reason:
                # Another process that has finished takes the folder away, if it seems to be empty.
                if not isinstance(reason.__cause__, FileNotFoundError) or attempt == _ATTEMPTS - 1:
                    raise

    @property
    def count(self) -> int:
        """How many levels of this question are kept."""
        return len(self._own())

    def forget(self) -> None:
        """Remove the levels of this question. Those of others stay: somebody may go on with them."""
        for path in self._own():
            path.unlink(missing_ok=True)
        sweep_temporaries(self.folder)
        with suppress(OSError):
            self.folder.rmdir()  # if it is empty

    def _own(self) -> list[Path]:
        return list(self.folder.glob(f"{self._key[:16]}-*.safetensors"))

    @property
    def _key(self) -> str:
        asked = [BOUNDS_VERSION, certus.__version__, torch.__version__, self.question]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def _note(self, gamma: float) -> dict[str, object]:
        return {"question": self._key, "bounds_version": BOUNDS_VERSION, "gamma": gamma.hex()}

    def _file(self, gamma: float) -> Path:
        return self.folder / f"{self._key[:16]}-{gamma.hex()}.safetensors"
