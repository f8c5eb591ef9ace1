"""Certified training: weights that stay where sγ ≥ L̄ is proven (section:three-choose-two)."""

from certus.training.certified.projection import SAFETY, CertifiedSet

__all__ = ["SAFETY", "CertifiedSet"]
