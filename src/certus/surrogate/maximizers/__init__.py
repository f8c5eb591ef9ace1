"""Maximisers of the inner problem (eqn:inner-sup)."""

from certus.surrogate.maximizers.barzilai_borwein import BarzilaiBorwein
from certus.surrogate.maximizers.base import Callback, Maximizer
from certus.surrogate.maximizers.paper import PaperAscent

__all__ = ["BarzilaiBorwein", "Callback", "Maximizer", "PaperAscent"]
