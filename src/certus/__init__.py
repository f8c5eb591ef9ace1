"""certus: train models that hold up when the data moves, and prove by how much.

For a loss ℓ(θ; z), a transport cost c and a penalty γ, the robust surrogate is

    φ_γ(θ; z₀) = sup_z ℓ(θ; z) − γ c(z, z₀)                                            [eqn:inner-sup]

Training minimises its mean; for every ρ, γρ + E[φ_γ] bounds the worst expected loss over all distributions
within transport cost ρ. References such as [eqn:inner-sup] are the labels of Sinha, Namkoong, Volpi and
Duchi, "Certifying Some Distributional Robustness with Principled Adversarial Training".
"""

import importlib
from typing import TYPE_CHECKING, Any

from certus import costs, data, domains, losses, models, norms, smoothness, surrogate
from certus.costs import (
    Bregman,
    LabelCost,
    Mahalanobis,
    Masked,
    SquaredL2,
    SquaredLp,
    SquaredSup,
    WeightedL2,
)
from certus.domains import Ball, Box, Unbounded
from certus.errors import (
    ArgumentError,
    CertusError,
    ClaimError,
    ContradictionError,
    LossError,
    UnsupportedError,
)
from certus.evidence import Evidence
from certus.losses import CrossEntropy, Logistic, ModelLoss, SmoothMargin, SquaredError
from certus.perturbers import ERM
from certus.smoothness import SmoothnessBound, input_smoothness, local_smoothness, smooth, validate
from certus.surrogate import (
    WRM,
    BarzilaiBorwein,
    InnerSolution,
    PaperAscent,
    ProximalAscent,
    Status,
    concave_share,
    largest_curvature,
    robust_surrogate,
    transport_map,
)

if TYPE_CHECKING:
    from certus import mdp, runs, training
    from certus.certificates import Certificate, certify
    from certus.training import fit

__version__ = "0.1.0"

__all__ = [
    "ERM",
    "WRM",
    "ArgumentError",
    "Ball",
    "BarzilaiBorwein",
    "Box",
    "Bregman",
    "Certificate",
    "CertusError",
    "ClaimError",
    "ContradictionError",
    "CrossEntropy",
    "Evidence",
    "InnerSolution",
    "LabelCost",
    "Logistic",
    "LossError",
    "Mahalanobis",
    "Masked",
    "ModelLoss",
    "PaperAscent",
    "ProximalAscent",
    "SmoothMargin",
    "SmoothnessBound",
    "SquaredError",
    "SquaredL2",
    "SquaredLp",
    "SquaredSup",
    "Status",
    "Unbounded",
    "UnsupportedError",
    "WeightedL2",
    "certificates",
    "certify",
    "concave_share",
    "costs",
    "data",
    "domains",
    "fit",
    "input_smoothness",
    "largest_curvature",
    "local_smoothness",
    "losses",
    "mdp",
    "models",
    "norms",
    "robust_surrogate",
    "runs",
    "smooth",
    "smoothness",
    "surrogate",
    "training",
    "transport_map",
    "validate",
]


def __getattr__(name: str) -> Any:
    """What needs training, and MDPs, is imported when used: what drives processes takes a second to load."""
    if name in ("attacks", "certificates", "mdp", "runs", "training"):
        return importlib.import_module(f"certus.{name}")
    if name == "fit":
        return importlib.import_module("certus.training").fit
    if name in ("Certificate", "certify"):
        return getattr(importlib.import_module("certus.certificates"), name)
    raise AttributeError(f"module 'certus' has no attribute {name!r}")
