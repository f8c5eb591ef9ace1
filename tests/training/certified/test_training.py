"""Certified training: every step is inside Θ, and what comes out is proven and survives attacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import certus
from certus import WRM
from certus.attacks import PGD, evaluate
from certus.bounds import input_smoothness
from certus.datasets import digits
from certus.errors import ArgumentError, UnsupportedError
from certus.inner.methods import ERM, Method
from certus.kernel.smoothness import Smoothness
from certus.models import build_model, certified_mlp, principal_components
from certus.training import Callback, Fit, RandomAffine, RandomTranslation, TrainingState, fit
from certus.training.certified import SAFETY, CertifiedSet, CertifiedTraining

DATA = digits()
SHAPE = (1, 8, 8)


def small(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return certified_mlp(64, [48], 10)


class Prover(Callback):
    """L̄ after every single step, by the analysis that the projection does not use."""

    def __init__(self) -> None:
        self.bounds: list[float] = []

    def on_step_end(self, state: TrainingState) -> None:
        self.bounds.append(input_smoothness(state.model, input_shape=SHAPE).curvature)


@pytest.mark.parametrize("method", [ERM(), WRM(1.5, domain=DATA.domain)], ids=["erm", "wrm"])
def test_every_step_is_inside(method: Method) -> None:
    prover = Prover()
    done = fit(
        small(),
        DATA.train[:600],
        method=method,
        certified=CertifiedTraining(None if isinstance(method, WRM) else 1.5),
        epochs=2,
        batch_size=64,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.05),
        callbacks=[prover],
    )
    assert len(prover.bounds) == 20
    assert max(prover.bounds) <= (1 - SAFETY) * 3
    assert done.proof is not None
    assert done.proof.curvature == prover.bounds[-1]
    assert [entry.curvature for entry in done.history] == prover.bounds[9::10]


def test_without_it_the_same_training_leaves() -> None:
    """The constraint binds: the test above could fail."""
    prover = Prover()
    fit(
        small(),
        DATA.train[:600],
        epochs=2,
        batch_size=64,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.05),
        callbacks=[prover],
    )
    assert max(prover.bounds) > 30


def trained(method: Method, certified: CertifiedTraining | None, **options: float) -> Fit:
    return fit(
        small(),
        DATA,
        method=method,
        certified=certified,
        epochs=6,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.01),
        **options,  # type: ignore[arg-type]
    )


def test_the_certificate_survives_attacks() -> None:
    """PGD within ε = √ρ never exceeds the certified loss or error at ρ, whatever its steps."""
    wrm = WRM(1.5, domain=DATA.domain)
    model = trained(wrm, CertifiedTraining()).model
    data = DATA.test[:150]
    found = certus.certify(model, data, rho=[0.01, 0.1], domain=DATA.domain, local_radii=2, attack_steps=5)
    for rho in (0.01, 0.1):
        for steps in (1, 15, 40):
            attack = PGD(rho**0.5, 2.0, steps=steps, domain=DATA.domain)
            outcome = evaluate(model, data, attack)
            bracket = found.bracket(rho)
            error = outcome.error
            assert error is not None
            assert bracket.error_high is not None
            assert float(outcome.losses.double().mean()) <= bracket.loss_high
            assert error.value <= bracket.error_high + 1e-12


def test_gamma_follows_rho_and_stays_proven() -> None:
    wrm = WRM(rho=0.05, domain=DATA.domain)
    done = trained(wrm, CertifiedTraining())
    assert done.robustness is not None
    assert done.proof is not None
    assert done.proof.curvature <= (1 - SAFETY) * 2 * done.robustness.gamma * (1 + 1e-12)
    assert done.robustness.rho_hat <= 0.05 * 1.06


def test_the_floor_of_gamma_can_be_raised() -> None:
    wrm = WRM(rho=0.05, domain=DATA.domain)
    theta = CertifiedSet(small(), 20.0, input_shape=SHAPE)
    fit(small(), DATA.train[:300], method=wrm, certified=CertifiedTraining(), epochs=1)
    wrm.gamma_min = 50.0
    assert wrm.gamma == 50.0
    assert wrm.at_floor
    with pytest.raises(ArgumentError, match="`gamma_min` must not be set with a fixed γ"):
        WRM(1.0).gamma_min = 2.0
    theta.gamma = 2.0
    assert theta.ceiling == pytest.approx(4 * (1 - SAFETY))


def test_refusals_of_certified_training() -> None:
    with pytest.raises(ArgumentError, match="`certified` must have a γ for a method without one"):
        fit(small(), DATA.train[:64], certified=CertifiedTraining())
    with pytest.raises(ArgumentError, match="`projection` must be None in certified training"):
        fit(small(), DATA.train[:64], certified=CertifiedTraining(1.0), projection=lambda model: None)
    relu = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(UnsupportedError, match=r"The layer 2 \(ReLU\) cannot be certified"):
        fit(relu, DATA.train[:64], certified=CertifiedTraining(1.0))


def test_translations_move_images_and_bring_zeros_in() -> None:
    images = torch.rand(64, 2, 5, 7) + 1
    translation = RandomTranslation(1)
    torch.manual_seed(3)
    moved = translation(images)
    seen = set()
    for before, after in zip(images, moved, strict=True):
        padded = np.pad(before.numpy(), ((0, 0), (1, 1), (1, 1)))
        fits = [
            (i, j)
            for i in range(3)
            for j in range(3)
            if np.array_equal(padded[:, i : i + 5, j : j + 7], after.numpy())
        ]
        assert len(fits) == 1
        seen.add(fits[0])
    assert len(seen) == 9
    with pytest.raises(ArgumentError, match="`images` must be"):
        translation(torch.zeros(2, 5))
    with pytest.raises(ArgumentError, match="`pixels` must be a whole number, at least 1"):
        RandomTranslation(0)


def test_affine_maps_are_maps_of_the_plane() -> None:
    """A bright blob of an image that is not square lands where the map that is drawn puts it."""
    strength, jitter, height, width = 0.2, 1.5, 41, 51
    torch.manual_seed(5)
    noise = 2 * torch.rand(30, 2, 3) - 1  # what it will draw
    maps = torch.eye(2) + strength * noise[:, :, :2]
    axes = [torch.arange(size) - (size - 1) / 2 for size in (height, width)]
    rows, columns = torch.meshgrid(*axes, indexing="ij")
    for place in ((0.0, 0.0), (9.0, -4.0)):
        blob = torch.exp(-((columns - place[0]) ** 2 + (rows - place[1]) ** 2) / 8)
        torch.manual_seed(5)
        moved = RandomAffine(strength, jitter)(blob.expand(30, 1, height, width))[:, 0]
        found = torch.stack([(moved * grid).sum((1, 2)) / moved.sum((1, 2)) for grid in (columns, rows)], 1)
        # The output at p shows the input at A p + s: a blob at x appears at A⁻¹(x − s).
        expected = torch.linalg.solve(maps, torch.tensor(place) - jitter * noise[:, :, 2])
        torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    with pytest.raises(ArgumentError, match="`images` must be"):
        RandomAffine(0.1)(torch.zeros(2, 5))
    with pytest.raises(ArgumentError, match=r"`images` must be floating-point numbers; got torch\.uint8"):
        RandomAffine(0.1)(torch.zeros(2, 1, 5, 5, dtype=torch.uint8))
    with pytest.raises(ArgumentError, match=r"`strength` must lie between 0 and 0\.5; got 0\.7"):
        RandomAffine(0.7)
    with pytest.raises(ArgumentError, match="`jitter` must be finite and not negative; got -1"):
        RandomAffine(0.1, -1)


def test_principal_components_equal_numpys() -> None:
    points = DATA.train.inputs
    basis = principal_components(points, 5).double().numpy()
    flat = points.flatten(1).double().numpy()
    right = np.linalg.svd(flat - flat.mean(0), full_matrices=False)[2][:5]
    assert np.allclose(np.abs((basis * right).sum(1)), 1, atol=1e-5)
    with pytest.raises(ArgumentError, match="`components` must lie between 1 and 64; got 65"):
        principal_components(points, 65)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("certified-mlp", ["Flatten", "Linear", "LogCosh", "Linear"]),
        ("certified-mlp:16,8:smoothabs", ["Flatten", "Linear", "SmoothAbs", "Linear", "SmoothAbs", "Linear"]),
        ("certified-mlp:16:logcosh:20", ["Flatten", "Linear", "Linear", "LogCosh", "Linear"]),
        ("certified-cnn:4", ["Conv2d", "LogCosh", "Flatten", "Linear"]),
    ],
)
def test_the_zoo_by_name(spec: str, parts: list[str]) -> None:
    model = build_model(spec, DATA)
    assert [type(layer).__name__ for layer in model.children()] == parts
    theta = CertifiedSet(model, 2.0, input_shape=SHAPE)
    theta(model)
    assert theta.prove().curvature <= theta.ceiling


@pytest.mark.parametrize(
    "spec", ["certified-mlp:x", "certified-mlp:8:logcosh:2:2", "certified-cnn:4:logcosh:1"]
)
def test_names_that_mean_nothing(spec: str) -> None:
    with pytest.raises(ArgumentError, match=r"`model` must be like certified-.*; got 'certified-"):
        build_model(spec, DATA)
    with pytest.raises(ArgumentError, match="`units` must be one of logcosh, smoothabs; got 'relu'"):
        build_model("certified-mlp:8:relu", DATA)
    with pytest.raises(ArgumentError, match="`widths` must be whole numbers from 1"):
        build_model("certified-mlp:0", DATA)


def test_the_kernel_proves_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projection of this network proposes without the kernel, which bounds every epoch and the end."""
    proven: list[float] = []
    bounds = Smoothness._bounds

    def watched(*arguments: Any, **options: Any) -> Any:
        result = bounds(*arguments, **options)
        proven.append(min(float(values[0]) for values in result.curvature.values()))
        return result

    monkeypatch.setattr(Smoothness, "_bounds", watched)
    options: dict[str, Any] = {"epochs": 3, "method": WRM(1.5, domain=DATA.domain)}
    done = fit(small(), DATA.train[:200], certified=CertifiedTraining(), **options)
    assert done.proof is not None
    assert [*(entry.curvature for entry in done.history), done.proof.curvature] == proven
    assert done.proof.evidence == "proven"
