"""What the tests of benchmarks/ share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent
Script = Callable[..., None]


def read(path: Path) -> Any:
    return json.loads(path.read_text())
