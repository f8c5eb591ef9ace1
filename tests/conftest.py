"""Settings shared by all tests."""

from __future__ import annotations

import os
import random
import stat
import sys
from collections import Counter
from typing import Any

# Several test processes share the cores, and so do the commands that they start: one thread each.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from matplotlib.figure import Figure

# Timings depend on the machine: no example has a deadline, and none is drawn too slowly. The examples are the
# same every time; `make fuzz` and `make sweeps` draw others, with a seed that they print.
UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("certus", **UNTIMED, max_examples=25, derandomize=True)
settings.register_profile("fuzz", **UNTIMED, max_examples=250, print_blob=True)
settings.load_profile("certus")

torch.set_num_threads(1)


def _refuse_to_wait(event: str, details: tuple[Any, ...]) -> None:
    """Fail where a pipe is opened in a way that waits for its other end: otherwise the tests would hang."""
    if event != "open" or not isinstance(details[0], str | bytes | os.PathLike):
        return
    path, _, flags = details
    try:
        is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return
    if is_pipe and not flags & os.O_NONBLOCK:
        raise AssertionError(f"{path!r} is a pipe, and to open it is to wait for ever")


sys.addaudithook(_refuse_to_wait)


def seed() -> None:
    """The same random numbers whichever tests ran before, and in whichever process."""
    torch.default_generator.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  # for libraries that draw from it
    random.seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but every k-th case of a test with ``quick_share(k)`` to the sweeps."""
    cases: Counter[str] = Counter()
    for item in items:
        share = item.get_closest_marker("quick_share")
        if share is not None:
            test = item.nodeid.partition("[")[0]
            if cases[test] % share.args[0]:
                item.add_marker("soak")
            cases[test] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart() -> None:
    seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    seed()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures that were saved, to be looked into; see tests/pictures.py."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *where: Any, **options: Any) -> None:
        save(figure, *where, **options)
        figures.append(figure)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@pytest.fixture(autouse=True)
def quick_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw coarsely and without layout in tests of commands and runs; those of ``display`` look closely."""
    if request.path.parent.name not in ("cli", "runs"):
        return
    save = Figure.savefig

    def coarse(figure: Figure, *where: Any, **options: Any) -> None:
        figure.set_layout_engine("none")
        save(figure, *where, **options | {"dpi": 50})

    monkeypatch.setattr(Figure, "savefig", coarse)
