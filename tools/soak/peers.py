"""The attacks of foolbox, torchattacks and ART on a certified problem, in a unit box of their own."""

from __future__ import annotations

import importlib
import importlib.util
import math
import random
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.oracles import Array
from tools.soak.drawn import Drawn

NAMES = [name for name in ("foolbox", "torchattacks", "art") if importlib.util.find_spec(name) is not None]
"""Those that are installed; ART comes with the extra bench."""

_STEPS = 5
_HALF = 8.0  # the unit box stands for [−8, 8] in every coordinate


_MODULES = ("foolbox", "torchattacks", "art.attacks.evasion", "art.estimators.classification")


def warm_up() -> None:
    """Import them once, before the forks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in _MODULES:
            if module.split(".")[0] in NAMES:
                importlib.import_module(module)


class _InUnitBox(nn.Module):
    """The network of points u ∈ [0, 1]^m, as pictures of 1 × m × 1 pixels in float32; two outputs or more."""

    def __init__(self, problem: Drawn) -> None:
        super().__init__()
        self.inner, self._problem = problem.model, problem

    def forward(self, pictures: Tensor) -> Tensor:
        outputs = self._problem.outputs(_HALF * (2 * pictures.flatten(1).double() - 1))
        if outputs.shape[1] == 1:
            outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
        return outputs.float()


def attack(library: str, problem: Drawn, radius: float, seed: int) -> Array:
    """(1, samples, size) what a library's projected gradients make of the samples within a radius."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  # ART draws from it
    model, size = _InUnitBox(problem).eval(), problem.inputs.shape[1]
    pictures = ((problem.inputs / _HALF + 1) / 2).float().reshape(-1, 1, size, 1)
    epsilon, two = radius / (2 * _HALF), problem.geometry.norm == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries
        moved = _ATTACKS[library](model, pictures, problem.targets, epsilon, two)
    points = _HALF * (2 * moved.detach().double().reshape(1, -1, size) - 1)
    return points.numpy()


def _foolbox(model: nn.Module, pictures: Tensor, labels: Tensor, epsilon: float, two: bool) -> Tensor:
    import foolbox

    kind = foolbox.attacks.L2PGD if two else foolbox.attacks.LinfPGD
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    moved: Tensor = kind(steps=_STEPS)(wrapped, pictures, labels, epsilons=epsilon)[1]
    return moved


def _torchattacks(model: nn.Module, pictures: Tensor, labels: Tensor, epsilon: float, two: bool) -> Tensor:
    import torchattacks

    kind = torchattacks.PGDL2 if two else torchattacks.PGD
    moved: Tensor = kind(model, eps=epsilon, alpha=epsilon / 2, steps=_STEPS)(pictures, labels)
    return moved


def _art(model: nn.Module, pictures: Tensor, labels: Tensor, epsilon: float, two: bool) -> Tensor:
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    wrapped: Any = PyTorchClassifier(
        model,
        loss=nn.CrossEntropyLoss(),
        input_shape=tuple(pictures.shape[1:]),
        nb_classes=max(2, int(labels.max()) + 1),
        clip_values=(0.0, 1.0),
        device_type="cpu",
    )
    climb = ProjectedGradientDescent(
        *(wrapped, 2 if two else math.inf, epsilon, epsilon / 2),
        max_iter=_STEPS,
        num_random_init=1,
        batch_size=len(pictures),
        verbose=False,
    )
    return torch.from_numpy(climb.generate(pictures.numpy(), labels.numpy()))


_ATTACKS = {"foolbox": _foolbox, "torchattacks": _torchattacks, "art": _art}
