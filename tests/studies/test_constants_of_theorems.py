"""The constants that select_studies call proven, against exact derivatives at random points of their sets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from torch import Tensor
from torch.func import grad, jacrev

from certus.data import Samples
from certus.datasets import load
from studies import convergence, generalization
from studies.study import Scale
from studies.workspace import Workspace


def softmax_loss(weights: Tensor, point: Tensor) -> Tensor:
    outputs = weights.view(-1, len(point)) @ point
    return torch.logsumexp(outputs, 0) - outputs[0]


@pytest.mark.parametrize("seed", range(20))
def test_of_the_linear_softmax(seed: int) -> None:
    """Exact Hessians for ‖W‖₂ ≤ b, ‖x‖ ≤ R never exceed the formulas; some come near."""
    generator = torch.Generator().manual_seed(seed)
    known = convergence.softmax_constants(1.0, 3)
    reach = known.noise / math.sqrt(2)
    weights = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    weights *= convergence.NORM_BOUND * (0.01 if seed % 2 else 1) / torch.linalg.matrix_norm(weights, 2)
    point = torch.randn(4, generator=generator, dtype=torch.float64)
    point *= reach / point.norm()
    flat = weights.flatten()
    assert torch.linalg.matrix_norm(jacrev(grad(softmax_loss))(flat, point), 2) <= known.parameter_smoothness
    mixed = jacrev(grad(softmax_loss), argnums=1)(flat, point)
    assert torch.linalg.matrix_norm(mixed, 2) <= known.cross_smoothness
    bent = jacrev(grad(softmax_loss, argnums=1), argnums=1)(flat, point)
    assert torch.linalg.eigvalsh(bent)[-1] <= 2 * convergence.STEP_GAMMA - known.modulus + 1e-12
    assert grad(softmax_loss)(flat, point).norm() <= known.noise + 1e-12


def test_they_are_not_idle() -> None:
    """At W = 0 with two classes the bound on ∇²_WW is attained."""
    flat, point = torch.zeros(8, dtype=torch.float64), torch.tensor([0.0, 0.0, 0.0, 2.0]).double()
    found = torch.linalg.matrix_norm(jacrev(grad(softmax_loss))(flat, point), 2).item()
    assert found == pytest.approx(point.norm().item() ** 2 / 2)


def test_no_sample_moves_further_than_claimed() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    data = Samples(points / points.norm(dim=1, keepdim=True) * generalization.RADIUS, torch.arange(200) % 2)
    for weights in generalization.random_weights(20, generator):
        assert torch.linalg.matrix_norm(weights) <= 1 + 1e-12
        assert generalization.moved_costs(weights, data).max() <= generalization.REACH**2


def test_the_bound_for_one_network_is_hoeffdings() -> None:
    """P(|mean − E| > t) ≤ 2 exp(−2nt²/r⁴) = δ."""
    t = generalization.fixed_bound(500)
    assert 2 * math.exp(-2 * 500 * t**2 / generalization.REACH**4) == pytest.approx(0.05)
    assert generalization.uniform_bound(500) > 10 * t


def test_the_surrogate_and_its_gradient_are_those_of_another_solver() -> None:
    """φ by scipy for each of three samples; ∇F by differences of that."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    weights /= torch.linalg.matrix_norm(weights, 2)
    data = Samples(torch.rand(3, 4, generator=generator, dtype=torch.float64), torch.tensor([0, 2, 1]))

    def mean_of_phi(at: Tensor) -> float:
        total = 0.0
        for point, label in zip(data.inputs.numpy(), data.targets.tolist(), strict=True):

            def fall(moved: Any, point: Any = point, label: int = label) -> float:
                outputs = at.numpy() @ moved
                gap = float(logsumexp(outputs) - outputs[label])
                return convergence.STEP_GAMMA * float(((moved - point) ** 2).sum()) - gap

            total -= minimize(fall, point, tol=1e-12).fun / 3
        return total

    model = torch.nn.Linear(4, 3, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(weights)
    value, slope = convergence.surrogate_gradient(model, data)
    assert value == pytest.approx(mean_of_phi(weights), abs=1e-9)
    for row, column in ((0, 0), (1, 3), (2, 1)):
        step = torch.zeros_like(weights)
        step[row, column] = 1e-4
        difference = (mean_of_phi(weights + step) - mean_of_phi(weights - step)) / 2e-4
        assert slope[row, column].item() == pytest.approx(difference, abs=1e-6)


def test_a_run_of_the_theorem(tmp_path: Path) -> None:
    """From W = 0, where ‖∇F‖ is largest; its norm is that of all iterates, not of some."""
    settings = {"steps": 300, "seed": 0, "gradients": 50, "tolerance": 1e-8}
    found = convergence.measure_run(Workspace(tmp_path), settings)
    known = convergence.softmax_constants(1.0, 10)
    assert found["step_size"] == known.step_size(300)
    assert 0 < found["mean_square"] < found["bound"] == known.bound(300, found["accuracy"])
    assert found["accuracy"] < 1e-6
    assert 0 < found["largest_norm"] <= 300 * found["step_size"] * known.noise
    assert found["average_value"] < math.log(10), "F at the start, W = 0"
    short = convergence.measure_run(Workspace(tmp_path), settings | {"steps": 30})
    assert found["mean_square"] < short["mean_square"]


def test_the_average_iterate_is_that_of_another_program(tmp_path: Path) -> None:
    """Ten steps in numpy, inner problems by their fixed point x = x₀ + Wᵀ(p − e_y)/2γ."""
    train = load("digits").train
    inputs, labels = train.inputs.flatten(1).double().numpy(), train.targets.numpy()
    inputs = inputs / np.linalg.norm(inputs, axis=1).max()

    def moved(weights: Any, points: Any, wanted: Any) -> tuple[Any, Any]:
        """T_γ, and p − e_y there."""
        at = points
        for _ in range(100):
            errors = softmax(at @ weights.T, axis=1) - np.eye(10)[wanted]
            at = points + errors @ weights / (2 * convergence.STEP_GAMMA)
        return at, errors

    def surrogate(weights: Any) -> float:
        at, _ = moved(weights, inputs, labels)
        outputs = at @ weights.T
        losses = logsumexp(outputs, axis=1) - outputs[np.arange(len(labels)), labels]
        return float((losses - convergence.STEP_GAMMA * ((at - inputs) ** 2).sum(1)).mean())

    steps, generator = 10, torch.Generator().manual_seed(3)
    rate = convergence.softmax_constants(1.0, 10).step_size(steps)
    iterates = [np.zeros((10, 64))]
    for _ in range(steps):
        row = torch.randint(len(labels), (1,), generator=generator).numpy()
        at, errors = moved(iterates[-1], inputs[row], labels[row])
        iterates.append(iterates[-1] - rate * errors.T @ at)
    settings = {"steps": steps, "seed": 3, "gradients": 50, "tolerance": 1e-12}
    found = convergence.measure_run(Workspace(tmp_path), settings)
    average, last = surrogate(np.mean(iterates[:steps], axis=0)), surrogate(iterates[-1])
    assert abs(average - last) > 1e-4, "else the two could not be told apart"
    assert found["average_value"] == pytest.approx(average, abs=1e-7)
    assert found["largest_norm"] == pytest.approx(max(np.linalg.norm(one, 2) for one in iterates[:steps]))


def test_the_least_of_a_convex_surrogate(tmp_path: Path) -> None:
    found = convergence.measure_best(Workspace(tmp_path), {"iterations": 60})
    run = convergence.measure_run(
        Workspace(tmp_path), {"steps": 100, "seed": 0, "gradients": 50, "tolerance": 1e-8}
    )
    assert found["value"] < run["average_value"]
    assert found["gradient_norm"] < 1e-3


def test_samples_come_nearer_to_the_population(tmp_path: Path) -> None:
    settings = {"seed": 0, "networks": 3, "repetitions": 2, "population": 20_000, "counts": [50, 5000]}
    (part,) = generalization.STUDY.parts(Scale.QUICK)
    few, many = part.measure(Workspace(tmp_path), settings)["rows"]
    assert many["mean_deviation"] < few["mean_deviation"] / 3
    assert max(few["largest"]) >= few["mean_deviation"]
    assert few["missed"] == many["missed"] == 0
