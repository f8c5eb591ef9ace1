"""What a terminal or a pipe cannot show is written otherwise: no command fails for want of a letter."""

from __future__ import annotations

import codecs
import io
import sys

_OTHERWISE = {
    "–": "-",
    "−": "-",
    "…": "...",
    "∞": "inf",
    "√": "sqrt",
    "²": "^2",
    "±": "+-",
    "≤": "<=",
    "≥": ">=",
    "γ": "gamma",
    "ρ": "rho",
    "ε": "epsilon",
    "λ": "lambda",
    "φ": "phi",
    "Θ": "Theta",
    "θ": "theta",
    "⁺": "+",
    "₀": "0",
    "→": "->",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "━": "-",
    "×": "x",
    "·": "*",
}


def speak_plainly() -> None:
    """Let stdout and stderr write what their encoding lacks in letters that it has."""
    codecs.register_error("certus", _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="certus")


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """Such as ``rho`` for ρ; ``\\u2603`` for what has no other spelling.

    >>> codecs.register_error("certus", _spelled)
    >>> "ρ – ☃".encode("latin-1", errors="certus")
    b'rho - \\\\u2603'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    spelled = (_OTHERWISE.get(one) or one.encode("ascii", "backslashreplace").decode() for one in missing)
    return "".join(spelled), error.end
