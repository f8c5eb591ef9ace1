"""Attacks: perturbers that move inputs within a norm ball, and what models lose to them."""

from certus.attacks.gradient import GradientAttack, fgm, ifgm, pgm

__all__ = ["GradientAttack", "fgm", "ifgm", "pgm"]
