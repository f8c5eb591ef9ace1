"""Certificates of a run, deterministic or by randomised smoothing, from settings stored in their files."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any, Literal, cast

import numpy as np
import torch

import certus
from certus._eval_mode import unwrapped
from certus._progress import ProgressFunction
from certus.bounds.analysis import kernel_cost
from certus.bounds.criteria import read_criterion
from certus.bounds.network import read_network
from certus.certificates import Certificate, certify
from certus.certificates.cache import ProposalCache
from certus.certificates.files import check_certificate
from certus.certificates.graph_files import require_same_problem
from certus.certificates.parallel import Progress
from certus.costs import LabelCost
from certus.data import Samples, Subset, choose_rows
from certus.datasets import SplitDataset, load
from certus.datasets.new_data import load_like
from certus.domains import Domain, Unbounded
from certus.errors import VerificationError, require, require_number
from certus.kernel.check import Checked
from certus.kernel.problem import Problem
from certus.kernel.rows import with_columns
from certus.kernel.tree_profiles import TreeProblem
from certus.runs.loaded_run import LoadedRun, check_holdout, named_split
from certus.runs.serialization import serialize
from certus.runs.settings import CertifySettings
from certus.smoothing._certify import ENOUGH, certify_smoothed
from certus.smoothing.certificate import SmoothedCertificate
from certus.smoothing.sampling import PredictionCache
from certus.storage.files import code_digest
from certus.storage.tensors import digest
from certus.table_options import TABLES
from certus.training.metrics import balancing_weights

_PROBLEM = ("model_sha256", "model_imports", "criterion", "cost", "domain")


def certified_data(trained: LoadedRun, settings: CertifySettings) -> Subset:
    """Return the samples that the settings name, in the units of the run's own data."""
    data = named_split(certified_source(trained, settings), settings.split)
    source = f"{settings.data or trained.data.name}@{settings.split}"
    return Subset.of(
        *(data, source, settings.samples),
        seed=settings.seed,
        stratify=settings.confidence is None,
        shard=settings.shard,
    )


def certified_source(trained: LoadedRun, settings: CertifySettings) -> SplitDataset:
    """Load the data set that the samples are taken from, encoded like the run's own data."""
    if settings.data is None:
        return trained.data
    own = trained.settings
    return load_like(trained.data, settings.data, seed=own.seed, target=own.target, options=own.table)


def require_holdout(trained: LoadedRun, settings: CertifySettings) -> None:
    """Raise ``ArgumentError`` if the run was trained on the samples that the settings name."""
    if settings.data is None:
        check_holdout(trained, settings.split)
        return
    own = trained.settings
    if trained.data.recipe is not None and settings.data.startswith(TABLES):
        check_holdout(trained, named_split(certified_source(trained, settings), settings.split))
        return
    # Row by row, and before any scaling: the last bits of scaled rows may differ.
    target = own.target if settings.data.startswith(TABLES) else None
    plain = load(settings.data, seed=own.seed, standardize=False, target=target)
    check_holdout(trained, named_split(plain, settings.split), raw=True)


def certify_run(
    trained: LoadedRun,
    settings: CertifySettings,
    *,
    cache: ProposalCache | None = None,
    progress: Progress | None = None,
    n_jobs: int = 1,
) -> Certificate:
    """Certify a run with the cost of its training, and in its domain unless ``unbounded``. The loss is
    plain cross-entropy, weighted by class if requested, or the squared error."""
    if settings.confidence is not None:
        require_holdout(trained, settings)
    chosen = certified_data(trained, settings)
    data, domain, criterion = chosen.data, _domain(trained, settings), trained.certified_criterion
    certificate = certify(
        trained.loss.model,
        (data.inputs, None if settings.own_labels else data.targets),
        rho=settings.rho or None,
        epsilon=settings.epsilon or None,
        criterion=criterion,
        cost=trained.cost,
        domain=domain,
        confidence=settings.confidence,
        clip=settings.clip,
        gammas=settings.gammas,
        class_weights=_class_weights(trained, settings),
        label_cost=_label_cost(trained, settings),
        inequality=settings.inequality if settings.confidence is not None else None,
        seed=settings.seed,
        local_radii=settings.local_radii,
        gamma_rounds=settings.gamma_rounds,
        attack_steps=settings.attack_steps,
        encoding=data.encoding,
        deployment=cast(Literal["float32"] | None, settings.deployment),
        cache=cache,
        progress=progress or False,
        n_jobs=n_jobs,
    )
    problem = {"criterion": criterion, "cost": trained.cost, "domain": domain}
    return replace(certificate, about=_about(trained, settings, chosen, problem))


def certified_problem(trained: LoadedRun, settings: CertifySettings, data: Samples) -> Problem:
    """Return the problem that ``certify_run`` certifies in the kernel's form, without samples."""
    label_cost, loss = _label_cost(trained, settings), read_criterion(trained.certified_criterion)
    shape, targets = tuple(data.inputs.shape[1:]), data.targets[:0]
    graph, cost = read_network(unwrapped(trained.model), shape).graph, kernel_cost(trained.cost, shape)
    cost = cost if label_cost is None else replace(cost, label_price=label_cost.price)
    nothing = data.inputs[:0].double(), targets.double() if loss is None else targets.long()
    problem = Problem.of(graph, loss, cost, _domain(trained, settings).kernel(), nothing)
    problem = problem.deployed(settings.deployment)
    return problem if data.encoding is None else with_columns(problem, data.encoding.discrete)


def _domain(trained: LoadedRun, settings: CertifySettings) -> Domain:
    return Unbounded() if settings.unbounded else trained.domain


def _class_weights(trained: LoadedRun, settings: CertifySettings) -> list[float] | None:
    return balancing_weights(trained.data).tolist() if settings.class_weights == "balanced" else None


def verify_for_run(
    certificate: Certificate, trained: LoadedRun, settings: CertifySettings, data: Samples
) -> Checked:
    """Let the kernel check a loaded certificate on its samples; raise ``VerificationError`` unless network,
    loss, cost, domain and columns are those of the run, and losses are clipped and weighted as requested."""
    problem, weights = certified_problem(trained, settings, data), _class_weights(trained, settings)
    return verify_about(
        problem, certificate, data, settings.clip, None if weights is None else tuple(weights)
    )


def verify_about(
    problem: Problem | TreeProblem,
    certificate: Certificate,
    data: Samples,
    clip: float | None,
    weights: tuple[float, ...] | None = None,
) -> Checked:
    """Let the kernel check a loaded certificate on its samples; raise ``VerificationError`` if it is about
    another problem, or if its losses are clipped or weighted otherwise."""
    assert certificate.file is not None
    checked = check_certificate(certificate, data)
    require_same_problem(certificate.file, checked.problem, problem)
    if (certificate.clip, certificate.class_weights) != (clip, weights):
        raise VerificationError(f"{certificate.file} is not verified: it clips or weights losses otherwise.")
    return checked


def _label_cost(trained: LoadedRun, settings: CertifySettings) -> LabelCost | None:
    return uniform_label_cost(settings.label_cost, trained.data.classes)


def uniform_label_cost(price: float | None, classes: int | None) -> LabelCost | None:
    """Return the cost of ``--label-cost``; raise ``ArgumentError`` for a price of a regression's labels."""
    require(price is None or classes is not None, "label_cost", "be left out for regression", price)
    return None if price is None or classes is None else LabelCost(price, classes)


def _about(
    trained: LoadedRun, settings: CertifySettings, chosen: Subset, problem: dict[str, Any]
) -> dict[str, Any]:
    """Origin of a certificate, as JSON: run, data, settings, digests and versions."""
    return {
        "run": str(trained.run.path),
        "data": settings.data or trained.data.name,
        "rows": chosen.as_json(),
        "units": trained.data.units,
        **({"class_names": list(trained.data.class_names)} if trained.data.class_names else {}),
        "settings": settings.as_json(),
        **{name: serialize(part) for name, part in problem.items()},
        "digests": fingerprint(trained, settings),
        **circumstances(),
    }


def circumstances() -> dict[str, Any]:
    """Return the code, the versions and the machine that a certificate is computed with, as JSON."""
    names = ("numpy", "scipy", "torch", "scikit-learn", "safetensors")
    return {
        "threads": torch.get_num_threads(),
        "code_digest": code_digest(),
        "certus_version": certus.__version__,
        "torch_version": torch.__version__,
        "environment": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "machine": platform.machine(),
            **{name: metadata.version(name) for name in names},
        },
    }


def fingerprint(trained: LoadedRun, settings: CertifySettings) -> dict[str, str]:
    """Return SHA-256 digests of the problem, the weights, the certified samples and the whole source."""
    data, record = certified_data(trained, settings).data, trained.run.record
    problem = {"model": trained.settings.model} | {name: getattr(record, name) for name in _PROBLEM}
    return {
        "problem": hashlib.sha256(json.dumps(problem, sort_keys=True).encode()).hexdigest(),
        "weights": digest(dict(trained.loss.model.state_dict())),
        "samples": digest({"inputs": data.inputs, "targets": data.targets}),
        "source": certified_source(trained, settings).sha256,
    }


@dataclass(frozen=True)
class SmoothingSettings:
    """Further settings of ``certus certify --smoothing``; see ``certify_smoothed``."""

    sigma: float
    draws: int = 100
    votes: int = 100
    abstain: float = 0.001

    def __post_init__(self) -> None:
        require_number("smoothing", self.sigma)


def certify_smoothed_run(
    trained: LoadedRun,
    settings: CertifySettings,
    noisy: SmoothingSettings,
    progress: ProgressFunction | None = None,
    cache: PredictionCache | None = None,
) -> SmoothedCertificate:
    """Certify a run by randomised smoothing. At most 1,000 random calibration rows choose the design,
    unless they are certified themselves."""
    assert settings.confidence is not None  # there is no statement without one
    require_holdout(trained, settings)
    chosen = certified_data(trained, settings)
    own = settings.data is None and settings.split != "calibration"
    others = trained.data.calibration if own else None
    if others is not None and len(others) > ENOUGH:
        others = others[choose_rows(len(others), ENOUGH, settings.seed)]
    certificate = certify_smoothed(
        trained.loss.model,
        chosen.data,
        rho=settings.rho,
        **asdict(noisy),
        confidence=settings.confidence,
        clip=settings.clip,
        cost=trained.cost,
        label_cost=_label_cost(trained, settings),
        calibration=others,
        seed=settings.seed,
        attack_steps=settings.attack_steps,
        progress=progress,
        cache=cache,
    )
    about = _about(trained, settings, chosen, {"cost": trained.cost}) | {"numpy_version": np.__version__}
    about["settings"]["noise"] = asdict(noisy)
    return replace(certificate, about=about)
