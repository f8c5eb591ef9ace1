"""Randomised smoothing: certificates for any model, from its predictions at noisy inputs.

docs/smoothing.md derives them.
"""

from certus.smoothing._certify import certify_smoothed
from certus.smoothing.certificate import Quantity, SmoothedBracket, SmoothedCertificate
from certus.smoothing.sampling import PredictionCache
from certus.smoothing.voting import Radius, Smoothed

__all__ = [
    "PredictionCache",
    "Quantity",
    "Radius",
    "Smoothed",
    "SmoothedBracket",
    "SmoothedCertificate",
    "certify_smoothed",
]
