"""Result of a case, and sums over many cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LISTENERS: list[Callable[[int, str], None]] = []
"""Told the number and the words of every case as it begins: of one that dies nothing else is known."""


@dataclass
class Case:
    """One case: what it was about, what was counted, and what must not have happened."""

    number: int
    words: str
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for listener in LISTENERS:
            listener(self.number, self.words)

    def count(self, name: str, times: int = 1) -> None:
        self.counts[name] += times

    def violate(self, what: str) -> None:
        self.violations.append(what)

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "words": self.words,
            "counts": self.counts,
            "violations": self.violations,
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Case:
        return Case(
            content["number"], content["words"], Counter(content["counts"]), list(content["violations"])
        )
