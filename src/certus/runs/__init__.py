"""Run directories: all about one training, in files that survive a crash and execute nothing."""

from certus.runs.directory import RunDirectory, find_runs
from certus.runs.networks import load_model
from certus.runs.recorder import Recorder
from certus.runs.settings import Settings
from certus.storage.files import RunError
from certus.storage.lock import RunLock

__all__ = [
    "Recorder",
    "RunDirectory",
    "RunError",
    "RunLock",
    "Settings",
    "find_runs",
    "load_model",
]
