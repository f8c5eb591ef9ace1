"""State of a soak: the seed, the number of finished cases of each kind, and their results."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.soak.tally import Case

FOLDER = Path(__file__).parents[2] / "build" / "soak"


@dataclass
class Progress:
    """Of one kind: cases done, sums of their counts, and violations."""

    done: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Case) -> None:
        self.done = max(self.done, case.number + 1)
        self.counts.update(case.counts)
        for what in case.violations:
            self.violations.append({"number": case.number, "words": case.words, "what": what})


@dataclass
class State:
    """All of it; kept in ``build/soak/state.json`` after every portion."""

    seed: int
    minutes: float = 0.0
    kinds: dict[str, Progress] = field(default_factory=dict)

    def of(self, kind: str) -> Progress:
        return self.kinds.setdefault(kind, Progress())

    def save(self, folder: Path = FOLDER) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "seed": self.seed,
            "minutes": self.minutes,
            "kinds": {
                name: {"done": entry.done, "counts": entry.counts, "violations": entry.violations}
                for name, entry in self.kinds.items()
            },
        }
        beside = folder / "state.json.new"
        beside.write_text(json.dumps(content, indent=1))
        os.replace(beside, folder / "state.json")

    @staticmethod
    def load(folder: Path = FOLDER, seed: int | None = None) -> State:
        """The one that was kept, unless another seed is asked for: then a new one, the old one put aside."""
        path = folder / "state.json"
        if path.exists():
            content = json.loads(path.read_text())
            if seed is None or seed == content["seed"]:
                return State(
                    content["seed"],
                    content["minutes"],
                    {
                        name: Progress(entry["done"], Counter(entry["counts"]), entry["violations"])
                        for name, entry in content["kinds"].items()
                    },
                )
            os.replace(path, folder / f"state-{content['seed']}.json")
        return State(int.from_bytes(os.urandom(4), "big") if seed is None else seed)
