"""Words that the command line and files use for norms and attacks; nothing slow is loaded to know them."""

from __future__ import annotations

import math

NORMS = {"1": 1.0, "2": 2.0, "inf": math.inf}
"""p by the name that commands and files have for it."""

GRADIENT_ATTACKS = ("fgsm", "bim", "pgd")
"""The attacks that follow gradients of the loss."""

PAPER_NAMES = {"fgm": "fgsm", "ifgm": "bim", "pgm": "pgd"}
"""The paper's names of attacks, which are accepted wherever the literature's are."""
