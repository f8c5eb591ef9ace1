"""One mutant against its tests."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from types import ModuleType

import pytest

from tools.mutation.forks import BROKEN, OPTIONS, forked
from tools.mutation.targets import SOURCES

_START = 30  # seconds for imports


@dataclass(frozen=True)
class Trial:
    """How it ended.

    Attributes:
        outcome: "killed" or "survived".
        by: the test that failed; "time" or a signal, if the fork was ended; empty for a survivor.
        seconds: CPU time.
    """

    outcome: str
    by: str
    seconds: float


def attempt(path: str, code: str, tests: Mapping[str, float]) -> Trial:
    """Run the tests in order until one fails, with ``code`` in place of the file ``path`` below src/certus.

    Args:
        tests: with the CPU time that each takes; one that takes several times as long has failed.
    """
    if not tests:
        return Trial("survived", "", 0.0)
    with tempfile.NamedTemporaryFile("r") as report:
        failures = _Failures(Path(report.name), tests)

        def work() -> int:
            sys.meta_path.insert(0, _Mutated(path, code))
            return int(pytest.main([*OPTIONS, "-x", *tests], plugins=[failures]))

        status, used = forked(work, _START + int(sum(map(_patience, tests.values()))))
        failed = report.read()
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status)
        return Trial("killed", "time" if ended == signal.SIGXCPU else f"signal {ended}", used)
    if os.WEXITSTATUS(status) == pytest.ExitCode.USAGE_ERROR:
        raise RuntimeError("A test is gone: record the calls again.")
    if os.WEXITSTATUS(status) == BROKEN:
        raise RuntimeError("The fork ended before any test: nothing is known of this mutant.")
    if os.WEXITSTATUS(status) == 0:
        return Trial("survived", "", used)
    return Trial("killed", failed.split("\n")[0] or f"exit {os.WEXITSTATUS(status)}", used)


def _patience(seconds: float) -> float:
    return 10 + 4 * seconds


class _Failures:
    """A plugin of pytest that writes down what failed, and limits the time of each test."""

    def __init__(self, path: Path, tests: Mapping[str, float]) -> None:
        self._path, self._tests = path, tests

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        limit = int(process_time() + _patience(self._tests[item.nodeid]))
        resource.setrlimit(resource.RLIMIT_CPU, (min(limit, most - 5), most))

    def _write(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with self._path.open("a") as file:
                file.write(report.nodeid + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._write(report)


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of certus from other code."""

    def __init__(self, path: str, code: str) -> None:
        self._path, self._code = SOURCES / path, code
        self._name = "certus." + path.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._code, str(self._path), "exec"), module.__dict__)
