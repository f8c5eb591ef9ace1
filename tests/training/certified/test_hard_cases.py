"""Certified training where arithmetic, layers or options make it hard to stay inside Θ."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus import WRM, CrossEntropy
from certus.bounds import input_smoothness
from certus.costs import SquaredL2
from certus.datasets import digits, wine
from certus.domains import Unbounded
from certus.errors import UnsupportedError
from certus.models import LogCosh, Scale, certified_cnn, certified_mlp
from certus.runs.factory import build_criterion, build_method
from certus.runs.settings import Settings
from certus.training import fit
from certus.training.calibration import RobustnessStatus
from certus.training.certified import SAFETY, CertifiedSet, CertifiedTraining, clip_matrix

DATA = digits()


def enlarged(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)
    return model


@pytest.mark.parametrize(
    "model",
    [
        certified_mlp(6, [32, 16], 3).double(),
        nn.Sequential(nn.Linear(6, 16), LogCosh(torch.ones(16)), Scale(-1.0), nn.Linear(16, 3)),
    ],
    ids=["float64", "negative scale"],
)
def test_one_projection_is_enough(model: nn.Module) -> None:
    theta = CertifiedSet(enlarged(model), 1.5, input_shape=(6,))
    theta(model)
    assert input_smoothness(model, input_shape=(6,)).curvature <= 3 * (1 - SAFETY)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_a_huge_direction_does_not_hide_the_others(size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 64, generator=generator) / 6
    weight += size * torch.randn(96, 1, generator=generator) @ torch.randn(1, 64, generator=generator) / 78
    clip_matrix(weight)
    assert np.linalg.norm(weight.double().numpy(), 2) <= 1 + 1e-4


def test_weights_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(
        certus.errors.ArgumentError, match="`weight` must be finite, squared; got NaN or infinity"
    ):
        clip_matrix(torch.full((2, 2), math.inf))


def test_parametrized_layers_are_refused_by_name() -> None:
    model = certified_mlp(4, [8], 3)
    nn.utils.parametrizations.weight_norm(model[-1])
    with pytest.raises(
        UnsupportedError, match=r"The layer 3 \(\w*Linear\) cannot be certified: its weight is computed"
    ):
        CertifiedSet(model, 1.5, input_shape=(4,))


def test_a_sharpness_for_each_channel() -> None:
    """It fits the units it stands behind, whatever shape another layer has; and it can be certified."""
    torch.manual_seed(0)
    CertifiedSet(certified_cnn((1, 8, 8), [8, 8, 8], 10), 1.5, input_shape=(1, 8, 8))
    model = nn.Sequential(nn.Conv2d(1, 4, 3), LogCosh(torch.ones(4, 1, 1)), nn.Flatten(), nn.Linear(144, 10))
    theta = CertifiedSet(model, 1.5, input_shape=(1, 8, 8))
    theta(model)
    found = certus.certify(model, DATA.test[:10], rho=0.01, local_radii=0, gamma_rounds=0, attack_steps=0)
    assert found.bracket(0.01).loss_high < math.inf


@pytest.mark.parametrize("margin", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_training_loss_is_concave_too(temperature: float, margin: float) -> None:
    """Θ is about cross-entropy at γ; training solves another loss, with a γ above half of its curvature."""
    settings = Settings(
        "digits", "certified-mlp:16", certified=True, gamma=1.5, temperature=temperature, margin=margin
    )
    torch.manual_seed(0)
    model = enlarged(certified_mlp(64, [48], 10))
    CertifiedSet(model, 1.5, input_shape=(64,))(model)
    method = build_method(settings, SquaredL2(), Unbounded())
    assert isinstance(method, WRM)
    assert method.gamma is not None
    criterion = build_criterion(settings, DATA)
    bound = input_smoothness(model, criterion, input_shape=(64,)).curvature
    assert bound <= 2 * float(method.gamma)


def test_the_proof_is_about_plain_labels() -> None:
    torch.manual_seed(0)
    model = certified_mlp(64, [48], 10)
    wrm = WRM(rho=0.05, domain=DATA.domain)
    done = fit(
        model,
        DATA.train[:300],
        method=wrm,
        criterion=CrossEntropy(0.5),
        certified=CertifiedTraining(),
        epochs=1,
    )
    assert done.proof is not None
    assert done.proof.curvature == pytest.approx(input_smoothness(model, input_shape=(1, 8, 8)).curvature)


def test_a_rho_out_of_reach_ends_at_the_proven_floor() -> None:
    data = wine()
    torch.manual_seed(0)
    model = certified_mlp(data.train.inputs.shape[1], [32], 3)
    done = fit(model, data, method=WRM(rho=2.0), certified=CertifiedTraining(), epochs=3)
    assert done.robustness is not None
    assert done.proof is not None
    assert done.robustness.status is RobustnessStatus.FLOOR
    assert done.robustness.gamma == pytest.approx(done.proof.gamma / (1 - SAFETY))
    assert done.robustness.rho_hat < 2.0
