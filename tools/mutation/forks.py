"""Forks that begin where torch and the rest are imported already, and certus is not yet."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import sys
import traceback
from collections.abc import Callable

from tools.mutation.targets import ROOT, SOURCES

_IMPORTED = (
    *(
        "torch",
        "numpy",
        "scipy.optimize",
        "scipy.stats",
        "scipy.linalg",
        "sklearn.datasets",
        "flint",
        "hypothesis",
    ),
    *("pytest", "lightning_fabric", "safetensors.torch", "click", "rich.console", "cvxpy", "ot", "pyarrow"),
    *("torch.nn.utils.parametrize", "torch.nn.utils.parametrizations", "matplotlib.pyplot"),
)
BROKEN = 99  # the exit code of a fork that did no work
_MEMORY = 8 * 2**30  # bytes that a fork may have

OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--no-header", "-o", "addopts="),
    *("--import-mode=importlib", "--strict-markers", "-m", "not soak"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of hypothesis, which is imported already
)
"""Of pytest: as in pyproject.toml, without doctests and without files left behind."""


def warm_up() -> None:
    """Import what certus and its tests import, but not certus, which will be the one beside these tests."""
    sys.path.insert(0, str(SOURCES.parent))
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.split(".")[0] == "certus" for name in sys.modules)


def forked(work: Callable[[], int], seconds: int) -> tuple[int, float]:
    """Do something in a fork, silently and within limits. Returns its wait status and its CPU time."""
    child = os.fork()
    if child == 0:
        code = BROKEN
        try:
            os.chdir(ROOT)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            problems = os.fdopen(os.dup(2), "w")
            null = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(null, stream)
            code = work()
        except BaseException:
            print(traceback.format_exc(), file=problems, flush=True)
        finally:
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    return status, used.ru_utime + used.ru_stime
