"""Runs that are compared have the same test samples; which data each has is said before any are loaded."""

from __future__ import annotations

from collections.abc import Sequence

from certus.errors import require
from certus.runs.directory import RunDirectory
from certus.runs.factory import settings_of


def require_same_test(runs: Sequence[RunDirectory]) -> None:
    """Raise ``ArgumentError``, which names every run and its data, unless they have the same test samples."""
    kinds, told = set(), []
    for run in runs:
        settings, rows = settings_of(run), run.rows["test"].tolist()
        kinds.add((run.settings["data_sha256"], tuple(rows)))
        told.append(f"{run.path} with {len(rows)} samples of {settings.data}, split by seed {settings.seed}")
    require(len(kinds) == 1, "runs", "have the same test samples, to be compared", "; ".join(told))
