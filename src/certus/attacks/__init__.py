"""Attacks: perturbers that move inputs within a norm ball, and what models lose to them."""

from certus.attacks.adapters import Foolbox, Torchattacks
from certus.attacks.evaluate import Interval, Outcome, attack_data, fair_epsilon, typical_length, worst_of
from certus.attacks.gradient import GradientAttack, fgm, ifgm, pgm
from certus.attacks.minimum_norm import (
    LargestPenalty,
    Margin,
    SmallestPerturbation,
    largest_penalty,
    nearest_error,
)

__all__ = [
    "Foolbox",
    "GradientAttack",
    "Interval",
    "LargestPenalty",
    "Margin",
    "Outcome",
    "SmallestPerturbation",
    "Torchattacks",
    "attack_data",
    "fair_epsilon",
    "fgm",
    "ifgm",
    "largest_penalty",
    "nearest_error",
    "pgm",
    "typical_length",
    "worst_of",
]
