"""What became of the mutants: one line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass
class Result:
    """One mutant.

    Attributes:
        id: of the ``Mutant``, in the code of ``commit``.
        before, after: the lines that differ.
        outcome, by: see ``Trial``.
        why: why a survivor may survive.
    """

    id: str
    commit: str
    before: str
    after: str
    outcome: str
    by: str
    seconds: float
    why: str = ""


def read_results(path: Path) -> dict[str, Result]:
    """By id; the last line of an id counts."""
    lines = path.read_text().splitlines() if path.exists() else []
    results = (Result(**json.loads(line)) for line in lines)
    return {result.id: result for result in results}


def append(result: Result, path: Path) -> None:
    with path.open("a") as file:
        file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")


def rewrite(results: Iterable[Result], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))
