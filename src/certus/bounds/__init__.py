"""Rigorous bounds on the smoothness of networks, layer by layer (section:examples)."""

from certus.bounds.analysis import Analysis, input_smoothness, local_smoothness
from certus.bounds.graph_reader import UnsupportedLayer
from certus.bounds.layer_rules import RULES, rule
from certus.bounds.smoothness import VALIDITY, LayerBound, LocalBound, SmoothnessBound
from certus.bounds.validation import smooth, validate

__all__ = [
    "RULES",
    "VALIDITY",
    "Analysis",
    "LayerBound",
    "LocalBound",
    "SmoothnessBound",
    "UnsupportedLayer",
    "input_smoothness",
    "local_smoothness",
    "rule",
    "smooth",
    "validate",
]
