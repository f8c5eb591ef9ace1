"""Under which circumstances something was measured: versions, threads, machine, date."""

from __future__ import annotations

import os
import platform
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
