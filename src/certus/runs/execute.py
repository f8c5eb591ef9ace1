"""Carry out, or go on with, the training that a run directory describes.

Everything is rebuilt from ``run.json``, so that a new run and a resumed one take the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR

import certus
from certus.attacks.gradient import default_step, fgm, ifgm, pgm
from certus.certified import CertifiedSet
from certus.costs import Cost, SquaredL2, WeightedL2
from certus.data import DataSet, load
from certus.domains import Domain, Unbounded
from certus.errors import ArgumentError, require
from certus.losses import CrossEntropy, ModelLoss, SmoothMargin, SquaredError
from certus.models import build_model
from certus.models.registry import file_digest
from certus.perturbers import ERM, Perturber
from certus.runs.directory import RunDirectory
from certus.runs.files import RunError
from certus.runs.recorder import Recorder
from certus.runs.results import result_of
from certus.runs.settings import ATTACKS as ATTACKS
from certus.runs.settings import COSTS, OPTIMIZERS
from certus.runs.settings import METHODS as METHODS
from certus.runs.settings import NORMS as NORMS
from certus.runs.settings import TAKEN as TAKEN
from certus.runs.settings import Settings as Settings
from certus.runs.tags import from_tag, to_tag
from certus.surrogate import WRM, default_maximizer
from certus.training import Fit, Observer, RandomShift, RandomWarp, fit
from certus.training.criteria import choose_criterion, default_criterion

_ITERATED = {"ifgm": ifgm, "pgm": pgm}


def load_data(settings: Settings) -> DataSet:
    """The data that the settings name."""
    return load(settings.data, seed=settings.seed, standardize=settings.standardize, target=settings.target)


def load_same_data(run: RunDirectory, settings: Settings) -> DataSet:
    """The data of a run, checked to be those that it was started with, in the same split."""
    missing = {"data_sha256", "model_sha256", "criterion", "cost", "domain"} - run.settings.keys()
    if missing:
        raise RunError(f"{run.path} is corrupt: run.json lacks {', '.join(sorted(missing))}.")
    data = load_data(settings)
    if data.sha256 != run.settings["data_sha256"]:
        raise RunError(f"{run.path} was started with other data: {settings.data} now has another sha256.")
    rows = run.rows
    if rows.keys() != data.rows.keys() or not all(torch.equal(rows[name], data.rows[name]) for name in rows):
        raise RunError(f"{run.path} was started with another split than {settings.data} has now.")
    return data


def natural_cost(data: DataSet) -> Cost:
    """Squared L2, weighted where the data have features of different kinds."""
    return SquaredL2() if data.weights is None else WeightedL2(data.weights)


def chosen_cost(settings: Settings, data: DataSet) -> Cost:
    """The cost that the settings name."""
    return COSTS[settings.cost] if settings.cost in COSTS else natural_cost(data)


def start_run(path: Path, settings: Settings, data: DataSet, origin: str = "trained") -> RunDirectory:
    """A new run directory for these settings, before any training; ``origin`` may be "imported"."""
    criterion = choose_criterion(data, settings.label_smoothing, settings.margin, settings.temperature)
    images = data.train.inputs.dim() == 4
    for name, value in (("shift", settings.shift), ("warp", settings.warp)):
        require(images or value == 0, name, "be 0 for data that are no images", value)
    cost, domain = chosen_cost(settings, data), data.domain if settings.clip else Unbounded()
    build_method(settings, cost, domain)
    if settings.method in _ITERATED and settings.step_size is None:
        assert settings.epsilon is not None  # checked by Settings
        settings = replace(settings, step_size=default_step(settings.epsilon, settings.steps) or None)
    about: dict[str, Any] = {
        "certus_version": certus.__version__,
        "torch_version": torch.__version__,
        "origin": origin,
        "settings": asdict(settings),
        "data_sha256": data.sha256,
        "model_sha256": file_digest(settings.model),
        "criterion": to_tag(criterion),
        "cost": to_tag(cost),
        "domain": to_tag(domain),
    }
    return RunDirectory.create(path, about, data.rows)


def build_method(settings: Settings, cost: Cost, domain: Domain) -> Perturber:
    """The perturber that the settings ask for."""
    if settings.method == "erm":
        return ERM()
    if settings.method in ATTACKS:
        assert settings.epsilon is not None  # checked by Settings
        assert settings.norm is not None
        budget, norm = settings.epsilon, NORMS[settings.norm]
        if settings.method == "fgm":
            return fgm(budget, norm, domain=domain)
        make, step = _ITERATED[settings.method], settings.step_size
        return make(budget, norm, steps=settings.steps, step_size=step, domain=domain)
    maximizer = default_maximizer(cost, domain, tolerance=settings.tolerance)
    gamma = settings.gamma
    if settings.certified and gamma is not None:
        gamma *= _stiffness(settings)
    return WRM(gamma, rho=settings.rho, cost=cost, domain=domain, maximizer=maximizer)


def certified_set(settings: Settings, model: nn.Module, data: DataSet) -> bool | CertifiedSet:
    """Θ of a certified run at a given γ; True where γ is to follow ρ, False if it is not certified.

    Θ is about the plain loss. A training loss with a temperature bends more, by the factor ``_stiffness``,
    and is trained with a γ that is larger by it: then sγ ≥ L̄ holds for both.
    """
    if not settings.certified:
        return False
    theta = CertifiedSet(
        model,
        settings.gamma or 1.0,
        input_shape=tuple(data.train.inputs.shape[1:]),
        criterion=default_criterion(data.train),
        cost=chosen_cost(settings, data),
    )
    return True if settings.gamma is None else theta


def _stiffness(settings: Settings) -> float:
    """How much more the training loss may bend than cross-entropy, at the same network."""
    sharpness = 1 / settings.temperature
    return max(1.0, sharpness) if settings.margin else max(sharpness, sharpness**2)


def settings_of(run: RunDirectory) -> Settings:
    """The settings of a run, checked again."""
    try:
        return Settings(**run.settings["settings"])
    except (TypeError, KeyError) as reason:
        raise RunError(f"{run.path} is corrupt: its settings do not fit: {reason}.") from None


def rebuild_model(run: RunDirectory, settings: Settings, data: DataSet, given: str | None) -> nn.Module:
    """The network of a run. A user's own file is never executed unless it is named again."""
    if not has_own_file(settings):
        rule = f"be left out: the run's own, {settings.model}, is no file"
        require(given in (None, settings.model), "model", rule, given)
        return build_model(settings.model, data, settings.seed)
    if given is None:
        raise ArgumentError(
            f"`model` must be given again, since the run's own, {settings.model}, would be executed: "
            f"add --model {settings.model} if you trust it."
        )
    found = f"{given}, which has another sha256"
    require(_same_file(run, given), "model", "be the file that the run was started with", found)
    rule = f"name the factory that the run was started with, {_factory(settings.model)}"
    require(_factory(given) == _factory(settings.model), "model", rule, given)
    return build_model(given, data, settings.seed)


def has_own_file(settings: Settings) -> bool:
    """Whether the network is made by code of the user's, ``FILE.py:FACTORY``."""
    return ".py:" in settings.model


def own_model(run: RunDirectory, given: Sequence[str]) -> str | None:
    """Which of several ``FILE.py:FACTORY`` is the run's own; the first if none is, for the error to name.

    None for a run that needs none.
    """
    settings = settings_of(run)
    if not has_own_file(settings):
        return None
    known = _factory(settings.model)
    fitting = (text for text in given if _factory(text) == known and _same_file(run, text))
    return next(fitting, given[0] if given else None)


def _same_file(run: RunDirectory, model: str) -> bool:
    return bool(file_digest(model) == run.settings["model_sha256"])


def _factory(model: str) -> str:
    return model.rpartition(":")[2]


def load_model(run: RunDirectory, *, model: str | None = None) -> nn.Module:
    """The trained network of a complete run, in eval mode.

    Args:
        model: the run's own ``FILE.py:FACTORY``, if it has one: it is executed.
    """
    settings = settings_of(run)
    network = rebuild_model(run, settings, load_data(settings), model)
    network.load_state_dict(run.weights())
    return network.eval()


def execute(
    run: RunDirectory,
    *,
    model: str | None = None,
    observers: list[Observer] | None = None,
    fabric: Fabric | None = None,
) -> Fit:
    """Train to the end, from the last checkpoint if there is one, and write the result.

    Args:
        model: the user's own ``FILE.py:FACTORY``, if the run has one.
        observers: who else watches, such as a progress bar.
    """
    fabric = fabric or Fabric(devices=1)
    settings, about = settings_of(run), run.settings
    if about.get("origin") == "imported":
        raise RunError(f"{run.path} was imported, not trained; there is nothing to resume.")
    data = load_same_data(run, settings)
    network = rebuild_model(run, settings, data, model)
    method = build_method(settings, from_tag(about["cost"]), from_tag(about["domain"]))
    criterion = from_tag(about["criterion"])
    if not isinstance(criterion, CrossEntropy | SmoothMargin | SquaredError):
        raise RunError(f"{run.path} is corrupt: its criterion is {criterion!r}.")
    recorder = Recorder(run.path, writes=fabric.global_rank == 0)
    chosen = OPTIMIZERS[settings.optimizer]
    done = fit(
        network,
        data,
        method=method,
        criterion=criterion,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=lambda groups: chosen(groups, lr=settings.learning_rate),
        schedule=_cosine(settings.epochs) if settings.schedule == "cosine" else None,
        certified=certified_set(settings, network, data),
        augment=_augmentation(settings),
        weight_decay=settings.weight_decay,
        seed=settings.seed,
        fabric=fabric,
        observers=[recorder, *(observers or [])],
    )
    if fabric.global_rank == 0:
        run.finish(network.state_dict(), result_of(done, ModelLoss(network, criterion), data))
    return done


def _augmentation(settings: Settings) -> Callable[[Tensor], Tensor] | None:
    """What is done to training images; None if nothing is."""
    if settings.warp:
        return RandomWarp(settings.warp, settings.shift)
    return RandomShift(settings.shift) if settings.shift else None


def _cosine(epochs: int) -> Any:
    return lambda optimizer: CosineAnnealingLR(optimizer, T_max=epochs)
