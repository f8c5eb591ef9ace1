"""Maximisers of the inner problem (eqn:inner-sup)."""

from certus.inner.maximizers import (
    BarzilaiBorwein,
    Callback,
    Maximizer,
    MonotoneAscent,
    PaperAscent,
    ProximalAscent,
    default_maximizer,
)

__all__ = [
    "BarzilaiBorwein",
    "Callback",
    "Maximizer",
    "MonotoneAscent",
    "PaperAscent",
    "ProximalAscent",
    "default_maximizer",
]
