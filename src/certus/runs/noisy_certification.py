"""The certificate by smoothing of a run: its network with noise of its own cost on the inputs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

import certus
from certus.bars import Told
from certus.certificates.proven.version import BOUNDS_VERSION
from certus.costs import LabelCost
from certus.errors import require, require_number
from certus.runs.certification import CertifySettings, certified_data, fingerprint, refuse_seen
from certus.runs.tags import to_tag
from certus.runs.trained import TrainedRun
from certus.smoothing._certify import ENOUGH, certify_any
from certus.smoothing.certificate import SmoothedCertificate
from certus.smoothing.sampling import Draws
from certus.subsets import choose_rows

__all__ = ["NoisySettings", "certify_noisy_run"]


@dataclass(frozen=True)
class NoisySettings:
    """What ``certus certify --smoothing`` was asked beside the rest; see ``certify_any``."""

    sigma: float
    draws: int = 100
    votes: int = 100
    abstain: float = 0.001

    def __post_init__(self) -> None:
        require_number("smoothing", self.sigma)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def certify_noisy_run(
    trained: TrainedRun,
    settings: CertifySettings,
    noisy: NoisySettings,
    progress: Told | None = None,
    memory: Draws | None = None,
) -> SmoothedCertificate:
    """Certify a run in noise. At most 1,000 of its calibration rows, by the seed, choose the plan, unless
    they are what is certified."""
    assert settings.confidence is not None  # there is no statement without one
    refuse_seen(trained, settings)
    chosen = certified_data(trained, settings)
    price, classes = settings.label_price, trained.data.classes
    require(price is None or classes is not None, "label_price", "be left out for regression", price)
    others = None
    if settings.data is None and settings.split != "calibration":
        others = trained.data.calibration
        if len(others) > ENOUGH:
            others = others[choose_rows(len(others), ENOUGH, settings.seed)]
    certificate = certify_any(
        trained.loss.model,
        chosen.data,
        rho=settings.rho,
        smoothing=noisy.sigma,
        draws=noisy.draws,
        confidence=settings.confidence,
        votes=noisy.votes,
        abstain=noisy.abstain,
        clip=settings.clip,
        cost=trained.cost,
        label_cost=None if price is None or classes is None else LabelCost(price, classes),
        calibration=others,
        seed=settings.seed,
        attack_steps=settings.attack_steps,
        progress=progress,
        memory=memory,
    )
    about = {
        "run": str(trained.run.path),
        "data": settings.data or trained.data.name,
        "rows": chosen.as_json(),
        "units": trained.data.units,
        "settings": settings.as_json() | {"noise": noisy.as_json()},
        "cost": to_tag(trained.cost),
        "digests": fingerprint(trained, settings),
        "threads": torch.get_num_threads(),
        "bounds_version": BOUNDS_VERSION,
        "certus_version": certus.__version__,
        "torch_version": torch.__version__,
        "numpy_version": np.__version__,
    }
    return replace(certificate, about=about)
