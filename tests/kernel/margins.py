"""Comparisons of margins, which are far smaller than the absolute tolerance of ``pytest.approx``."""

from __future__ import annotations

from typing import Any

import pytest


def near(expected: Any, rel: float = 1e-6, abs: float = 0.0) -> Any:
    """Equal up to a relative difference, and no absolute one unless it is given."""
    return pytest.approx(expected, rel=rel, abs=abs)
