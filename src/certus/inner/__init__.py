"""The robust surrogate φ_γ and the transport map T_γ (eqn:inner-sup, eqn:transport-map)."""

from certus.inner.concavity import ConcaveShare, Curvature, concave_share, largest_curvature
from certus.inner.maximizers import (
    BarzilaiBorwein,
    Callback,
    Maximizer,
    MonotoneAscent,
    PaperAscent,
    ProximalAscent,
    default_maximizer,
)
from certus.inner.objective import InnerSolution, Objective, ObjectiveValue, Status
from certus.inner.wrm import WRM, robust_surrogate, transport_map

__all__ = [
    "WRM",
    "BarzilaiBorwein",
    "Callback",
    "ConcaveShare",
    "Curvature",
    "InnerSolution",
    "Maximizer",
    "MonotoneAscent",
    "Objective",
    "ObjectiveValue",
    "PaperAscent",
    "ProximalAscent",
    "Status",
    "concave_share",
    "default_maximizer",
    "largest_curvature",
    "robust_surrogate",
    "transport_map",
]
