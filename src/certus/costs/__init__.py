"""Transport costs c(z, z₀) of moving a point from z₀ to z (sec:approach, sec:supervised)."""

from certus.costs.base import Cost, LabelCost, Response, Support
from certus.costs.bregman import Bregman
from certus.costs.columns import ColumnPrices
from certus.costs.lp import SquaredLp, SquaredSup
from certus.costs.masked import Masked, feature_mask, patch_mask
from certus.costs.quadratic import Mahalanobis, SquaredL2, WeightedL2

__all__ = [
    "Bregman",
    "ColumnPrices",
    "Cost",
    "LabelCost",
    "Mahalanobis",
    "Masked",
    "Response",
    "SquaredL2",
    "SquaredLp",
    "SquaredSup",
    "Support",
    "WeightedL2",
    "feature_mask",
    "patch_mask",
]
