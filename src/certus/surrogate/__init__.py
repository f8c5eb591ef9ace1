"""The robust surrogate φ_γ and the transport map T_γ (eqn:inner-sup, eqn:transport-map)."""

from certus.surrogate.concavity import ConcaveShare, Curvature, concave_share, largest_curvature
from certus.surrogate.functions import robust_surrogate, transport_map
from certus.surrogate.maximizers import (
    BarzilaiBorwein,
    Callback,
    Maximizer,
    MonotoneAscent,
    PaperAscent,
    ProximalAscent,
    default_maximizer,
)
from certus.surrogate.objective import Evaluation, Objective
from certus.surrogate.solution import InnerSolution, Status
from certus.surrogate.wrm import WRM

__all__ = [
    "WRM",
    "BarzilaiBorwein",
    "Callback",
    "ConcaveShare",
    "Curvature",
    "Evaluation",
    "InnerSolution",
    "Maximizer",
    "MonotoneAscent",
    "Objective",
    "PaperAscent",
    "ProximalAscent",
    "Status",
    "concave_share",
    "default_maximizer",
    "largest_curvature",
    "robust_surrogate",
    "transport_map",
]
