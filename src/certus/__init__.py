"""certus: train models that hold up when the data moves, and prove by how much.

For a loss ℓ(θ; z), a transport cost c and a penalty γ, the robust surrogate is

    φ_γ(θ; z₀) = sup_z ℓ(θ; z) − γ c(z, z₀)                                            [eqn:inner-sup]

Training minimises its mean; for every ρ, γρ + E[φ_γ] bounds the worst expected loss over all distributions
within transport cost ρ. References such as [eqn:inner-sup] are the labels of Sinha, Namkoong, Volpi and
Duchi, "Certifying Some Distributional Robustness with Principled Adversarial Training".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certus import (
        attacks,
        bounds,
        certificates,
        costs,
        data,
        datasets,
        domains,
        estimators,
        inner,
        losses,
        mdp,
        models,
        monitoring,
        runs,
        smoothing,
        training,
    )
    from certus.attacks import evaluate
    from certus.bounds import input_smoothness
    from certus.certificates import Certificate, certify
    from certus.costs import SquaredL2
    from certus.domains import Box
    from certus.errors import CertusError
    from certus.inner import WRM
    from certus.kernel.evidence import Evidence
    from certus.losses import CrossEntropy, ModelLoss
    from certus.monitoring import Monitor
    from certus.runs import load_run
    from certus.smoothing import certify_smoothed
    from certus.training import fit

__version__ = "0.1.0"

__all__ = [
    "WRM",
    "Box",
    "Certificate",
    "CertusError",
    "CrossEntropy",
    "Evidence",
    "ModelLoss",
    "Monitor",
    "SquaredL2",
    "attacks",
    "bounds",
    "certificates",
    "certify",
    "certify_smoothed",
    "costs",
    "data",
    "datasets",
    "domains",
    "estimators",
    "evaluate",
    "fit",
    "inner",
    "input_smoothness",
    "load_run",
    "losses",
    "mdp",
    "models",
    "monitoring",
    "runs",
    "smoothing",
    "training",
]

_HOMES = {
    "WRM": "inner",
    "Box": "domains",
    "Certificate": "certificates",
    "CertusError": "errors",
    "CrossEntropy": "losses",
    "Evidence": "kernel.evidence",
    "ModelLoss": "losses",
    "Monitor": "monitoring",
    "SquaredL2": "costs",
    "certify": "certificates",
    "certify_smoothed": "smoothing",
    "evaluate": "attacks",
    "fit": "training",
    "input_smoothness": "bounds",
    "load_run": "runs",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: torch takes seconds to load."""
    if name in _HOMES:
        return getattr(import_module(f"certus.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"certus.{name}")
    raise AttributeError(f"module 'certus' has no attribute {name!r}")
