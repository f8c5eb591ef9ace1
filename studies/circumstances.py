"""Under which circumstances something was measured: versions, threads, machine, date."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import certus


def circumstances(*packages: str) -> dict[str, Any]:
    """In JSON types, for the file of a result.

    Args:
        packages: whose versions matter too, if they are installed.
    """
    return {
        "versions": {"certus": certus.__version__, **_versions(("torch", "numpy", *packages))},
        "threads": torch.get_num_threads(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "system": platform.platform()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def of_several(known: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """The circumstances of several measurements in one: where they differ, each value once.

    Args:
        known: None of what was not recorded, which a ``note`` tells.
    """
    recorded = [one for one in known if one is not None]
    missing = len(known) - len(recorded)
    note = {"note": f"Of {missing} of {len(known)} parts it was not recorded when."} if missing else {}
    if not recorded:
        return note
    names = dict.fromkeys(name for one in recorded for name in one["versions"])
    dates = sorted(one["date"] for one in recorded)
    return {
        "versions": {
            name: _each([one["versions"][name] for one in recorded if name in one["versions"]])
            for name in names
        },
        "threads": _each([one["threads"] for one in recorded]),
        "machine": {
            name: _each([one["machine"][name] for one in recorded]) for name in recorded[0]["machine"]
        },
        "date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
    } | note


def _each(values: list[Any]) -> Any:
    """The value itself if it is one for all; else all, in words."""
    different = list(dict.fromkeys(values))
    return different[0] if len(different) == 1 else " and ".join(str(one) for one in different)


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _processor() -> str:
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
