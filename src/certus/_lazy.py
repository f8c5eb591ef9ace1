"""A package whose names are imported when they are used: the settings of a run are read without torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        homes: name → the module that defines it.

    >>> lazily("mine", {"sqrt": "math"})("sqrt")(4.0)
    2.0
    >>> lazily("mine", {})("other")
    Traceback (most recent call last):
    AttributeError: module 'mine' has no attribute 'other'
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name]), name)

    return get
