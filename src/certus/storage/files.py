"""The errors of files, and JSON read strictly."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from certus.errors import CertusError
from certus.storage.reading import read_regular

MOST_JSON = 2**28
MOST_DEPTH = 64


class RunError(CertusError):
    """A run directory cannot be written, read or trusted; the message says which file and why."""


class DamageError(RunError):
    """A file is not what certus wrote: it was damaged, or altered."""


def read_json(path: Path) -> Any:
    """The content of a JSON file, read by ``parse_json``."""
    try:
        return parse_json(read_regular(path, MOST_JSON).decode())
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except DamageError as reason:
        raise DamageError(f"{path} is corrupt: {reason}") from None
    except ValueError:
        raise RunError(f"{path} is corrupt: it is no JSON file.") from None


def parse_json(text: str) -> Any:
    """JSON in which every key of an object is its own, and every number is finite: what certus writes.

    Other readers take the first or the last of two equal keys, so that one file would say two things.

    >>> parse_json('{"rho": 0.1, "rho": 0.2}')
    Traceback (most recent call last):
    certus.storage.files.DamageError: the key "rho" is there twice.
    """
    try:
        content = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_finite, parse_int=_whole
        )
    except RecursionError:
        raise DamageError("it is nested too deeply.") from None
    _check_depth(content)
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DamageError(f'the key "{name}" is there twice.')
        found[name] = value
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise DamageError(f"{text[:20]} is no finite number.")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(number := int(text)) >= 2**63:
        raise DamageError(f"{text[:20]}… is too large a number.")
    return number


def _check_depth(content: Any) -> None:
    """Whoever reads on may recurse."""
    layer, depth = [content], 0
    while layer:
        depth += 1
        if depth > MOST_DEPTH:
            raise DamageError("it is nested too deeply.")
        inside = (
            one.values() if isinstance(one, dict) else one for one in layer if isinstance(one, dict | list)
        )
        layer = [one for values in inside for one in values if isinstance(one, dict | list)]
