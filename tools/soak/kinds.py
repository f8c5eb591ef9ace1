"""The four kinds of cases: their wanted numbers, and how a portion of them is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools.soak import peers
from tools.soak.entries import KILLED
from tools.soak.files import try_file
from tools.soak.ground import Ground, boxed, ground
from tools.soak.killing import Reference, killed_command, reference, try_kill
from tools.soak.lines import try_line
from tools.soak.problems import try_problem
from tools.soak.sandbox import Limits, in_forks
from tools.soak.tally import Case

GOALS = {"problems": 2000, "kills": 200, "files": 100_000, "lines": 5000}
"""Cases; a case of ``problems`` holds several (``drawn.SETS``)."""

PORTIONS = {"problems": 20, "kills": 5, "files": 500, "lines": 50}
_LIMITS = {
    "problems": Limits(120, confined=False),
    "kills": Limits(300),
    "files": Limits(30),
    "lines": Limits(120),
}


@dataclass
class Kinds:
    """What all cases share: the box and what undisturbed commands leave, made when first needed."""

    stack: ExitStack
    box: Path | None = None
    references: dict[str, Reference] = field(default_factory=dict)

    def tried(self, kind: str, seed: int, numbers: Sequence[int]) -> Iterator[Case]:
        """Cases of one kind, in forks."""
        if kind == "problems":
            peers.warm_up()
            yield from in_forks(numbers, lambda number: try_problem(seed, number), _LIMITS[kind])
            return
        if self.box is None:
            self.box = self.stack.enter_context(boxed())
        if kind == "kills":
            with ground(self.box) as here:
                for name in {killed_command(number) for number in numbers} - self.references.keys():
                    self.references[name] = reference(KILLED[name], here)
        with ground(self.box) as here:
            yield from in_forks(numbers, lambda number: self._try(kind, here, seed, number), _LIMITS[kind])

    def _try(self, kind: str, here: Ground, seed: int, number: int) -> Case:
        if kind == "kills":
            return try_kill(here, self.references, seed, number)
        return try_line(here, seed, number) if kind == "lines" else try_file(here, seed, number)
