"""Cached dual values of an interrupted certification, their validation, and the comparison of results.

A cached file is bound to its problem, to the version of the code and to its own content by digests. These
reveal damage and values of another problem, not forgery; ``certus verify`` computes everything again. Before
cached dual values are used, they must satisfy, sample by sample,

    ℓ(x₀) ≤ φ̄_γ,        ℓ(T̂) − γ c(T̂) ≤ φ̄_γ,        attained cost of an error ≥ proven cost,

and agree with a few samples, chosen by a fixed seed, that are computed again.

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
from certus.certificates.dual_values import PER_SAMPLE, DualValues
from certus.kernel.rules import Rule
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
    """The same for two tables of samples."""

    def number(cell: str) -> object:
        try:
            return float(cell)
        except ValueError:
            return cell

    def rows(text: str) -> list[list[object]]:
        return [[number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]

    return differences(rows(first), rows(second), "samples.csv")


SPOT_CHECKED = 8  # samples that are computed again
_SEED = 0


def spot_checked_samples(count: int) -> Tensor:
    """Return the indices of the samples that are computed again, of n, in order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_SEED))[:SPOT_CHECKED].sort().values


def cached_fault(level: DualValues, start: Tensor, floor: Tensor | None, clip: float | None) -> str | None:
    """Return why dual values cannot be those of these samples; None if they can.

    Args:
        start: (n,) ℓ at the samples, rounded down and clipped.
        floor: (n,) no error costs less; None for regression.
        clip: B, if it is min(ℓ, B) that is certified.
    """
    costs = (level.bound, level.transport_cost, level.loss, level.attained_error_cost)
    shaped = all(value.shape == start.shape and value.dtype == torch.float64 for value in costs)
    if not shaped or level.rule.shape != start.shape or level.rule.dtype != torch.int64:
        return f"it does not hold numbers for {len(start)} samples"
    if bool(((level.rule < 0) | (level.rule >= len(Rule))).any()):
        return "it names a rule that there is not"
    moves = torch.isfinite(level.transport_cost) & (level.transport_cost >= 0) & torch.isfinite(level.loss)
    if not bool(moves.all()):
        return "its costs and losses are not those of points"
    # Written so that NaN fails, too.
    if clip is not None and not bool(((level.bound <= clip) & (level.loss <= clip)).all()):
        return f"it exceeds the clip {clip:g}"
    if not bool((start <= level.bound).all()):
        return "a bound is below the loss of the sample itself"
    if not bool((level.loss - level.gamma * level.transport_cost <= level.bound).all()):
        return "what was attained exceeds a bound"
    least = torch.full_like(start, torch.inf) if floor is None else floor
    if not bool((level.attained_error_cost >= least).all()):
        return "an error costs less than is certified"
    return None


def cached_disagreement(level: DualValues, index: Tensor, again: DualValues) -> str | None:
    """Return why dual values are not reproduced at some samples; None if they are."""
    for name in ("bound", "transport_cost", "loss", "attained_error_cost"):
        kept, now = getattr(level, name)[index], getattr(again, name)
        near = (kept - now).abs() <= TOLERANCE * torch.maximum(kept.abs(), now.abs())
        if not bool(((kept == now) | near).all()):
            return "some of its samples come out otherwise"
    return None


_ATTEMPTS = 5
_OTHER = "it belongs to another problem, or to another version of the bounds"


@dataclass(frozen=True)
class TensorCache:
    """Tensors in a folder, by name.

    Attributes:
        question: all that they depend on beside their names and the code, as JSON: settings, digests of
            weights and samples.
        remark: called with a sentence for every file that is not used.
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
class DualValueCache(TensorCache):
    """Finished dual values in a folder, one file per γ and batch of samples; resumes ``certify``."""

    def load(self, gamma: float, portion: int = 0) -> DualValues | None:
        """Return the cached dual values of this problem at γ; None if there are none that are valid."""
        tensors = self.read(_name(gamma, portion), _words(gamma), _about(gamma, portion))
        if tensors is not None and tensors.keys() != set(PER_SAMPLE):
            self.reject(gamma, portion, _OTHER)
            return None
        return None if tensors is None else DualValues(gamma, **tensors)

    def reject(self, gamma: float, portion: int, reason: str) -> None:
        """Remove dual values that cannot be used, and report why."""
        self.drop(_name(gamma, portion), _words(gamma), reason)

    def save(self, level: DualValues, portion: int = 0) -> None:
        tensors = {name: getattr(level, name) for name in PER_SAMPLE}
        self.write(_name(level.gamma, portion), tensors, _about(level.gamma, portion))


def _name(gamma: float, portion: int) -> str:
    return f"{gamma.hex()}-{portion}"


def _about(gamma: float, portion: int) -> dict[str, object]:
    return {"gamma": gamma.hex(), "portion": portion}


def _words(gamma: float) -> str:
    return f"The cached result at gamma = {gamma:.6g}"
