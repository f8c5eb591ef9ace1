"""Run directories: the settings, weights and results of one training, in files that execute no code."""

from typing import TYPE_CHECKING

from certus._lazy import lazily

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

__getattr__ = lazily(
    __name__,
    {
        "Recorder": "certus.runs.directory",
        "RunDirectory": "certus.runs.directory",
        "RunError": "certus.storage.files",
        "RunLock": "certus.storage.write",
        "Settings": "certus.runs.settings",
        "find_runs": "certus.runs.directory",
        "load_model": "certus.runs.factory",
        "load_run": "certus.runs.loaded_run",
    },
)
