"""Run directories: all about one training, in files that survive a crash and execute nothing."""

from certus.runs.files import RunError
from certus.runs.lock import RunLock
from certus.runs.recorder import Recorder

__all__ = ["Recorder", "RunError", "RunLock"]
