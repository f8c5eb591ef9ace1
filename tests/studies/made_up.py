"""Sweeps of attacks that are made up, for tests of verdicts."""

from __future__ import annotations

from typing import Any

from studies.mnist.sweeps import NORMS_SHOWN


def sweep_of(
    method: str, seed: int, *errors: float, half: float = 0.0, shares: tuple[float, ...] = (0.0, 0.1, 0.2)
) -> dict[str, Any]:
    """Made up: the same errors ± half in both norms, clipped and not, at shares of C."""
    rows = [
        {
            "norm": norm,
            "clipped": side,
            "share": share,
            "epsilon": share,
            "error": error,
            "low": error - half,
            "high": error + half,
        }
        for norm in NORMS_SHOWN
        for side in (False, True)
        for share, error in zip(shares, errors, strict=True)
    ]
    return {"method": method, "seed": seed, "attack": "pgm", "samples": 100, "rows": rows}
