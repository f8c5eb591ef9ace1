"""Mutants against tests, in forks of one pytest session that has collected the kernel's tests.

A fork replaces the code of one function in place, so that neither imports nor collection are repeated.
Outside of functions, a fork of a process without certus imports and collects what it needs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from types import CodeType, FunctionType, ModuleType
from typing import Any

# A fork of a process with other threads may wait for one of them for ever.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import hypothesis
import pytest

from tools.mutation.mutants import KERNEL, ROOT, Mutant, mutants

TESTS = ("tests/kernel", "src/certus/kernel")
OPTIONS = (
    *(
        "-q",
        "-s",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:faulthandler",
        "--tb=no",
        "--no-header",
    ),
    *("-o", "addopts=", "--import-mode=importlib", "--strict-markers", "-m", "not soak", "--doctest-modules"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of hypothesis, which is imported already
)
RECORD = ROOT / "build" / "kernel-lines.json"
_MEMORY = 8 * 2**30  # bytes that a fork may have
_IMPORTS = 20.0  # seconds
_IMPORTED = (
    "torch",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "flint",
    "matplotlib.figure",
    "sklearn.datasets",
)


@dataclass(frozen=True)
class Test:
    """A test that passes: its CPU time, and the lines of the kernel that it reaches, as "path:line"."""

    seconds: float
    lines: frozenset[str]


def read_record() -> dict[str, Test]:
    stored = json.loads(RECORD.read_text())
    return {name: Test(each["seconds"], frozenset(each["lines"])) for name, each in stored.items()}


class Session:
    """A collected session of pytest, as its plugin; ``work`` is called in place of running the tests."""

    def __init__(self, work: Callable[[Session], None]) -> None:
        self._work = work
        self.items: dict[str, pytest.Item] = {}
        self._failed: Callable[[str], None] = lambda name: None

    def start(self, tests: Sequence[str] = TESTS) -> int:
        os.chdir(ROOT)
        sys.path.insert(0, str(KERNEL.parents[1]))
        for name in _IMPORTED:
            importlib.import_module(name)
        self._clean = _Clean()
        return int(pytest.main([*OPTIONS, *tests], plugins=[self, _Profile()]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        if session.testsfailed:
            raise RuntimeError("The tests cannot be collected.")
        for module in {getattr(item, "module", None) for item in session.items}:
            getattr(module, "before_forks", lambda: None)()  # what its tests share, once for all forks
        self._work(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed(report.nodeid)

    def run(self, names: Sequence[str], seconds: Callable[[str], float]) -> None:
        """Run collected tests, each within a limit of CPU time that ends the process."""
        items = [self.items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_PROF, seconds(item.nodeid))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.setitimer(signal.ITIMER_PROF, 0)

    def record(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Run each of some tests in a fork of its own, and watch the kernel's lines."""
        record = {}
        for number, name in enumerate(names, 1):
            print(f"{number}/{len(names)} {name}", flush=True)
            seen, _ = forked(lambda name=name: self._watched(name), 600)  # type: ignore[misc]
            if seen.get("passed"):
                record[name] = {"seconds": seen["seconds"], "lines": seen["lines"]}
        return record

    def _watched(self, name: str) -> dict[str, Any]:
        failed: list[str] = []
        self._failed = failed.append
        start = process_time()
        with watched_lines() as lines:
            self.run([name], lambda name: 300.0)
        used = process_time() - start
        return {"passed": not failed, "seconds": round(used, 3), "lines": sorted(lines)}

    def attempt(self, mutant: Mutant, tests: dict[str, Test]) -> tuple[str, float]:
        """Run tests in order until one fails. Returns its name, "time" or "signal", or "" for a survivor; and
        the CPU time."""

        def work() -> dict[str, Any]:
            def failed(name: str) -> None:
                raise _KilledError(name)

            self._failed = failed
            install(mutant, anew=False)
            try:
                self.run(list(tests), lambda name: _patience(tests[name].seconds))
            except _KilledError as killed:
                return {"by": str(killed)}
            return {"by": ""}

        if not in_place(mutant):
            answer, used = self._clean.attempt(mutant, tests)
        else:
            answer, used = forked(work, _IMPORTS + sum(_patience(test.seconds) for test in tests.values()))
        if "error" in answer:
            raise RuntimeError(f"Nothing is known of {mutant.id}: {answer['error']}")
        return str(answer["by"]), used


@contextlib.contextmanager
def watched_lines() -> Iterator[set[str]]:
    """Collect the lines of the kernel that are executed, as "path:line"."""
    lines: set[str] = set()
    here, left = str(KERNEL), dict[CodeType, set[int | None]]()

    def local(frame: Any, event: str, argument: object) -> Any:
        unseen = left[frame.f_code]
        if event == "line":
            unseen.discard(frame.f_lineno)
        return local if unseen else None

    def watch(frame: Any, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(here):
            return None
        if code not in left:
            left[code] = {line for _, _, line in code.co_lines()} - {None, code.co_firstlineno}
        return local if left[code] else None  # a function that was seen whole runs at its own speed

    sys.settrace(watch)
    yield lines
    sys.settrace(None)
    for code, unseen in left.items():
        seen = {line for _, _, line in code.co_lines()} - unseen
        lines.update(f"{Path(code.co_filename).name}:{line}" for line in seen if line)


def _patience(seconds: float) -> float:
    return 2 + 5 * seconds


class _KilledError(BaseException):
    pass


class _Profile:
    """Hypothesis without shrinking, which a mutant does not need, and without files left behind."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        default = hypothesis.settings.default
        assert default is not None
        hypothesis.settings.register_profile("mutation", default, phases=phases, database=None)
        hypothesis.settings.load_profile("mutation")


class _Again:
    """Watches a session that imports and collects: the first failure, and the time of each test."""

    def __init__(self, tests: dict[str, float]) -> None:
        self.name, self._tests = "", tests

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        signal.setitimer(signal.ITIMER_PROF, _patience(self._tests.get(item.nodeid, _IMPORTS)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.name = self.name or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.name = self.name or report.nodeid


class _Clean:
    """A process without certus, whose forks import a mutant."""

    def __init__(self) -> None:
        assert not any(name.split(".")[0] == "certus" for name in sys.modules)
        (asked, ask), (answer, answered) = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(ask)
            with os.fdopen(asked) as requests, os.fdopen(answered, "w") as answers:
                for line in requests:
                    request = json.loads(line)
                    seconds = _IMPORTS + sum(map(_patience, request["tests"].values()))
                    reply = forked(lambda request=request: _imported(**request), seconds)  # type: ignore[misc]
                    print(json.dumps(reply), file=answers, flush=True)
            os._exit(0)
        os.close(asked)
        self._requests, self._answers = os.fdopen(ask, "w"), os.fdopen(answer)

    def attempt(self, mutant: Mutant, tests: dict[str, Test]) -> tuple[dict[str, Any], float]:
        # pytest would import the module of a doctest by itself, without the change.
        seconds = {name: test.seconds for name, test in tests.items() if name.startswith("tests/")}
        if not seconds:
            return {"by": ""}, 0.0
        request = {"path": mutant.path, "name": mutant.id, "tests": seconds}
        print(json.dumps(request), file=self._requests, flush=True)
        answer, used = json.loads(self._answers.readline())
        return answer, used


def _imported(path: str, name: str, tests: dict[str, float]) -> dict[str, Any]:
    install(next(mutant for mutant in mutants(path) if mutant.id == name), anew=True)
    again = _Again(tests)
    code = pytest.main([*OPTIONS, "-x", *tests], plugins=[again, _Profile()])
    if code == pytest.ExitCode.INTERNAL_ERROR:
        return {"by": again.name or "collection"}
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):
        return {"error": f"pytest ended with {code!r}: record the lines again"}
    return {"by": again.name}


def in_place(mutant: Mutant) -> bool:
    """Whether code can replace that of a live function: inside of one, and with the same free variables."""
    code = mutant.compiled()
    if not mutant.function or code is None:
        return False
    return _inside(code, mutant.function).co_freevars == _function(mutant).__code__.co_freevars


def install(mutant: Mutant, *, anew: bool) -> None:
    """Put the mutant in place of its function; or have it imported by whatever imports certus from now on."""
    code = mutant.compiled()
    assert code is not None
    if not anew:
        function = _function(mutant)
        function.__code__ = _inside(code, mutant.function)
        return
    for name in list(sys.modules):
        if name.startswith("certus.kernel") or name == "tests.tools.kernel_problems":
            del sys.modules[name]
    sys.meta_path.insert(0, _Mutated(mutant.path, code))


def _function(mutant: Mutant) -> FunctionType:
    """The live function that a mutant changes."""
    value: Any = importlib.import_module("certus.kernel." + mutant.path.removesuffix(".py"))
    for name in mutant.function.split("."):
        value = vars(value)[name]
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.cached_property):
        value = value.func
    value = getattr(value, "__func__", value)
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    assert isinstance(value, FunctionType), mutant.function
    return value


def _inside(code: CodeType, name: str) -> CodeType:
    """The code of a function in that of its module."""
    waiting = [code]
    while waiting:
        each = waiting.pop()
        if each.co_qualname == name:
            return each
        waiting += [part for part in each.co_consts if isinstance(part, CodeType)]
    raise LookupError(name)


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of the kernel from other code."""

    def __init__(self, path: str, code: CodeType) -> None:
        self._path, self._code = KERNEL / path, code
        self._name = "certus.kernel." + path.removesuffix(".py")

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def forked(work: Callable[[], dict[str, Any]], seconds: float) -> tuple[dict[str, Any], float]:
    """Do something in a fork, silently and within limits. Returns its answer and its CPU time; of a fork that
    was ended, {"by": "time"} or the signal."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            null = os.open(os.devnull, os.O_RDWR)
            problems = os.fdopen(os.dup(2), "w")
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            answer = work()
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
            print(traceback.format_exc(), file=problems, flush=True)
        with contextlib.suppress(BaseException), os.fdopen(write, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status, used = os.wait4(child, 0)
    if not text:
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        text = json.dumps({"by": "time" if ended in (signal.SIGPROF, signal.SIGXCPU) else f"signal {ended}"})
    answer = json.loads(text)
    assert isinstance(answer, dict)
    return answer, used.ru_utime + used.ru_stime
