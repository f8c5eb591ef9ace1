"""The options of ``certify``, for editors and type checkers: those of the two functions it chooses from.

What each means is said where it is used, in ``certify_network`` and ``certify_any``; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from certus.bounds import SmoothnessBound
from certus.certificates.engine import Memory
from certus.costs import Cost, LabelCost
from certus.domains import Domain
from certus.losses import Criterion
from certus.row_encoding import RowEncoding
from certus.smoothing.predictors import AnyData
from certus.smoothing.sampling import Draws


class NetworkOptions(TypedDict, total=False):
    """Without ``smoothing``: those of ``certify_network``."""

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


class SmoothingOptions(TypedDict, total=False):
    """With ``smoothing``: those of ``certify_any``."""

    draws: int
    confidence: float
    votes: int
    abstain: float | None
    criterion: Criterion | None
    clip: float | None
    cost: Cost
    label_cost: LabelCost | None
    calibration: AnyData | None
    seed: int
    attack_steps: int
    memory: Draws | None
