"""Names of norms and attacks on the command line and in files, without importing torch."""

from __future__ import annotations

import math

NORMS = {"1": 1.0, "2": 2.0, "inf": math.inf}
"""p by its name."""

GRADIENT_ATTACKS = ("fgsm", "bim", "pgd")
"""Attacks by gradients of the loss."""

PAPER_NAMES = {"fgm": "fgsm", "ifgm": "bim", "pgm": "pgd"}
"""The paper's names of attacks, which are accepted wherever the literature's are."""
