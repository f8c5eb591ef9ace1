"""Digest of the installed source code."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def code_digest() -> str:
    """SHA-256 over the names and contents of all source files of certus, shortened to 16 digits.

    A certificate records it, and cached dual values are reused only under the digest that computed them.
    """
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
