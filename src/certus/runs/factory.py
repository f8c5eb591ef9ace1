"""Build data, model, cost and method from the settings of a run.

A user's own model file is executed only if the caller names it again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from certus._defaults import NOISY_STEPS
from certus._names import GRADIENT_ATTACKS, NORMS
from certus.attacks.projected_gradient_descent import BIM, FGSM, PGD
from certus.costs import Cost, LabelCost, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.datasets import SplitDataset, load
from certus.domains import Domain
from certus.errors import ArgumentError, require
from certus.inner import WRM, Maximizer, PaperAscent, default_maximizer
from certus.inner.methods import ERM, Method
from certus.losses import Criterion, CrossEntropy, MissProbability, SmoothMargin, inferred_criterion
from certus.models import build_model
from certus.models.networks import build_from
from certus.models.own_code import OwnCode, file_digest, is_own_file
from certus.runs.directory import RunDirectory
from certus.runs.serialization import serialize
from certus.runs.settings import Settings, column_costs
from certus.storage.files import CorruptFileError, RunError, convert
from certus.table_options import TABLES
from certus.training.certified import CertifiedTraining


@dataclass(frozen=True)
class Feature:
    """A column of a table and its inputs."""

    name: str
    columns: tuple[int, ...]  # a number has one, a date three (day and season), a category one for each value
    category: bool
    scale: float  # how many of the source's units a move by 1 is; 1 for a category
    mark: tuple[int, ...] = ()  # the inputs that say whether its value is missing; empty if none is


def features_of(data: SplitDataset, option: str = "run") -> list[Feature]:
    """Return the features of a table: its columns, each with all inputs that encode it."""
    if data.feature_names is None:
        rule = "be on a table" if option == "run" else "be left out except for a table"
        raise ArgumentError(f"`{option}` must {rule}, whose features have names; got {data.name}.")
    encoding = data.train.encoding
    if encoding is None:
        scales = torch.ones(len(data.feature_names)) if data.input_scale is None else data.input_scale[1]
        return [
            Feature(name, (index,), False, float(scales[index]))
            for index, name in enumerate(data.feature_names)
        ]
    scales = encoding.scales
    return [
        Feature(each.name, each.inputs, each.kind == "category", float(scales[each.inputs[0]]), each.mark)
        for each in encoding.columns
    ]


def named_feature(data: SplitDataset, name: str, option: str = "feature") -> Feature:
    """Return the feature with a name."""
    features = {each.name: each for each in features_of(data, "run" if option == "feature" else option)}
    require(name in features, option, f"be one of {', '.join(features)}", repr(name))
    return features[name]


def priced_cost(data: SplitDataset, prices: Mapping[str, float]) -> Cost:
    """Squared L2, weighted if features are of different types, with prices for some of them: of a move by one
    standard deviation, of another category, or of a missing value. They hold for all inputs of a column; ∞
    freezes it."""
    width = math.prod(data.train.inputs.shape[1:])
    weights = torch.ones(width) if data.weights is None else data.weights.clone()
    free = torch.ones(width, dtype=torch.bool)
    for name, price in prices.items():
        feature = named_feature(data, name, "feature_cost")
        columns = [*feature.columns, *feature.mark]
        if math.isinf(price):
            free[columns] = False
        else:
            weights[columns] *= price
    require(bool(free.any()), "feature_cost", "leave at least one feature free to move", dict(prices))
    plain = data.weights is None and bool((weights == 1).all())
    cost: Cost = SquaredL2() if plain else WeightedL2(weights)
    return cost if bool(free.all()) else Masked(cost, free)


def load_model(run: RunDirectory, *, model: str | None = None) -> nn.Module:
    """Load the trained network of a complete run, in eval mode.

    Args:
        model: the run's own ``FILE.py:FACTORY``, if it has one: it is executed.
    """
    settings = read_settings(run)
    network = rebuild_model(run, settings, load_data(settings), model)
    network.load_state_dict(run.weights())
    return network.eval()


def rebuild_model(run: RunDirectory, settings: Settings, data: SplitDataset, given: str | None) -> nn.Module:
    """Build the network of a run. A user's own file is executed only if it is named again."""
    if not is_own_file(settings.model):
        rule = f"be left out: the network of the run, {settings.model}, is not a file"
        require(given in (None, settings.model), "model", rule, given)
        return build_model(settings.model, data, settings.seed)
    if given is None:
        raise ArgumentError(
            f"`model` must be given again, since the file of the run, {settings.model}, would be executed: "
            f"give {settings.model} if you trust it."
        )
    rule = f"name the factory that the run was started with, {_factory(settings.model)}"
    require(_factory(given) == _factory(settings.model), "model", rule, given)
    # Compared while it is read: the bytes that are executed are the bytes that were compared.
    name, checksum = Path(given.rpartition(":")[0]).name, run.record.model_sha256
    if checksum is None:
        raise CorruptFileError(f"{run.path} is corrupt: run.json has no checksum of {name}.")
    expected = {name: checksum} | (run.record.model_imports or {})
    return build_from(given, data, settings.seed, expected=expected).network


def own_model(run: RunDirectory, given: Sequence[str]) -> str | None:
    """Choose the run's own of several ``FILE.py:FACTORY``: the first if none matches, for the error message;
    None for a run that needs none."""
    settings, checksum = read_settings(run), run.record.model_sha256
    if not is_own_file(settings.model):
        return None
    factory = _factory(settings.model)
    fitting = (text for text in given if _factory(text) == factory and file_digest(text) == checksum)
    return next(fitting, given[0] if given else None)


def _factory(model: str) -> str:
    return model.rpartition(":")[2]


ITERATED: dict[str, type[BIM | PGD]] = {"bim": BIM, "pgd": PGD}
_COSTS = {"l1": SquaredLp(1.0), "linf": SquaredSup()}


def read_settings(run: RunDirectory) -> Settings:
    """Read the settings of a run, checked."""
    try:
        settings = convert(run.record.settings, Settings)
    except CorruptFileError as reason:
        raise CorruptFileError(f"{run.path} is corrupt: its settings do not fit: {reason}") from None
    data, place = settings.data, run.moved
    if place is None:  # the stored folder is relative to the run
        return replace(settings, folder=settings.folder and os.path.realpath(run.path / settings.folder))
    kind, own, _ = data.partition(":")
    require(own != "", "run_data", f"be left out for {data}, which is not a file", place)
    given, colon, path = place.partition(":")
    require(colon != "" and given == kind, "run_data", f"begin with {kind}: as the run's data do", place)
    return replace(settings, folder=f"{kind}:{os.path.realpath(Path(path).expanduser())}")


def load_data(settings: Settings) -> SplitDataset:
    """Load the data that the settings name."""
    spec, options = resolve_data(settings.data, settings.folder), None
    if settings.data.startswith(TABLES):
        options = settings.table
    data = load(spec, seed=settings.seed, standardize=settings.standardize, options=options)
    units = data.units
    if settings.feature_cost != "":
        units += f", at the feature costs {settings.feature_cost}"
    return replace(data, name=settings.data, units=units)


def resolve_data(spec: str, folder: str) -> str:
    """Return data whose relative path starts at ``folder``, so that a run works from any folder.

    >>> [resolve_data(spec, "/data") for spec in ("csv:people.csv", "digits", "csv:/a/b.csv")]
    ['csv:/data/people.csv', 'digits', 'csv:/a/b.csv']
    """
    prefix, colon, path = spec.partition(":")
    if colon and folder.startswith(f"{prefix}:"):
        return folder
    here = os.path.realpath(Path.cwd())
    away = folder != "" and colon and not path.startswith("~") and os.path.realpath(folder) != here
    return f"{prefix}:{Path(folder) / path}" if away else spec


def load_same_data(run: RunDirectory, settings: Settings) -> SplitDataset:
    """Load the data of a run; check that content and split are those of its training."""
    place = resolve_data(settings.data, settings.folder)
    kind, own, path = place.partition(":")
    if own and not Path(path).expanduser().exists():
        raise RunError(
            f"{run.path} was trained on {place}, which does not exist now; give its new "
            f"location with --run-data {kind}:PATH."
        )
    data = load_data(settings)
    if data.sha256 != run.record.data_sha256:
        place_now = settings.data if run.moved is None else run.moved
        raise RunError(f"{run.path} was started with other data: the sha256 of {place_now} differs now.")
    rows = run.rows
    if rows.keys() != data.rows.keys() or not all(torch.equal(rows[name], data.rows[name]) for name in rows):
        raise RunError(f"{run.path} was started with another split than {settings.data} has now.")
    return data


def default_cost(data: SplitDataset) -> Cost:
    """Squared L2, weighted if features are of different types."""
    return priced_cost(data, {})


def build_cost(settings: Settings, data: SplitDataset) -> Cost:
    """Return the cost that the settings name; a user's file is executed."""
    if settings.cost in _COSTS:
        return _COSTS[settings.cost]
    if is_own_file(settings.cost):
        return _own_cost(settings.cost, tuple(data.train.inputs.shape[1:]))
    return priced_cost(data, column_costs(settings.feature_cost))


def _own_cost(spec: str, shape: tuple[int, ...]) -> Cost:
    """Return the cost that ``FACTORY(shape)`` of a user's file makes, for inputs of this shape.

    Runs store costs of certus as numbers, not as code, so that the file is needed at the start alone.
    """
    code = OwnCode(spec, option="cost")
    with code.imports():
        cost = code.factory()(shape)
    require(isinstance(cost, Cost), "cost", f"be a Cost that {spec} returns for a shape", type(cost))
    serialize(cost)  # refuses what a run cannot store
    chosen: Cost = cost
    return chosen


def build_method(settings: Settings, cost: Cost, domain: Domain, *, classes: int | None = None) -> Method:
    """Return the method that the settings name; ``classes`` is the number of labels, which a cost of changing
    them needs, or None for other targets."""
    if settings.method == "erm":
        return ERM()
    if settings.method in GRADIENT_ATTACKS:
        assert settings.epsilon is not None  # checked by Settings
        assert settings.norm is not None
        budget, norm = settings.epsilon, NORMS[settings.norm]
        if settings.method == "fgsm":
            return FGSM(budget, norm, domain=domain)
        make, step = ITERATED[settings.method], settings.step_size
        return make(budget, norm, steps=settings.steps, step_size=step, domain=domain)
    maximizer: Maximizer = default_maximizer(cost, domain, tolerance=settings.tolerance)
    if settings.maximizer == "paper":
        maximizer = PaperAscent(settings.steps, settings.tolerance)
    elif settings.noise:
        maximizer = PaperAscent(NOISY_STEPS, settings.tolerance)  # values in fresh noise cannot be compared
    gamma = settings.gamma
    if settings.certified and gamma is not None:
        gamma *= _stiffness(settings)
    label_cost = None
    if settings.label_cost is not None:
        if classes is None:
            got = f"{settings.label_cost:g}"
            raise ArgumentError(f"`label_cost` must be left out for targets that are no classes; got {got}.")
        label_cost = LabelCost(settings.label_cost, classes)
    return WRM(
        gamma,
        rho=settings.rho,
        cost=cost,
        domain=domain,
        maximizer=maximizer,
        label_cost=label_cost,
        precision=settings.inner_precision,
    )


def build_certified_training(settings: Settings, data: SplitDataset) -> CertifiedTraining | None:
    """Return certified training as the settings ask for it. Θ is about the plain loss; a training loss with a
    temperature, which bends more by the factor ``_stiffness``, has a γ that is larger by it."""
    if not settings.certified:
        return None
    if settings.gamma is None:
        return CertifiedTraining()
    criterion = inferred_criterion(data.train.targets)
    return CertifiedTraining(settings.gamma, criterion=criterion, cost=build_cost(settings, data))


def build_criterion(settings: Settings, data: SplitDataset) -> Criterion:
    """Return the default criterion, cross-entropy with its options, a smooth margin, or 1 − p_y."""
    bounded = settings.loss == "bounded"
    require(not bounded or data.classes is not None, "loss", "be left out for regression", "bounded")
    if bounded or data.classes is None:
        where = "with the bounded loss" if bounded else "for regression"
        for name, plain in (("label_smoothing", 0), ("margin", 0), ("temperature", 1)):
            value = getattr(settings, name)
            require(value == plain, name, f"be {plain} {where}", value)
        return MissProbability() if bounded else inferred_criterion(data.train.targets)
    smoothing, margin = settings.label_smoothing, settings.margin
    require(margin == 0 or smoothing == 0, "margin", "be 0 if labels are smoothed", margin)
    if margin:
        return SmoothMargin(margin, sharpness=1 / settings.temperature)
    return CrossEntropy(smoothing, settings.temperature)


def _stiffness(settings: Settings) -> float:
    """Factor by which the curvature of the training loss may exceed that of cross-entropy."""
    sharpness = 1 / settings.temperature
    return max(1.0, sharpness) if settings.margin else max(sharpness, sharpness**2)
