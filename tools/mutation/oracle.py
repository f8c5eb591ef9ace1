"""Survivors against the kernel itself, on the fixed problems."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from tools.mutation.mutants import Mutant
from tools.mutation.trials import forked, install

_SECONDS = 120


def kind_of(mutant: Mutant, before: dict[str, Any]) -> str:
    """How its results differ from those of the kernel (``problems.compare``)."""

    def work() -> dict[str, Any]:
        install(mutant, anew=not mutant.function)
        problems = importlib.import_module("tools.mutation.problems")
        return {"kind": problems.compare(before, _plain(problems.evaluate()))}

    answer, _ = forked(work, _SECONDS)
    return str(answer.get("kind", "raises"))


def sound_results() -> dict[str, Any]:
    """Those of the kernel as it is."""
    problems = importlib.import_module("tools.mutation.problems")  # before the forks
    answer, _ = forked(lambda: _plain(problems.evaluate()), _SECONDS)
    return answer


def _plain(results: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives them back."""
    return {name: [list(each) for each in parts] for name, parts in results.items()}


def sort_kinds(wanted: Iterable[Mutant], known: dict[str, Any], keep: Callable[[Any], None]) -> None:
    """Write down the kind of every survivor."""
    before = sound_results()
    for mutant in wanted:
        result = known[mutant.id]
        result.kind = kind_of(mutant, before)
        keep(result)
        print(result.kind, mutant.id, flush=True)
