"""Attacks: methods that move inputs within a norm ball, and evaluation under them."""

from certus.attacks.adapters import Foolbox, Torchattacks
from certus.attacks.evaluation import Evaluation, Interval, evaluate, fair_epsilon, typical_length, worst_of
from certus.attacks.minimum_norm import (
    LargestPenalty,
    Margin,
    MinimumNormResult,
    largest_penalty,
    minimum_norm_attack,
)
from certus.attacks.projected_gradient_descent import BIM, FGM, FGSM, IFGM, PGD, PGM, GradientAttack

__all__ = [
    "BIM",
    "FGM",
    "FGSM",
    "IFGM",
    "PGD",
    "PGM",
    "Evaluation",
    "Foolbox",
    "GradientAttack",
    "Interval",
    "LargestPenalty",
    "Margin",
    "MinimumNormResult",
    "Torchattacks",
    "evaluate",
    "fair_epsilon",
    "largest_penalty",
    "minimum_norm_attack",
    "typical_length",
    "worst_of",
]
