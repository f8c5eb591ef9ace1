"""What two trainings that should be one and the same have in common."""

from __future__ import annotations

import json
from pathlib import Path

from certus.runs.records import METRICS


def without_time(folder: Path) -> list[dict[str, object]]:
    """The metrics of a run but for the seconds that each epoch took."""
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]
