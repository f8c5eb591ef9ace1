"""All that a report tells of one run: what its files hold, and what is measured now on held-out samples.

What a run has no data for is None, and its section is then absent.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from certus.attacks.evaluate import Outcome, Trial, sweep, typical_length
from certus.attacks.minimum_norm import nearest_error
from certus.bounds import SmoothnessBound, input_smoothness
from certus.certificates.certificate import Certificate
from certus.certificates.files import read_certificate
from certus.certificates.lower_bounds import real_transport
from certus.costs import Cost
from certus.errors import UnsupportedError
from certus.inner.concavity import ConcaveShare, concave_share
from certus.losses import predicted
from certus.report.fragile_rows import fragile_features, steepest_features
from certus.runs.directory import CERTIFICATE_FOLDER, OWN_LABELS_FOLDER
from certus.runs.loaded_run import TrainedRun
from certus.runs.sensitivity import Fragile
from certus.smoothing.certificate import SmoothedCertificate
from certus.split import Split
from certus.storage.files import RunError
from certus.storage.tensors import digest
from certus.subsets import Subset
from certus.training.criterion_choice import default_criterion

_Any = TypeVar("_Any", Certificate, SmoothedCertificate)

STRENGTHS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
"""ε of the attacks, in units of the mean length of an input."""


@dataclass(frozen=True, eq=False)
class Worst:
    """Samples before and after T_γ: where the loss, less the price of moving, is largest; rows of a table
    become other rows.

    Attributes:
        said: what the network answers before and after, (n,) labels or values.
    """

    before: Tensor
    after: Tensor
    targets: Tensor
    said: tuple[Tensor, Tensor]
    gamma: float


@dataclass(frozen=True, eq=False)
class Findings:
    """One run.

    Attributes:
        chosen: the held-out samples that everything below but the certificate is about.
        certificate, smoothed: None if there is none beside the run, or it is about other weights.
        stability: the certificate of the network's own predictions; None likewise.
        attacks: PGM in the L2 norm, at rising ε; nearest: (n,) L2 distances to the nearest error found.
        bound: of a classifier or regression whose layers have bounds; share: at the run's own γ.
        fragile: features of a table, each moved alone by ``SHARE`` of its spread, the most fragile first.
        remarks: what could not be shown, and why.
    """

    trained: TrainedRun
    chosen: Subset
    seed: int
    certificate: Certificate | None
    stability: Certificate | None
    smoothed: SmoothedCertificate | None
    attacks: list[tuple[Trial, Outcome]]
    nearest: Tensor | None
    bound: SmoothnessBound | None
    share: ConcaveShare | None
    worst: Worst | None
    fragile: list[Fragile]
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The run's path: what it is called on the page."""
        return str(self.trained.run.path)

    @property
    def result(self) -> dict[str, Any]:
        """What was measured at the end of its training."""
        result = self.trained.run.result
        assert result is not None  # it was opened as a complete run
        return result


def find_out(
    trained: TrainedRun, unit: float, samples: int, seed: int, advance: Callable[[int], None] | None = None
) -> Findings:
    """Read and measure.

    Args:
        unit: ε = 1 of the attacks; the same for all runs that are compared.
        advance: told of every sample that was attacked; ``work`` says how many there will be.
    """
    told = advance or (lambda count: None)
    data = trained.data
    chosen = Subset.of(data.test, f"{data.name}@test", samples, seed=seed, stratify=False)
    remarks: list[str] = []
    certificate, stability = _certificate(trained, remarks), _stability(trained, remarks)
    smoothed = _smoothed(trained, remarks)
    trials = [Trial("pgm", 2.0, unit * strength) for strength in STRENGTHS]
    attacks = sweep(
        trained.loss, chosen.data, trials, domain=data.domain, cost=trained.cost, seed=seed, progress=told
    )
    nearest = None
    if data.classes is not None:
        nearest = nearest_error(
            trained.loss,
            chosen.data.inputs,
            chosen.data.targets,
            domain=data.domain,
            seed=seed,
            rounds=8,
            free=None if chosen.data.encoding is None else chosen.data.encoding.attackable,
        ).distance
    told(len(chosen.data))
    return Findings(
        trained=trained,
        chosen=chosen,
        seed=seed,
        certificate=certificate,
        stability=stability,
        smoothed=smoothed,
        attacks=attacks,
        nearest=nearest,
        bound=_bound(trained),
        share=_share(trained, chosen),
        worst=_worst(trained, chosen),
        fragile=fragile_features(trained, chosen.data, told),
        remarks=tuple(remarks),
    )


def unit_of(trained: TrainedRun) -> float:
    """The mean length of an input: ε = 1 of the attacks."""
    return typical_length(trained.data.train, 2.0) or 1.0


def work(trained: TrainedRun, samples: int) -> int:
    """How many samples ``find_out`` will tell of."""
    rounds = len(STRENGTHS) + 1 + len(steepest_features(trained, trained.data.test))
    return min(samples, len(trained.data.test)) * rounds


def _certificate(trained: TrainedRun, remarks: list[str]) -> Certificate | None:
    path = trained.run.path / CERTIFICATE_FOLDER / "certificate.json"
    if not path.exists():
        remarks.append(f"No certificate yet: certus certify {trained.run.path} --rho 0.01 makes one.")
        return None
    return _own(trained, path, read_certificate, "The certificate", remarks)


def _stability(trained: TrainedRun, remarks: list[str]) -> Certificate | None:
    path = trained.run.path / OWN_LABELS_FOLDER / "certificate.json"
    if not path.exists():
        return None
    return _own(trained, path, read_certificate, "The certificate of predicted labels", remarks)


def _smoothed(trained: TrainedRun, remarks: list[str]) -> SmoothedCertificate | None:
    path = trained.run.path / CERTIFICATE_FOLDER / "smoothing.json"
    if not path.exists():
        return None
    return _own(trained, path, SmoothedCertificate.load, "The certificate by smoothing", remarks)


def _own(
    trained: TrainedRun, path: Path, read: Callable[[Path], _Any], what: str, remarks: list[str]
) -> _Any | None:
    """What a file says of these weights; of others, and if it is damaged, nothing but a remark."""
    try:
        found = read(path)
    except RunError as reason:
        remarks.append(f"{what} is left out. {reason}")
        return None
    if found.about["digests"]["weights"] != digest(dict(trained.loss.model.state_dict())):
        remarks.append(f"{what} is left out: it is about other weights.")
        return None
    return found


def _bound(trained: TrainedRun) -> SmoothnessBound | None:
    """Layer by layer; None of a network that has no finite bound."""
    network = copy.deepcopy(trained.loss.model).double()
    shape = tuple(trained.data.test.inputs.shape[1:])
    try:
        found = input_smoothness(
            network, default_criterion(trained.data.train), input_shape=shape, cost=trained.cost
        )
    except UnsupportedError:
        return None
    return found if math.isfinite(found.curvature) else None


def _share(trained: TrainedRun, chosen: Subset) -> ConcaveShare | None:
    if trained.gamma is None:
        return None
    data = chosen.data
    try:
        return concave_share(
            trained.loss, data.inputs, data.targets, gamma=trained.gamma, cost=trained.cost, max_products=20
        )
    except UnsupportedError:  # of a norm without an inner product
        return None


def _worst(trained: TrainedRun, chosen: Subset) -> Worst | None:
    if trained.gamma is None:
        return None
    data = chosen.data
    moved = _transported(trained, data)
    with torch.no_grad():
        outputs = [trained.loss.model(inputs) for inputs in (data.inputs, moved)]
    labelled = trained.data.classes is not None
    before, after = (predicted(each) if labelled else each.flatten() for each in outputs)
    return Worst(data.inputs, moved, data.targets, (before, after), trained.gamma)


def _transported(trained: TrainedRun, data: Split) -> Tensor:
    """T_γ of some samples; of a table, over its rows."""
    encoding = data.encoding
    if encoding is None or encoding.plain:
        return trained.wrm(trained.loss, data.inputs, data.targets)

    def climb(rows: Tensor, cost: Cost) -> Tensor:
        return replace(trained, cost=cost).wrm(trained.loss, rows, data.targets)

    assert trained.gamma is not None
    return real_transport(
        trained.loss,
        data.inputs,
        data.targets,
        encoding,
        climb,
        gamma=trained.gamma,
        cost=trained.cost,
        domain=trained.domain,
    )
