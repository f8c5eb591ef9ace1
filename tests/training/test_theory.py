"""Constants of thm:convergence for linear softmax, against Hessians at random weights and inputs."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.functional import hessian

import certus
from certus.costs import LabelCost, SquaredSup
from certus.errors import UnsupportedError
from certus.inner import WRM
from certus.kernel.evidence import Evidence
from certus.losses import CrossEntropy
from certus.training.theory import softmax_constants
from studies import convergence

CLASSES, INPUTS = 3, 2
GAMMA, NORM, REACH = 4.0, 2.5, 1.5


def _loss(label: int, weights: Tensor, inputs: Tensor) -> Tensor:
    """ℓ of weights (classes, inputs + 1), the last column being the bias."""
    outputs = weights[:, :-1] @ inputs + weights[:, -1]
    return outputs.logsumexp(0) - outputs[label]


def test_no_hessian_is_above_the_constants() -> None:
    constants = softmax_constants(REACH, NORM, GAMMA, 1.0, bias=True)
    reach = REACH + math.sqrt(2) * NORM / (2 * GAMMA)
    generator = torch.Generator().manual_seed(0)
    largest = dict.fromkeys(("parameters", "cross", "inputs", "gradient"), 0.0)
    for number in range(150):
        weights = torch.randn(CLASSES, INPUTS + 1, generator=generator, dtype=torch.float64)
        weights[:, :-1] *= NORM / torch.linalg.matrix_norm(weights[:, :-1], 2)
        inputs = torch.randn(INPUTS, generator=generator, dtype=torch.float64)
        inputs *= reach / inputs.norm()
        label = number % CLASSES
        (own, mixed), (_, over_inputs) = hessian(partial(_loss, label), (weights, inputs))
        over_weights, mixed = (block.reshape(weights.numel(), -1) for block in (own, mixed))
        weights.requires_grad_()
        (slope,) = torch.autograd.grad(_loss(label, weights, inputs), weights)
        found = {
            "parameters": torch.linalg.matrix_norm(over_weights, 2),
            "cross": torch.linalg.matrix_norm(mixed, 2),
            "inputs": torch.linalg.eigvalsh(over_inputs).max(),
            "gradient": slope.norm(),
        }
        largest = {name: max(largest[name], float(value)) for name, value in found.items()}
    assert 0.3 * constants.parameter_smoothness < largest["parameters"] <= constants.parameter_smoothness
    assert 0.3 * constants.cross_smoothness < largest["cross"] <= constants.cross_smoothness
    assert 0.3 * constants.noise < largest["gradient"] <= constants.noise
    assert largest["inputs"] <= 2 * GAMMA - constants.modulus


def test_the_study_has_the_same_constants() -> None:
    """It begins at W = 0, where the surrogate itself is ln K."""
    theirs = convergence.softmax_constants(1.0, 10)
    ours = softmax_constants(1.0, convergence.NORM_BOUND, convergence.STEP_GAMMA, math.log(10), bias=False)
    for name in ("parameter_smoothness", "cross_smoothness", "modulus", "noise"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12)
    assert ours.initial_gap == pytest.approx(math.log(10) + convergence.NORM_BOUND**2 / 8)


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 1, INPUTS, generator=generator)
    return inputs, (inputs[:, 0, 0] > 0).long()


def _model(*, bias: bool = True) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 2, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
def test_a_training_reports_its_step_and_bound(bias: bool) -> None:
    model, (inputs, targets) = _model(bias=bias), _data()
    before = next(model.parameters()).detach().clone()
    with torch.no_grad():
        start = float(nn.functional.cross_entropy(model(inputs), targets))
    run = certus.fit(
        model, (inputs, targets), method=WRM(GAMMA), epochs=50, batch_size=20, theory=True, progress=False
    )
    report = run.theory
    assert report is not None
    assert (report.steps, report.evidence) == (150, Evidence.ASSUMED)
    after = next(model.parameters()).detach()
    first, last = (float(torch.linalg.matrix_norm(weights, 2)) for weights in (before, after))
    assert report.norm_bound >= max(first, last) - 1e-6
    assert report.largest_input == pytest.approx(float(inputs.flatten(1).norm(dim=1).max()))
    b = report.norm_bound
    assert report.constants.initial_gap == pytest.approx(start + b**2 / (2 * GAMMA), rel=1e-5)
    assert report.constants.modulus == pytest.approx(2 * GAMMA - b**2 / 2)
    assert report.step_size == report.constants.step_size(150)
    bound, rougher = report.bound(), report.bound(0.01)
    assert bound is not None
    assert rougher is not None
    slack = 4 * report.constants.cross_smoothness**2 / report.constants.modulus * 0.01
    assert rougher - bound == pytest.approx(slack)
    assert f"{b:.4g}" in report.premises[0]


def test_too_few_steps_for_the_theorem() -> None:
    run = certus.fit(_model(), _data(), method=WRM(0.4), epochs=1, batch_size=60, theory=True, progress=False)
    assert run.theory is not None
    assert run.theory.least_steps > run.theory.steps == 1
    assert (run.theory.step_size, run.theory.bound()) == (None, None)


def test_nothing_is_reported_unasked() -> None:
    assert certus.fit(_model(), _data(), method=WRM(GAMMA), epochs=1, progress=False).theory is None


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, 4), nn.ELU(), nn.Linear(4, 2)),
            {},
            "`theory` needs a linear layer",
        ),
        (None, {"method": None}, "`theory` needs WRM at a fixed γ"),
        (None, {"method": WRM(rho=0.1)}, "`theory` needs WRM at a fixed γ"),
        (None, {"method": WRM(GAMMA, cost=SquaredSup())}, "with the squared L2 cost and fixed labels"),
        (None, {"method": WRM(GAMMA, label_cost=LabelCost(1.0, 2))}, "and fixed labels; got WRM"),
        (None, {"criterion": CrossEntropy(label_smoothing=0.1)}, "`theory` needs plain cross-entropy"),
        (None, {"method": WRM(0.01)}, "needs an inner problem that is strongly concave"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused(
    model: nn.Module | None, options: dict[str, Any], message: str
) -> None:
    chosen: dict[str, Any] = {"method": WRM(GAMMA), "epochs": 1, "progress": False, **options}
    with pytest.raises(UnsupportedError, match=message):
        certus.fit(model or _model(), _data(), theory=True, **chosen)


def test_a_resumed_training_is_refused() -> None:
    class Resumed(certus.training.Callback):
        def on_train_start(
            self, state: certus.training.TrainingState, epochs: int, steps: int | None
        ) -> None:
            state.epoch = 1

    with pytest.raises(UnsupportedError, match="needs a training from its first step"):
        certus.fit(_model(), _data(), method=WRM(GAMMA), theory=True, callbacks=[Resumed()], progress=False)


def test_a_loader_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="needs training data in memory"):
        certus.fit(_model(), [_data()], method=WRM(GAMMA), epochs=1, theory=True, progress=False)
