"""Survivors against the kernel itself, on those of the fixed problems that reach their lines."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time
from typing import Any

from tools.mutation.mutants import KERNEL, ROOT, Mutant
from tools.mutation.trials import forked, in_place, install, watched_lines

RECORD = ROOT / "build" / "kernel-problems.json"
_SECONDS = 300
_HARMLESS = ("equal", "loosens")


def sort_kinds(wanted: Iterable[Mutant], results: dict[str, Any], keep: Callable[[Any], None]) -> None:
    """Record the kind of every survivor."""
    sound = sound_results()
    for number, mutant in enumerate(wanted, 1):
        result = results[mutant.id]
        result.kind, seconds = kind_of(mutant, sound)
        keep(result)
        print(f"{number} {result.kind} {seconds:.1f} s {mutant.id}", flush=True)


def kind_of(mutant: Mutant, sound: dict[str, dict[str, Any]]) -> tuple[str, float]:
    """How the results of a mutant differ from those of the kernel (``compare``), and the CPU time.

    Problems that do not reach the mutant's lines are left out, and those after the first harm. The kind is
    "unreached" if no problem is left.
    """
    places = {f"{mutant.path}:{line}" for line in range(mutant.lines[0], mutant.lines[1] + 1)}
    names = [name for name, each in sound.items() if not mutant.function or places & set(each["lines"])]
    if not names:
        return "unreached", 0.0

    def work() -> dict[str, Any]:
        install(mutant, anew=not in_place(mutant))
        problems = importlib.import_module("tests.tools.kernel_problems")
        kinds = set()
        for name in sorted(names, key=lambda name: float(sound[name]["seconds"])):
            changed = [list(each) for each in problems.evaluate(name)]
            kinds.add(problems.compare(sound[name]["results"], changed))
            if not kinds <= {*_HARMLESS}:
                break
        return {"kind": problems.worst(kinds)}

    answer, seconds = forked(work, _SECONDS)
    return str(answer.get("kind", "raises")), seconds


def sound_results() -> dict[str, dict[str, Any]]:
    """Results of the kernel as it is, by problem, with the lines that each reaches and its CPU time."""
    problems = importlib.import_module("tests.tools.kernel_problems")  # before the forks
    paths = [*sorted(KERNEL.glob("*.py")), Path(str(problems.__file__))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    if RECORD.exists():
        stored = json.loads(RECORD.read_text())
        if stored["digest"] == digest:
            return dict(stored["problems"])

    def timed(name: str) -> dict[str, Any]:
        start = process_time()
        results = problems.evaluate(name)
        return {"results": results, "seconds": process_time() - start}

    def work() -> dict[str, Any]:
        found = {}
        for name in problems.names():
            with watched_lines() as lines:
                problems.evaluate(name)
            found[name] = {**timed(name), "lines": sorted(lines)}
        return {"problems": found}

    answer, _ = forked(work, _SECONDS)
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps({"digest": digest, **answer}))
    return dict(json.loads(RECORD.read_text())["problems"])
