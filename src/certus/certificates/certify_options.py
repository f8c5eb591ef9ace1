"""The options of ``certify``, for editors and type checkers: those of ``certify_network``.

What each means is said there; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from certus.bounds import SmoothnessBound
from certus.certificates.engine import Memory
from certus.costs import Cost, LabelCost
from certus.data import RowEncoding
from certus.domains import Domain
from certus.losses import Criterion


class NetworkOptions(TypedDict, total=False):
    """Those of ``certify_network``."""

    epsilon: float | Sequence[float] | None
    criterion: Criterion | None
    cost: Cost
    domain: Domain
    confidence: float | None
    clip: float | None
    gammas: Sequence[float] | None
    smoothness: SmoothnessBound | None
    label_cost: LabelCost | None
    class_weights: Sequence[float] | None
    inequality: str | None
    seed: int | None
    balls: int
    refine: int
    attack_steps: int
    encoding: RowEncoding | None
    memory: Memory | None
