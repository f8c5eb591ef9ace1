"""A finite cost of changing a label; without one, labels never move (eqn:supervised-cost).

c((x, y), (x₀, y₀)) = c_x(x, x₀) + price · 1{y ≠ y₀}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from certus.errors import require, require_count


@dataclass(frozen=True)
class LabelCost:
    """The cost ``price`` of replacing a label by any other of ``classes`` labels.

    The surrogate then also maximises over labels,
    φ_γ = max(φ_γ(x₀, y₀), max_{y ≠ y₀} φ_γ(x₀, y) − γ·price): one ascent per label.
    """

    price: float
    classes: int

    def __post_init__(self) -> None:
        rule = "be positive and finite (labels never move without a LabelCost)"
        require(0 < self.price < math.inf, "price", rule, self.price)
        require_count("classes", self.classes, least=2)
