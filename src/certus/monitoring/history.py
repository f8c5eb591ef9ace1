"""Results of a monitor in a file of JSON lines, one for each check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certus.errors import require
from certus.monitoring._monitor import MonitorResult
from certus.storage.files import MOST_JSON, read_regular
from certus.storage.write import write_atomically

RESULTS = "monitor.jsonl"
"""The file in a run."""
_ENTRIES = {"name", "verdict", "statistic", "line", "chance", "rho", "distance", "realised", "bound"}


def record(path: Path, results: Sequence[MonitorResult], weights: str) -> list[dict[str, Any]]:
    """Add results to a file, in place of earlier ones with their names; those of other weights are dropped.

    Returns: all results.
    """
    lines = [result.as_json() | {"weights": weights} for result in results]
    new = {line["name"] for line in lines}
    kept = [
        line for line in stored_results(path) if line["name"] not in new and line.get("weights") == weights
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in kept + lines)
    write_atomically(path, text.encode())
    return kept + lines


def stored_results(path: Path) -> list[dict[str, Any]]:
    """Read the results of a file, none if there is no file; raise ``ArgumentError`` for another file."""
    lines: list[dict[str, Any]] = []
    if not path.exists():
        return lines
    try:
        text = read_regular(path, MOST_JSON).decode()
        lines = [json.loads(line) for line in text.splitlines() if line.strip()]
        complete = all(line.keys() >= _ENTRIES for line in lines)
    except (OSError, ValueError, AttributeError):
        complete = False
    require(complete, "output", "be a file of results of certus monitor, or a new one", path)
    return lines
