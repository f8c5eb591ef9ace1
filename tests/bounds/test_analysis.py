"""What an analysis says beside its bounds: values, slopes between classes, and where curvature comes from."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from certus.bounds.analysis import Analysis
from certus.bounds.layer_summary import curvature_parts
from certus.costs import SquaredSup, WeightedL2
from certus.kernel.max_pool import MaxPool
from certus.losses import CrossEntropy
from tests.bounds.balls import balls, coefficient, outputs


def small(seed: int, scale: float = 1.0) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


@pytest.mark.parametrize("seed", range(12))
def test_margins_are_rounded_up(seed: int) -> None:
    """Without its rounding about every second margin at a sample is below the exact one."""
    model, label = small(seed, 3.0), seed % 3
    point = torch.randn(1, 3, dtype=torch.float64)
    found = Analysis(model).run(point, torch.tensor([label]), torch.zeros(1, dtype=torch.float64)).margins
    assert found is not None
    with balls(terms=1):
        values = [coefficient(series, 0) for series in outputs(model, point)]
        for k in set(range(3)) - {label}:
            truth = values[k] - values[label]
            assert truth <= float(found[0, k]) <= truth + 1e-9


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_slope_between_any_two_classes(scale: float) -> None:
    """D bounds ‖∇(F_i − F_j)‖, and is no larger than the constants of the two against the label."""
    for seed in range(10):
        model, point = small(seed, scale), torch.zeros(1, 3, dtype=torch.float64)
        with torch.no_grad():
            first = model[0]
            assert isinstance(first, nn.Linear)
            first.bias.zero_()  # so that the units are steepest at the point
        smoothness = Analysis(model).smoothness
        _, _, at = smoothness.graph.rounded(point)
        end, trace = smoothness.body.forward(smoothness.start(), at, torch.zeros(1, dtype=torch.float64))
        found = smoothness._own_margins(end, trace, torch.tensor([0]))
        jacobian = torch.autograd.functional.jacobian(model, point)[0, :, 0]
        truth = max(float((a - b).norm()) for a, b in product(jacobian, jacobian))
        assert truth <= float(found.spread) * (1 + 1e-12)
        assert float(found.spread) <= float(found.lipschitz.topk(2).values.sum()) * (1 + 1e-12)


def test_the_parts_of_the_curvature_are_all_of_it() -> None:
    for seed in range(10):
        torch.manual_seed(seed)
        layers = (nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 3))
        found = Analysis(nn.Sequential(*layers).double()).everywhere
        parts = curvature_parts(found)
        total = sum(parts.values())
        assert len(parts) == 2
        assert found.margin_curvature is not None
        assert math.isclose(total, float(found.margin_curvature.max()), rel_tol=1e-8)


def test_curvature_in_the_sup_norm() -> None:
    """One unit w·x with w = (1, 1, 1, 1): along a direction of sup-norm 1 the unit moves by 4, not by 2."""
    model = nn.Sequential(nn.Linear(4, 1), nn.Softplus(), nn.Linear(1, 2)).double()
    with torch.no_grad():
        for parameter, value in zip(
            model.parameters(), ([[1.0] * 4], [0.0], [[1.0], [-1.0]], [0.0] * 2), strict=True
        ):
            parameter.copy_(torch.tensor(value, dtype=torch.float64))
    ones = torch.ones(4, dtype=torch.float64)
    attained = 0.0
    for z in torch.linspace(-6, 6, 241, dtype=torch.float64):

        def loss(x: Tensor) -> Tensor:
            return CrossEntropy()(model(x[None]), torch.tensor([1]))[0]

        hessian = torch.autograd.functional.hessian(loss, z / 4 * ones)
        attained = max(attained, float(ones @ hessian @ ones))
    bounds = Analysis(model, cost=SquaredSup()).everywhere.curvature
    assert attained > 4  # more than 4 times what it is in L2 at most, and that is at most 1 + 1
    for bound in bounds.values():
        assert float(bound) >= attained


def test_a_network_that_begins_with_an_activation_in_another_norm() -> None:
    """tanh(x), then w·x: in √(4v₁² + v₂²) the first feature costs twice as much, and counts half."""
    model = nn.Sequential(nn.Tanh(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 0.0]]))  # type: ignore[operator]
    found = Analysis(model, input_shape=(2,), cost=WeightedL2(torch.tensor([4.0, 1.0]))).everywhere
    assert found.margin_lipschitz is not None
    assert 1.5 <= float(found.margin_lipschitz.max()) <= 1.5 * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(1, 5, 8), (1, 8, 5)], ids=str)
def test_windows_of_inputs_that_are_not_square(shape: tuple[int, ...]) -> None:
    """MaxPool of 3 × 1 in steps of 1 share each entry three times; along the other axis none are shared."""
    for kernel, stride in (((3, 1), (1, 2)), ((1, 3), (2, 1))):
        model = nn.Sequential(nn.MaxPool2d(kernel, stride), nn.Flatten())
        width = model(torch.zeros(1, *shape)).shape[1]
        found = Analysis(nn.Sequential(*model, nn.Linear(width, 2)), input_shape=shape)
        (windows,) = [node.primitive for node in found.graph.nodes if isinstance(node.primitive, MaxPool)]
        assert math.sqrt(3) <= windows.gain <= math.sqrt(3) * (1 + 1e-12)
