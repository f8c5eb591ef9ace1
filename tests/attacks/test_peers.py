"""Step for step the attacks equal foolbox's and torchattacks' on the same model, start and step size."""

from __future__ import annotations

import math
from typing import Any

import foolbox
import pytest
import torch
import torchattacks
from torch import Tensor

from certus import Box, CrossEntropy, ModelLoss
from certus.attacks import BIM, FGSM, PGD, GradientAttack, projected_gradient_descent
from tests.attacks.models import convolutional, images

BOX = Box(0, 1)
MODEL, (INPUTS, LABELS) = convolutional(), images()
LOSS = ModelLoss(MODEL, CrossEntropy())
EPSILON = {2.0: 0.8, math.inf: 0.1}
NORMS = pytest.mark.parametrize("norm", [2.0, math.inf])
STEPS = pytest.mark.parametrize("steps", [1, 2, 5, 15])


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert (found - INPUTS).abs().max() > 0.01  # and neither stood still


def by_foolbox(attack: Any, epsilon: float, labels: Tensor | Any = LABELS) -> Tensor:
    wrapped = foolbox.PyTorchModel(MODEL, bounds=(0, 1))
    moved: Tensor = attack(wrapped, INPUTS, labels, epsilons=epsilon)[0]
    return moved


@NORMS
def test_fgm(norm: float) -> None:
    epsilon = EPSILON[norm]
    kind = foolbox.attacks.L2FastGradientAttack if norm == 2 else foolbox.attacks.LinfFastGradientAttack
    found = FGSM(epsilon, norm, domain=BOX)(LOSS, INPUTS, LABELS)
    same(found, by_foolbox(kind(), epsilon))
    if norm == math.inf:
        same(found, torchattacks.FGSM(MODEL, eps=epsilon)(INPUTS, LABELS))


@NORMS
@STEPS
def test_ifgm(norm: float, steps: int) -> None:
    epsilon = EPSILON[norm]
    step = 2.5 * epsilon / steps  # our default
    found = BIM(epsilon, norm, steps=steps, domain=BOX)(LOSS, INPUTS, LABELS)
    kind = foolbox.attacks.L2BasicIterativeAttack if norm == 2 else foolbox.attacks.LinfBasicIterativeAttack
    same(found, by_foolbox(kind(steps=steps, abs_stepsize=step), epsilon))
    if norm == 2:
        other = torchattacks.PGDL2(MODEL, eps=epsilon, alpha=step, steps=steps, random_start=False)
    else:
        other = torchattacks.BIM(MODEL, eps=epsilon, alpha=step, steps=steps)
    same(found, other(INPUTS, LABELS))


@NORMS
@STEPS
def test_pgm_from_the_same_start(norm: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    epsilon, step = EPSILON[norm], 0.03
    start = projected_gradient_descent.uniform(INPUTS, torch.full((len(INPUTS),), epsilon), norm)
    monkeypatch.setattr(projected_gradient_descent, "uniform", lambda *ignored: start)
    kind = foolbox.attacks.L2PGD if norm == 2 else foolbox.attacks.LinfPGD
    monkeypatch.setattr(kind, "get_random_start", lambda self, x0, radius: x0 + start)
    found = PGD(epsilon, norm, steps=steps, step_size=step, domain=BOX)(LOSS, INPUTS, LABELS)
    same(found, by_foolbox(kind(steps=steps, abs_stepsize=step), epsilon))


@STEPS
def test_sup_norm_pgm_draws_the_start_of_torchattacks(steps: int) -> None:
    """Both read the same uniform numbers from the generator."""
    torch.manual_seed(3)
    other = torchattacks.PGD(MODEL, eps=0.1, alpha=0.02, steps=steps, random_start=True)(INPUTS, LABELS)
    torch.manual_seed(3)
    same(PGD(0.1, steps=steps, step_size=0.02, domain=BOX)(LOSS, INPUTS, LABELS), other)


@NORMS
def test_targeted(norm: float) -> None:
    goals, epsilon = (LABELS + 1) % 3, EPSILON[norm]
    kind = foolbox.attacks.L2BasicIterativeAttack if norm == 2 else foolbox.attacks.LinfBasicIterativeAttack
    criterion = foolbox.criteria.TargetedMisclassification(goals)
    expected = by_foolbox(kind(steps=7, abs_stepsize=0.05), epsilon, criterion)
    found = BIM(epsilon, norm, steps=7, step_size=0.05, domain=BOX, targeted=True)(LOSS, INPUTS, goals)
    same(found, expected)
    assert (LOSS(found, goals) < LOSS(INPUTS, goals)).all()


@NORMS
def test_unclipped(norm: float) -> None:
    """foolbox always clips: bounds far away stand for none."""
    epsilon = EPSILON[norm] * 10
    kind = foolbox.attacks.L2BasicIterativeAttack if norm == 2 else foolbox.attacks.LinfBasicIterativeAttack
    wrapped = foolbox.PyTorchModel(MODEL, bounds=(-100, 100))
    expected = kind(steps=5, abs_stepsize=epsilon / 2)(wrapped, INPUTS, LABELS, epsilons=epsilon)[0]
    found = GradientAttack(epsilon, norm, steps=5, step_size=epsilon / 2)(LOSS, INPUTS, LABELS)
    same(found, expected)
    assert found.min() < 0
