"""From settings to what they name: data, cost, method, and Θ of certified training."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from certus.attacks.gradient import fgm, ifgm, pgm
from certus.costs import Cost, SquaredLp, SquaredSup
from certus.datasets import DataSet, load
from certus.datasets.catalogue import TABLES
from certus.domains import Domain
from certus.errors import ArgumentError, require
from certus.inner import WRM, Maximizer, PaperAscent, default_maximizer
from certus.inner.methods import ERM, Perturber
from certus.runs.column_prices import column_prices
from certus.runs.directory import RunDirectory
from certus.runs.settings import Settings
from certus.runs.table_features import priced_cost
from certus.spoken import GRADIENT_ATTACKS, NORMS
from certus.storage.files import DamageError, RunError
from certus.training import RandomJitter, RandomWarp
from certus.training.certified import CertifiedSet
from certus.training.criterion_choice import default_criterion

_NOISY_STEPS = 5
ITERATED = {"ifgm": ifgm, "pgm": pgm}
_COSTS = {"l1": SquaredLp(1.0), "linf": SquaredSup()}


def settings_of(run: RunDirectory) -> Settings:
    """The settings of a run, checked again."""
    try:
        known = dict(run.settings["settings"])
        if "shift" in known:  # its name in runs of schema version 1
            known["jitter"] = known.pop("shift")
        found = Settings(**known)
        # A run keeps it as seen from itself.
        away = found.folder and os.path.realpath(run.path / found.folder)
    except (TypeError, ArgumentError) as reason:
        raise DamageError(f"{run.path} is corrupt: its settings do not fit: {reason}") from None
    return replace(found, folder=away if run.moved is None else _moved(found.data, run.moved))


def _moved(data: str, place: str) -> str:
    """Where data of a user's own are now."""
    kind, own, _ = data.partition(":")
    require(own != "", "run_data", f"be left out for {data}, which is no file of yours", place)
    given, colon, path = place.partition(":")
    require(colon != "" and given == kind, "run_data", f"begin with {kind}: as the run's data do", place)
    return f"{kind}:{os.path.realpath(Path(path).expanduser())}"


def load_data(settings: Settings) -> DataSet:
    """The data that the settings name."""
    spec, options = placed(settings.data, settings.folder), None
    if settings.data.startswith(TABLES):
        options = settings.table
    found = load(spec, seed=settings.seed, standardize=settings.standardize, options=options)
    units = found.units if settings.price == "" else f"{found.units}, at the prices {settings.price}"
    return replace(found, name=settings.data, units=units)


def placed(spec: str, folder: str) -> str:
    """A relative path of one's own data as seen from here: a run works from any folder.

    >>> placed("csv:people.csv", "/data"), placed("digits", "/data"), placed("csv:/a/b.csv", "/data")
    ('csv:/data/people.csv', 'digits', 'csv:/a/b.csv')
    """
    prefix, colon, path = spec.partition(":")
    if colon and folder.startswith(f"{prefix}:"):
        return folder
    here = os.path.realpath(Path.cwd())
    away = folder != "" and colon and not path.startswith("~") and os.path.realpath(folder) != here
    return f"{prefix}:{Path(folder) / path}" if away else spec


def load_same_data(run: RunDirectory, settings: Settings) -> DataSet:
    """The data of a run, checked to be those that it was started with, in the same split."""
    place = placed(settings.data, settings.folder)
    kind, own, path = place.partition(":")
    if own and not Path(path).expanduser().exists():
        raise RunError(
            f"{run.path} was trained on {place}, and nothing is there now; if it was moved, "
            f"--run-data {kind}:PATH says where to."
        )
    data = load_data(settings)
    if data.sha256 != run.settings["data_sha256"]:
        found = settings.data if run.moved is None else run.moved
        raise RunError(f"{run.path} was started with other data: {found} now has another sha256.")
    rows = run.rows
    if rows.keys() != data.rows.keys() or not all(torch.equal(rows[name], data.rows[name]) for name in rows):
        raise RunError(f"{run.path} was started with another split than {settings.data} has now.")
    return data


def natural_cost(data: DataSet) -> Cost:
    """Squared L2, weighted where the data have features of different kinds."""
    return priced_cost(data, {})


def chosen_cost(settings: Settings, data: DataSet) -> Cost:
    """The cost that the settings name."""
    if settings.cost in _COSTS:
        return _COSTS[settings.cost]
    return priced_cost(data, column_prices(settings.price))


def build_method(settings: Settings, cost: Cost, domain: Domain) -> Perturber:
    """The perturber that the settings ask for."""
    if settings.method == "erm":
        return ERM()
    if settings.method in GRADIENT_ATTACKS:
        assert settings.epsilon is not None  # checked by Settings
        assert settings.norm is not None
        budget, norm = settings.epsilon, NORMS[settings.norm]
        if settings.method == "fgm":
            return fgm(budget, norm, domain=domain)
        make, step = ITERATED[settings.method], settings.step_size
        return make(budget, norm, steps=settings.steps, step_size=step, domain=domain)
    maximizer: Maximizer = default_maximizer(cost, domain, tolerance=settings.tolerance)
    if settings.ascent == "paper":
        maximizer = PaperAscent(settings.steps, settings.tolerance)
    elif settings.noise:
        maximizer = PaperAscent(_NOISY_STEPS, settings.tolerance)  # values in fresh noise cannot be compared
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


def build_augmentation(settings: Settings) -> Callable[[Tensor], Tensor] | None:
    """What is done to training images; None if nothing is."""
    if settings.warp:
        return RandomWarp(settings.warp, settings.jitter)
    return RandomJitter(settings.jitter) if settings.jitter else None
