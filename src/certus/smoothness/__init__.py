"""How smooth is a network? Rigorous bounds, layer by layer (section:examples)."""

from certus.smoothness.analysis import Analysis
from certus.smoothness.api import input_smoothness, local_smoothness
from certus.smoothness.results import VALIDITY, LayerBound, LocalBound, SmoothnessBound
from certus.smoothness.rules import RULES, rule
from certus.smoothness.validation import Obstacle, smooth, validate

__all__ = [
    "RULES",
    "VALIDITY",
    "Analysis",
    "LayerBound",
    "LocalBound",
    "Obstacle",
    "SmoothnessBound",
    "input_smoothness",
    "local_smoothness",
    "rule",
    "smooth",
    "validate",
]
