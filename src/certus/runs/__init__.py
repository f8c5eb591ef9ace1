"""Run directories: all about one training, in files that survive a crash and execute nothing."""

from typing import TYPE_CHECKING

from certus.lazily import lazily

if TYPE_CHECKING:
    from certus.runs.directory import RunDirectory, find_runs
    from certus.runs.networks import load_model
    from certus.runs.recorder import Recorder
    from certus.runs.settings import Settings
    from certus.runs.trained import load_run
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
        "Recorder": "certus.runs.recorder",
        "RunDirectory": "certus.runs.directory",
        "RunError": "certus.storage.files",
        "RunLock": "certus.storage.write",
        "Settings": "certus.runs.settings",
        "find_runs": "certus.runs.directory",
        "load_model": "certus.runs.networks",
        "load_run": "certus.runs.trained",
    },
)
