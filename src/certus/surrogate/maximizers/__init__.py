"""Maximisers of the inner problem (eqn:inner-sup)."""

from certus.surrogate.maximizers.barzilai_borwein import BarzilaiBorwein
from certus.surrogate.maximizers.base import Callback, Maximizer
from certus.surrogate.maximizers.choice import default_maximizer
from certus.surrogate.maximizers.monotone import MonotoneAscent
from certus.surrogate.maximizers.paper_ascent import PaperAscent
from certus.surrogate.maximizers.proximal_ascent import ProximalAscent

__all__ = [
    "BarzilaiBorwein",
    "Callback",
    "Maximizer",
    "MonotoneAscent",
    "PaperAscent",
    "ProximalAscent",
    "default_maximizer",
]
