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
    "runs.directory": ("Recorder", "RunDirectory", "find_runs"),
    "runs.factory": ("load_model",),
    "runs.loaded_run": ("load_run",),
    "runs.settings": ("Settings",),
    "storage.files": ("RunError",),
    "storage.write": ("RunLock",),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used, so that ``runs.settings`` is read without torch."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"certus.{home}"), name)
    raise AttributeError(f"module 'certus.runs' has no attribute {name!r}")
