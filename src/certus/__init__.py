"""certus: train models that hold up when the data moves, and prove by how much.

For a loss ℓ(θ; z), a transport cost c and a penalty γ, the robust surrogate is

    φ_γ(θ; z₀) = sup_z ℓ(θ; z) − γ c(z, z₀)                                            [eqn:inner-sup]

Training minimises its mean; for every ρ, γρ + E[φ_γ] bounds the worst expected loss over all distributions
within transport cost ρ. References such as [eqn:inner-sup] are the labels of Sinha, Namkoong, Volpi and
Duchi, "Certifying Some Distributional Robustness with Principled Adversarial Training".
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certus import (
        attacks,
        certificates,
        costs,
        data,
        domains,
        losses,
        mdp,
        models,
        runs,
        sklearn,
        training,
    )
    from certus import bounds as smoothness
    from certus import inner as surrogate
    from certus.bounds import input_smoothness
    from certus.certificates import Certificate, Smoothed, certify
    from certus.costs import SquaredL2
    from certus.domains import Box
    from certus.errors import CertusError
    from certus.evidence import Evidence
    from certus.inner import WRM
    from certus.losses import CrossEntropy, ModelLoss
    from certus.runs.trained import load_run as load
    from certus.split import Split
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
    "Smoothed",
    "Split",
    "SquaredL2",
    "attacks",
    "certificates",
    "certify",
    "costs",
    "data",
    "domains",
    "fit",
    "input_smoothness",
    "load",
    "losses",
    "mdp",
    "models",
    "runs",
    "sklearn",
    "smoothness",
    "surrogate",
    "training",
]

_HOMES = {
    "WRM": "surrogate",
    "Box": "domains",
    "Certificate": "certificates",
    "CertusError": "errors",
    "CrossEntropy": "losses",
    "Evidence": "evidence",
    "ModelLoss": "losses",
    "Smoothed": "certificates",
    "Split": "split",
    "SquaredL2": "costs",
    "certify": "certificates",
    "fit": "training",
    "input_smoothness": "smoothness",
}
_PARTS = set(__all__) - set(_HOMES) | {"errors", "evidence", "norms", "perturbers", "split"}


_ALIASES = {"load": ("runs.trained", "load_run")}
_PARTS -= set(_ALIASES)


def __getattr__(name: str) -> Any:
    """Everything is imported when it is used: torch, and what drives processes, take seconds to load.

    A name of one of the parts is not found here, but the error says where it is.
    """
    if name in _PARTS:
        return importlib.import_module(f"certus.{name}")
    if name in _ALIASES:
        home, own = _ALIASES[name]
        return getattr(importlib.import_module(f"certus.{home}"), own)
    if name in _HOMES:
        return getattr(importlib.import_module(f"certus.{_HOMES[name]}"), name)
    for part in ("costs", "domains", "errors", "losses", "perturbers", "smoothness", "surrogate"):
        found = getattr(importlib.import_module(f"certus.{part}"), name, None)
        if str(getattr(found, "__module__", "")).startswith(f"certus.{part}"):
            # In `from certus import name` Python replaces an AttributeError by an error without the hint.
            imported = sys._getframe(1).f_code.co_name == "_handle_fromlist"
            raise (ImportError if imported else AttributeError)(f"certus.{name} is now certus.{part}.{name}.")
    raise AttributeError(f"module 'certus' has no attribute {name!r}")
