"""Balls for attacks: they step in Lp balls, and a cost says which of them are its own, or hold its own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Stepping:
    """Wherever c(z, z₀) ≤ ρ, ‖scale·(z − z₀)‖_p ≤ √(2ρ/s)/floor, s the cost's growth.

    Attributes:
        p: 1, 2 or ∞.
        scale: a positive factor for each coordinate, which broadcasts to a point; None for 1.
        own: c = ‖z − z₀‖_p² for every move, so that the balls are the cost's own.
    """

    p: float
    scale: Tensor | None = None
    floor: float = 1.0
    own: bool = False
