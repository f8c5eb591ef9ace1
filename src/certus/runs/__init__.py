"""Run directories: the settings, weights and results of one training, in files that execute no code."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certus.runs.directory import Recorder, RunDirectory, find_runs
    from certus.runs.factory import load_model
    from certus.runs.loaded_run import load_run
    from certus.runs.settings import Settings
    from certus.storage.files import RunError
    from certus.storage.write import RunLock

__all__ = [
    "Recorder",
    "RunDirectory",
    "RunError",
    "RunLock",
    "Settings",
    "find_runs",
    "load_model",
    "load_run",
]

_HOMES = {
    "Recorder": "runs.directory",
    "RunDirectory": "runs.directory",
    "RunError": "storage.files",
    "RunLock": "storage.write",
    "Settings": "runs.settings",
    "find_runs": "runs.directory",
    "load_model": "runs.factory",
    "load_run": "runs.loaded_run",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that ``runs.settings`` is read without torch."""
    if name in _HOMES:
        return getattr(import_module(f"certus.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'certus.runs' has no attribute {name!r}")
