"""Which tests call which functions, so that a mutant meets the tests that may notice it, quick ones first."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from types import CodeType

import pytest

from tools.mutation.forks import OPTIONS, forked
from tools.mutation.mutants import Mutant
from tools.mutation.targets import SOURCES


@dataclass(frozen=True)
class Call:
    """A test: its CPU time while it was watched, and the functions that it calls, as "path:name"."""

    seconds: float
    functions: frozenset[str]


def read_calls(path: Path) -> dict[str, Call]:
    return {
        test: Call(found["seconds"], frozenset(found["functions"]))
        for test, found in json.loads(path.read_text()).items()
    }


def tests_of(mutant: Mutant, calls: dict[str, Call]) -> list[str]:
    """The tests that call the function of a mutant; outside of functions, those that call any of its file."""
    wanted = f"{mutant.path}:{mutant.function}"
    everything = f"{mutant.path}:"
    return [
        test
        for test, call in calls.items()
        if wanted in call.functions
        or (mutant.function == "<module>" and any(name.startswith(everything) for name in call.functions))
    ]


def record_calls(tests: Sequence[str], ignored: Sequence[str], destination: Path, *, fresh: bool) -> int:
    """Run tests once in a fork, and watch those that pass: only they can notice a mutant. Returns the exit
    code of pytest.

    Args:
        fresh: forget what is known of other tests; those of the named files are forgotten anyway.
    """
    watch = _Watch()
    known = {} if fresh else json.loads(destination.read_text())
    again = {str(Path(test)) for test in tests}
    known = {
        test: call for test, call in known.items() if _file(test) not in again and Path(_file(test)).exists()
    }

    def work() -> int:
        skipped = [f"--ignore={path}" for path in ignored]
        code = int(pytest.main([*OPTIONS, *skipped, *tests], plugins=[watch]))
        destination.write_text(json.dumps(known | watch.found(), indent=0))
        return code

    status, _ = forked(work, 7200)
    return os.waitstatus_to_exitcode(status)


class _Watch:
    """A plugin of pytest. What is called while a test is set up may serve all tests of its file."""

    def __init__(self) -> None:
        self._called: dict[str, set[str]] = {}
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()

    def found(self) -> dict[str, dict[str, object]]:
        return {
            test: {
                "seconds": round(seconds, 3),
                "functions": sorted(self._called[test] | self._called[_file(test)]),
            }
            for test, seconds in self._seconds.items()
            if test in self._called and test not in self._failed
        }

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watch(item.nodeid, _file(item.nodeid)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        return (yield from self._watch(item.nodeid, item.nodeid))

    def _watch(self, test: str, key: str) -> Generator[None, object, object]:
        claims = sys.modules.get("certus.bounds.norm_proposals")
        if claims is not None:
            claims._CACHE.clear()  # or what an earlier test computed would not be called
        seen: set[CodeType] = set()
        start = process_time()
        sys.settrace(lambda frame, event, argument: seen.add(frame.f_code))
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self._seconds[test] = self._seconds.get(test, 0.0) + process_time() - start
            self._called.setdefault(key, set()).update(filter(None, map(_function, seen)))


def _file(test: str) -> str:
    return test.split("::")[0]


def _function(code: CodeType) -> str | None:
    if not code.co_filename.startswith(str(SOURCES)):
        return None
    path = Path(code.co_filename).relative_to(SOURCES)
    return f"{path}:{code.co_qualname.split('.<locals>')[0]}"
