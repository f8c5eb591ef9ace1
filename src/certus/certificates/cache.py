"""Cached proposals of an interrupted certification, and the comparison of results.

A cached file is bound to its problem, to the version of the code and to its own content by digests. These
reveal damage and proposals for another problem, not forgery. Forgery does no harm: the kernel bounds φ̄_γ
anew from cached moves, and attained values are evaluated again. A bad move makes a bound loose, never wrong.

Numbers are compared relative to their size, since threads and processor instructions change the order of
sums. Measured on certificates of five networks (MLPs of 512 and 256 units, a CNN, features of size 10⁻⁶, a
regression), all numbers agree to 10⁻¹⁵ on 1 and 2 threads, and to 8·10⁻¹⁴ with and without AVX, where the
farthest is the proven cost of an error at a sample next to the boundary. A tolerance of 10⁻⁹ leaves room for
larger networks, and for samples nearer to it. Zero, infinity and integers are compared exactly.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import certus
from certus.certificates.proposals import on_grid
from certus.storage.files import RunError, code_digest
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import WriteError, remove_stale_temporaries

TOLERANCE = 1e-9


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """List the differences of two JSON documents: of fractions if above 10⁻⁹ of their size, else of any size.

    >>> differences({"rho": [1.0, 1e-6]}, {"rho": [1.0 + 1e-12, 1.1e-6]})
    ['rho[1]: 1e-06, now 1.1e-06']
    """
    missing: list[str] = []
    if isinstance(first, dict) and isinstance(second, dict):
        missing = [
            f"{path}.{name}".removeprefix(".") + f": {'gone' if name in first else 'new'}"
            for name in sorted(first.keys() ^ second.keys())
        ]
        names = sorted(first.keys() & second.keys())
        pairs = [(f"{path}.{name}", first[name], second[name]) for name in names]
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(first, second, strict=True))]
    elif isinstance(first, list) and isinstance(second, list):
        return [f"{path.removeprefix('.')}: {len(first)} entries, now {len(second)}"]
    else:
        return [] if _same(first, second) else [f"{path.removeprefix('.')}: {first}, now {second}"]
    return missing + [difference for place, a, b in pairs for difference in differences(a, b, place)]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second  # True is no 1
    if isinstance(first, float) and isinstance(second, float) and first != second:
        return abs(first - second) <= TOLERANCE * max(abs(first), abs(second)) < float("inf")
    return bool(first == second)


def table_differences(first: str, second: str) -> list[str]:
    """List the differences of two tables of samples, in the same way."""

    def number(cell: str) -> object:
        try:
            return float(cell)
        except ValueError:
            return cell

    def rows(text: str) -> list[list[object]]:
        return [[number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]

    return differences(rows(first), rows(second), "samples.csv")


_ATTEMPTS = 5
_OTHER = "it belongs to another problem, or to another version of the bounds"


@dataclass(frozen=True)
class TensorCache:
    """Tensors in a folder, by name.

    Attributes:
        question: JSON of everything that the tensors depend on, except their names and the code: settings,
            digests of weights and samples.
        remark: called with a sentence about every file that cannot be used.
    """

    folder: Path
    question: object
    remark: Callable[[str], None] = lambda sentence: None

    @property
    def count(self) -> int:
        """The number of cached files of this problem."""
        return len(self._own())

    def clear(self) -> None:
        """Remove the files of this problem; those of others stay, so that their certifications can resume."""
        for path in self._own():
            path.unlink(missing_ok=True)
        remove_stale_temporaries(self.folder)
        with suppress(OSError):
            self.folder.rmdir()  # if it is empty

    def read(self, name: str, words: str, about: dict[str, object]) -> dict[str, Tensor] | None:
        """Read the tensors cached for this problem under a name; None if there are none that are valid.

        Args:
            words: description of the file in a remark; about: entries that the file must have been written
                with.
        """
        path = self._file(name)
        try:
            tensors, note = load_tensors(path)
        except RunError as reason:
            if path.exists():  # else another process, with the same question, has its answer
                self.drop(name, words, str(reason).rstrip("."))
            return None
        if note != self._note(about):
            self.drop(name, words, _OTHER)
            return None
        return tensors

    def write(self, name: str, tensors: dict[str, Tensor], about: dict[str, object]) -> None:
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
        """Remove a file that cannot be used, and report why."""
        self._file(name).unlink(missing_ok=True)
        self.remark(f"{words} is computed again: {reason}.")

    def _own(self) -> list[Path]:
        return list(self.folder.glob(f"{self._key[:16]}-*.safetensors"))

    @property
    def _key(self) -> str:
        parts = [code_digest(), certus.__version__, torch.__version__, self.question]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _note(self, about: dict[str, object]) -> dict[str, object]:
        return {"question": self._key, "code_digest": code_digest(), **about}

    def _file(self, name: str) -> Path:
        return self.folder / f"{self._key[:16]}-{name}.safetensors"


@dataclass(frozen=True)
class ProposalCache(TensorCache):
    """Moves that ascents proposed, one file per γ and portion of the samples; resumes ``certify``."""

    def load(self, gamma: float, portion: int, shape: tuple[int, ...]) -> Tensor | None:
        """Return the cached moves at γ, float32 and on their grid; None if there are none of this shape."""
        name, about = _file_of(gamma, portion)
        words = f"The cached result at gamma = {gamma:.6g}"
        moves = (self.read(name, words, about) or {}).get("moves")
        if moves is not None and (moves.shape != shape or moves.dtype != torch.float32):
            self.drop(name, words, f"it does not hold moves of {shape[1]} samples")
            return None
        return None if moves is None else on_grid(moves.flatten(0, 1)).reshape(shape)

    def save(self, gamma: float, portion: int, moves: Tensor) -> None:
        name, about = _file_of(gamma, portion)
        self.write(name, {"moves": moves}, about)


def _file_of(gamma: float, portion: int) -> tuple[str, dict[str, object]]:
    """Return the name of a file, and the entries that it is written with."""
    return f"{gamma.hex()}-{portion}", {"gamma": gamma.hex(), "portion": portion}
