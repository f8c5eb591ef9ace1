"""Start, train and resume runs.

Everything is rebuilt from ``run.json``, so that a new run and a resumed one take the same path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

import certus
from certus.attacks.projected_gradient_descent import default_step
from certus.datasets import SplitDataset
from certus.domains import Unbounded
from certus.errors import require
from certus.losses import CrossEntropy, MissProbability, ModelLoss, SmoothMargin, SquaredError
from certus.models.own_code import Sources, file_digest
from certus.runs.directory import Recorder, RunDirectory
from certus.runs.factory import (
    ITERATED,
    build_certified_training,
    build_cost,
    build_criterion,
    build_method,
    load_same_data,
    read_settings,
    rebuild_model,
)
from certus.runs.serialization import deserialize, measure_result, serialize
from certus.runs.settings import Settings, decay_of_layers
from certus.smoothing.sampling import Noise
from certus.storage.files import RunError
from certus.training import Callback, Fit, RandomAffine, RandomFlip, RandomTranslation, fit
from certus.training._fit import one_device
from certus.training.augmentation import smoothed_concavity
from certus.training.metrics import balanced

if TYPE_CHECKING:  # it loads torch._dynamo, which takes a second and a half
    from lightning_fabric import Fabric


def start_run(
    path: Path,
    settings: Settings,
    data: SplitDataset,
    *,
    sources: Sources | None = None,
    imported: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None,
    locking: bool = True,
) -> RunDirectory:
    """Create the run directory for these settings, before any training; ``imported`` are weights that were
    trained elsewhere and their result, ``sources`` the user's code that built the network."""
    criterion = build_criterion(settings, data)
    images = data.train.inputs.dim() == 4
    for name, value in (
        ("translate", settings.translate),
        ("affine", settings.affine),
        ("flip", settings.flip),
    ):
        require(images or value == 0, name, "be 0 for inputs that are not images", value)
    cost, domain = build_cost(settings, data), data.domain if settings.clip else Unbounded()
    build_method(settings, cost, domain, classes=data.classes)
    if settings.method in ITERATED and settings.step_size is None:
        assert settings.epsilon is not None  # checked by Settings
        settings = replace(settings, step_size=default_step(settings.epsilon, settings.steps) or None)
    checksum, imports = file_digest(settings.model), None
    if sources is not None:
        imports = dict(sources.files)
        checksum = imports.pop(Path(settings.model.rpartition(":")[0]).name)
    # As seen from the run: a project that is moved as a whole still works.
    folder = settings.folder and os.path.relpath(os.path.realpath(settings.folder), os.path.realpath(path))
    about: dict[str, Any] = {
        "certus_version": certus.__version__,
        "torch_version": torch.__version__,
        "origin": "trained" if imported is None else "imported",
        "settings": asdict(replace(settings, folder=folder)),
        "data_sha256": data.sha256,
        "model_sha256": checksum,
        "model_imports": imports,
        "model_uncovered": None if sources is None else list(sources.uncovered),
        "criterion": serialize(criterion),
        "cost": serialize(cost),
        "domain": serialize(domain),
    }
    return RunDirectory.create(path, about, data.rows, done=imported, locking=locking)


def train_run(
    run: RunDirectory,
    *,
    model: str | None = None,
    callbacks: list[Callback] | None = None,
    fabric: Fabric | None = None,
) -> Fit:
    """Train to the end, from the last checkpoint if there is one, and write the result; ``model`` is the
    user's own ``FILE.py:FACTORY``, if the run has one."""
    settings, record = read_settings(run), run.record
    if record.origin == "imported":
        raise RunError(f"{run.path} was imported, not trained; there is nothing to resume.")
    data = load_same_data(run, settings)
    network = rebuild_model(run, settings, data, model)
    fabric = fabric or one_device(network, settings.precision)
    cost, domain = deserialize(record.cost), deserialize(record.domain)
    method = build_method(settings, cost, domain, classes=data.classes)
    criterion = deserialize(record.criterion)
    if not isinstance(criterion, CrossEntropy | SmoothMargin | SquaredError | MissProbability):
        raise RunError(f"{run.path} is corrupt: its criterion is {criterion!r}.")
    recorder = Recorder(run.path, writes=fabric.global_rank == 0)
    optimizer = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[settings.optimizer]
    steps = settings.epochs * -(-len(data.train) // settings.batch_size)
    schedulers: dict[str, Callable[[Optimizer], LRScheduler]] = {
        "cosine": partial(CosineAnnealingLR, T_max=settings.epochs),
        "onecycle": partial(
            OneCycleLR, max_lr=settings.learning_rate, total_steps=steps, cycle_momentum=False
        ),
    }
    done = fit(
        # Fixed shapes: a resumed run then computes the same, whichever batch comes first.
        cast(nn.Module, torch.compile(network, dynamic=False)) if settings.compile else network,
        balanced(data) if settings.class_weights == "balanced" else data,
        method=method,
        criterion=criterion,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        optimizer=partial(optimizer, lr=settings.learning_rate),
        scheduler=schedulers.get(settings.schedule),
        certified=build_certified_training(settings, data),
        augment=_augmentation(settings),
        noise=Noise(settings.noise, deserialize(record.cost)) if settings.noise else None,
        weight_decay=decay_of_layers(settings.weight_decay),
        seed=settings.seed,
        fabric=fabric,
        callbacks=[recorder, *(callbacks or [])],
        progress=False,
        measure_all=settings.measure_all,
    )
    if fabric.global_rank == 0:
        result = measure_result(done, ModelLoss(network, criterion), data)
        if settings.noise and done.robustness is not None:
            gamma, cost = done.robustness.gamma, deserialize(record.cost)
            result["smoothed"] = smoothed_concavity(settings.noise, criterion, gamma, cost.strong_convexity)
        run.finish(network.state_dict(), result)
    return done


def _augmentation(settings: Settings) -> Callable[[Tensor], Tensor] | None:
    """Return the changes of training images, one after the other."""
    changes: list[Callable[[Tensor], Tensor]] = []
    if settings.affine:
        changes.append(RandomAffine(settings.affine, settings.translate))
    elif settings.translate:
        changes.append(RandomTranslation(settings.translate))
    if settings.flip:
        changes.append(RandomFlip())

    def changed(images: Tensor) -> Tensor:
        for change in changes:
            images = change(images)
        return images

    return changed if changes else None
