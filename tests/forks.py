"""Processes of their own that start at once: forks of a server that has imported certus."""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from click.testing import CliRunner

from certus.cli.app import app
from certus.datasets import load
from tests import loading  # noqa: F401  # before the forks

# What is imported on first use is imported before the forks.
CliRunner().invoke(app, ["data", "list"])
load("wine")


def start(target: Callable[..., object], *arguments: object) -> ForkServerProcess:
    """A process that calls a function of a module, with arguments that can be pickled."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with contextlib.chdir(Path(__file__).parents[1]):  # where the server finds this module
        forkserver.ensure_running()
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int:
    """Wait for its end: its exit code, or minus a signal's number if one ended it."""
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code
