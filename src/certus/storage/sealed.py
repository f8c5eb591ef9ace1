"""JSON documents with a digest of their own.

It finds damage: a flipped bit, a number edited by hand, half of a merge. Whoever forges a document can write
a new digest, too; against forgery only computing again counts.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from certus.storage.files import DamageError

SEAL = "sha256"


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """The document with the sha256 of all the rest, in sorted keys and without spaces.

    >>> seal({"rho": 0.1})["sha256"][:8], seal({"rho": 0.1}) == seal(seal({"rho": 0.1}))
    ('610d21b8', True)
    """
    rest = unsealed(content)
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return rest | {SEAL: hashlib.sha256(text.encode()).hexdigest()}


def unsealed(content: dict[str, Any]) -> dict[str, Any]:
    """The document without its digest."""
    return {name: value for name, value in content.items() if name != SEAL}


def check_seal(content: dict[str, Any], name: object) -> None:
    """Raise ``DamageError`` unless the document has the digest that it was written with."""
    if SEAL not in content:
        raise DamageError(f"{name} is corrupt: it has no {SEAL}.")
    if content[SEAL] != seal(content)[SEAL]:
        raise DamageError(f"{name} is corrupt: its content does not have the {SEAL} it was written with.")


def require_no_booleans(content: Any, name: str = "it") -> None:
    """Raise ``DamageError`` where true or false stands for a number: Python takes them for 1 and 0.

    Args:
        name: of the entry, for the message.
    """
    if isinstance(content, bool):
        raise DamageError(f"{name} is {str(content).lower()}, which is neither a number nor a word.")
    if isinstance(content, dict):
        for key, value in content.items():
            require_no_booleans(value, key)
    elif isinstance(content, list):
        for value in content:
            require_no_booleans(value, name)
