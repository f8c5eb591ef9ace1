"""Cached dual values of an interrupted certification, and their validation.

Where two certificates, or two tables of samples, differ.

Numbers are compared relative to their size: as many digits count for features of size 10⁻⁶ as for those of
size 1. On another number of threads, or with other instructions of the processor, sums are taken in another
order. Measured on certificates of five networks (MLPs of 512 and 256 units, a CNN, features of size 10⁻⁶, a
regression): all numbers agree to 10⁻¹⁵ of their size on 1 and 2 threads, and to 8·10⁻¹⁴ with and without AVX,
where the farthest is the certified cost of an error at a sample next to the boundary. 10⁻⁹ leaves room for
larger networks, and for samples nearer to it. Zero, infinity and whole numbers are compared exactly.

What is asked of a level that was kept, before it is used again.

Whatever was computed for these samples satisfies, sample by sample,

    ℓ(x₀) ≤ φ̄_γ,        ℓ(T̂) − γ c(T̂) ≤ φ̄_γ,        the cost of an error found ≥ the certified one,

and a few samples, chosen by a fixed seed, come out the same when they are computed again. A level that fails
was damaged, or belongs elsewhere. One that passes may still have been forged at other samples.

What an interrupted certification keeps in files, so that it can resume.

A file is bound to the question, to the version of the bounds and to its own content by digests. They find
damage and answers to another problem, not forgery: see ``recall`` for what else is asked of a level, and
``certus verify`` for a certificate that rests on nothing kept.
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
from certus.certificates.proven.duality_gap import Rule
from certus.storage.files import RunError, code_digest
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import WriteError, remove_stale_temporaries

TOLERANCE = 1e-9


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two JSON documents differ: fractions by more than 10⁻⁹ of their size, anything else at all.

    >>> differences({"rho": [1.0, 1e-6]}, {"rho": [1.0 + 1e-12, 1.1e-6]})
    ['rho[1]: 1e-06, now 1.1e-06']
    """
    if isinstance(first, dict) and isinstance(second, dict):
        missing = [
            f"{path}.{name}".removeprefix(".") + f": {'gone' if name in first else 'new'}"
            for name in sorted(first.keys() ^ second.keys())
        ]
        return missing + [
            found
            for name in sorted(first.keys() & second.keys())
            for found in differences(first[name], second[name], f"{path}.{name}")
        ]
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return [f"{path.removeprefix('.')}: {len(first)} entries, now {len(second)}"]
        return [
            found
            for index, (a, b) in enumerate(zip(first, second, strict=True))
            for found in differences(a, b, f"{path}[{index}]")
        ]
    return [] if _same(first, second) else [f"{path.removeprefix('.')}: {first}, now {second}"]


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second  # True is no 1
    if isinstance(first, float) and isinstance(second, float) and first != second:
        return abs(first - second) <= TOLERANCE * max(abs(first), abs(second)) < float("inf")
    return bool(first == second)


def table_differences(first: str, second: str) -> list[str]:
    """The same for two tables of samples."""

    def rows(text: str) -> list[list[object]]:
        return [[_number(cell) for cell in row] for row in csv.reader(io.StringIO(text))]

    return differences(rows(first), rows(second), "samples.csv")


def _number(cell: str) -> object:
    try:
        return float(cell)
    except ValueError:
        return cell


SPOT_CHECKED = 8  # samples that are computed again
_SEED = 0


def spot_checked_samples(count: int) -> Tensor:
    """Which of n samples are computed again, in their order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(_SEED))[:SPOT_CHECKED].sort().values


def cached_fault(level: DualValues, start: Tensor, floor: Tensor | None, clip: float | None) -> str | None:
    """Why a level cannot be that of these samples; None if nothing speaks against it.

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
    """Whether some samples, computed again, came out otherwise; None if not."""
    for name in ("bound", "transport_cost", "loss", "attained_error_cost"):
        kept, now = getattr(level, name)[index], getattr(again, name)
        near = (kept - now).abs() <= TOLERANCE * torch.maximum(kept.abs(), now.abs())
        if not bool(((kept == now) | near).all()):
            return "some of its samples come out otherwise"
    return None


_ATTEMPTS = 5


def _in_silence(text: str) -> None:
    """What is said to nobody."""


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
    remark: Callable[[str], None] = _in_silence

    @property
    def count(self) -> int:
        """How many files of this question are kept."""
        return len(self._own())

    def forget(self) -> None:
        """Remove the files of this question. Those of others stay: somebody may go on with them."""
        for path in self._own():
            path.unlink(missing_ok=True)
        remove_stale_temporaries(self.folder)
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
        asked = [code_digest(), certus.__version__, torch.__version__, self.question]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def _note(self, about: dict[str, object]) -> dict[str, object]:
        return {"question": self._key, "code_digest": code_digest(), **about}

    def _file(self, name: str) -> Path:
        return self.folder / f"{self._key[:16]}-{name}.safetensors"


@dataclass(frozen=True)
class DualValueCache(TensorCache):
    """Finished levels in a folder, each of one portion of the samples, by its number."""

    def load(self, gamma: float, portion: int = 0) -> DualValues | None:
        """The level, if it was kept for this very question and is as it was written."""
        tensors = self.read(_name(gamma, portion), _words(gamma), _about(gamma, portion))
        if tensors is None:
            return None
        if tensors.keys() != set(PER_SAMPLE):
            self.reject(
                gamma, portion, "it was kept for another question, or by another version of the bounds"
            )
            return None
        return DualValues(gamma, **tensors)

    def reject(self, gamma: float, portion: int, reason: str) -> None:
        """Drop a level that cannot be used, and say why."""
        self.drop(_name(gamma, portion), _words(gamma), reason)

    def save(self, level: DualValues, portion: int = 0) -> None:
        tensors = {name: getattr(level, name) for name in PER_SAMPLE}
        self.write(_name(level.gamma, portion), tensors, _about(level.gamma, portion))


def _name(gamma: float, portion: int) -> str:
    return f"{gamma.hex()}-{portion}"


def _about(gamma: float, portion: int) -> dict[str, object]:
    return {"gamma": gamma.hex(), "portion": portion}


def _words(gamma: float) -> str:
    return f"The kept level of gamma = {gamma:.6g}"
