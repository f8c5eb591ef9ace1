"""certus: train models that hold up when the data moves, and prove by how much.

For a loss ℓ(θ; z), a transport cost c and a penalty γ, the robust surrogate is

    φ_γ(θ; z₀) = sup_z ℓ(θ; z) − γ c(z, z₀)                                            [eqn:inner-sup]

Training minimises its mean; for every ρ, γρ + E[φ_γ] bounds the worst expected loss over all distributions
within transport cost ρ. References such as [eqn:inner-sup] are the labels of Sinha, Namkoong, Volpi and
Duchi, "Certifying Some Distributional Robustness with Principled Adversarial Training".
"""

from certus import costs, data, domains, losses, models, norms, surrogate
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
from certus.errors import ArgumentError, CertusError, LossError, UnsupportedError
from certus.losses import CrossEntropy, ModelLoss, SquaredError
from certus.surrogate import (
    WRM,
    BarzilaiBorwein,
    Evidence,
    InnerSolution,
    PaperAscent,
    Status,
    concave_share,
    largest_curvature,
    robust_surrogate,
    transport_map,
)

__version__ = "0.1.0"

__all__ = [
    "WRM",
    "ArgumentError",
    "Ball",
    "BarzilaiBorwein",
    "Box",
    "Bregman",
    "CertusError",
    "CrossEntropy",
    "Evidence",
    "InnerSolution",
    "LabelCost",
    "LossError",
    "Mahalanobis",
    "Masked",
    "ModelLoss",
    "PaperAscent",
    "SquaredError",
    "SquaredL2",
    "SquaredLp",
    "SquaredSup",
    "Status",
    "Unbounded",
    "UnsupportedError",
    "WeightedL2",
    "concave_share",
    "costs",
    "data",
    "domains",
    "largest_curvature",
    "losses",
    "models",
    "norms",
    "robust_surrogate",
    "surrogate",
    "transport_map",
]
