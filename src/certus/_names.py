"""Names of norms and attacks on the command line and in files, and their options, without importing torch."""

from __future__ import annotations

import math

NORMS = {"1": 1.0, "2": 2.0, "inf": math.inf}
"""p by its name."""

GRADIENT_ATTACKS = ("fgsm", "bim", "pgd")
"""Attacks by gradients of the loss."""

ATTACK_OPTIONS = {
    "gamma": ("wrm",),
    "epsilon": GRADIENT_ATTACKS,
    "norm": GRADIENT_ATTACKS,
    "steps": ("bim", "pgd"),
    "step_size": ("bim", "pgd"),
    "restarts": ("pgd",),
}
"""Option → the attacks that take it; it has no effect on others."""

PAPER_NAMES = {"fgm": "fgsm", "ifgm": "bim", "pgm": "pgd"}
"""The paper's names of attacks, which are accepted wherever the literature's are."""
