"""Cases with a known answer: the bound is the truth, or the paper's formula worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import certus
from certus import CrossEntropy
from certus.costs import SquaredSup
from certus.losses import Logistic, SmoothMargin
from certus.models import LogCosh, Residual
from tests.bounds.margins import by_margins
from tests.bounds.networks import derivatives


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).double()
    layer.weight.data = weight.double()
    if bias is not None:
        layer.bias.data = bias.double()
    return layer


def curvature_at(model: nn.Module, point: Tensor, label: int, criterion: certus.losses.Criterion) -> float:
    leaf = point.double().reshape(1, -1).requires_grad_()
    _, bent = derivatives(by_margins(criterion)(model(leaf), torch.tensor([label])), leaf)
    return float(torch.linalg.eigvalsh(bent)[0, -1])


@given(seed=st.integers(0, 10**6), temperature=st.sampled_from([1.0, 0.3, 2.0]))
def test_linear_softmax(seed: int, temperature: float) -> None:
    check_linear_softmax(seed, temperature)


def check_linear_softmax(seed: int, temperature: float) -> None:
    """D²/4τ², attained where two classes at the largest distance tie and the others are far below."""
    torch.manual_seed(seed)
    weight = torch.randn(2, 3).double()
    model = nn.Sequential(linear(weight))
    distance = float((weight[0] - weight[1]).double().norm())
    bound = certus.input_smoothness(model, CrossEntropy(temperature=temperature))
    expected = distance**2 / 4 / temperature**2
    assert bound.curvature == pytest.approx(expected, rel=1e-7)
    assert bound.curvature >= expected
    found = curvature_at(model, torch.zeros(3), 0, CrossEntropy(temperature=temperature))
    assert found == pytest.approx(expected, rel=1e-9)
    assert bound.lipschitz == pytest.approx(distance / temperature, rel=1e-7)


def test_linear_losses() -> None:
    weight = torch.tensor([[3.0, 4.0]])
    one = nn.Sequential(linear(weight))
    assert certus.input_smoothness(one, Logistic()).curvature == pytest.approx(25 / 4)
    assert certus.input_smoothness(one, Logistic()).lipschitz == pytest.approx(5)
    assert certus.input_smoothness(one, certus.losses.SquaredError()).curvature == pytest.approx(2 * 25)
    two = nn.Sequential(linear(torch.cat([weight, -weight])))
    margin = certus.input_smoothness(two, SmoothMargin(1.0, sharpness=8.0))
    assert margin.curvature == pytest.approx(8 * 100 / 4)
    sup = certus.input_smoothness(two, cost=SquaredSup())
    assert sup.lipschitz == pytest.approx(14)  # ‖(6, 8)‖₁
    assert sup.curvature == pytest.approx(14**2 / 4)
    masked = certus.costs.Masked(certus.SquaredL2(), torch.tensor([True, False]))
    assert certus.input_smoothness(two, cost=masked).curvature == pytest.approx(36 / 4)
    weighted = certus.costs.WeightedL2(torch.tensor([1.0, 16.0]))
    assert certus.input_smoothness(two, cost=weighted).curvature == pytest.approx((36 + 64 / 16) / 4)


def test_one_hidden_unit_with_a_known_maximiser() -> None:
    """ℓ = log(1 + exp(a·s(wx) + B)), s = log cosh: at x = 0 the slope of s is 0 and its curvature b, so that
    with p → 1 ℓ'' → a·b·w². The max rule gives max(a²/4, ab)·w², equal to it when 4b ≥ a."""
    a, b, w, shift = 2.0, 3.0, 1.5, 40.0
    model = nn.Sequential(
        linear(torch.tensor([[w]])),
        LogCosh(b),
        linear(torch.tensor([[a], [0.0]]), torch.tensor([shift, 0.0])),
    )
    bound = certus.input_smoothness(model)
    assert bound.rule in ("max", "sum")
    assert bound.curvature == pytest.approx(a * b * w**2, rel=1e-6)
    assert curvature_at(model, torch.zeros(1), 1, CrossEntropy()) == pytest.approx(a * b * w**2, rel=1e-9)


def test_the_max_rule_reaches_the_threshold_of_a_linear_classifier() -> None:
    """With b ≤ M/e the activation adds nothing at all: D²/4 of the output layer times ‖W₁‖²."""
    torch.manual_seed(0)
    first, second = torch.linalg.qr(torch.randn(6, 4))[0], torch.randn(3, 6)
    spread = max(float((second[i] - second[j]).double().norm()) for i in range(3) for j in range(i))
    reach = (second.amax(0) - second.amin(0)).max()
    model = nn.Sequential(linear(first), LogCosh(float(spread**2 / 4 / reach)), linear(second))
    bound = certus.input_smoothness(model)
    assert bound.bounds["max"] == pytest.approx(spread**2 / 4, rel=1e-6)
    assert bound.bounds["max"] < bound.bounds["sum"]


def test_the_printed_formula_by_hand() -> None:
    """α and β of eq:lipschitzconsts, in NumPy, for sigmoid (L¹ = 1/10 as printed) and ELU."""
    torch.manual_seed(3)
    for activation, slope, bend in ((nn.Sigmoid, 0.25, 0.1), (nn.ELU, 1.0, 1.0)):
        affine = [nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 3)]
        model = nn.Sequential(affine[0], activation(), affine[1], activation(), affine[2]).double()
        norms = [np.linalg.norm(layer.weight.detach().numpy(), 2) for layer in affine]
        first, second = slope * norms[0], slope**2 * norms[0] * norms[1]
        alpha = second * norms[2]
        # The last σ is the identity: its L¹ is 0.
        beta = alpha * (bend / slope**2 * first + bend / slope**2 * second)
        bound = certus.input_smoothness(model)
        assert bound.bounds["paper"] == pytest.approx(math.sqrt(2) * beta + alpha**2, rel=1e-7)
        exact = bend if slope == 1 else 1 / (6 * math.sqrt(3))
        beta *= exact / bend
        grid = np.linspace(0, 0.5, 100001)
        corrected = (np.sqrt(2 - grid) * beta + grid * alpha**2).max()
        assert bound.bounds["corrected"] == pytest.approx(corrected, rel=1e-7)


def test_the_printed_formula_of_a_residual_block() -> None:
    """α = α_branch + 1 and β = β_branch."""
    torch.manual_seed(0)
    inner, outer, last = nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 2)
    model = nn.Sequential(Residual(nn.Sequential(inner, nn.Tanh(), outer)), last).double()
    norms = [np.linalg.norm(layer.weight.detach().numpy(), 2) for layer in (inner, outer, last)]
    alpha = (norms[0] * norms[1] + 1) * norms[2]
    beta = 4 / (3 * math.sqrt(3)) * norms[0] ** 2 * norms[1] * norms[2]
    bound = certus.input_smoothness(model, input_shape=(3,))
    assert bound.bounds["paper"] == pytest.approx(math.sqrt(2) * beta + alpha**2, rel=1e-7)


def test_the_sum_rule_by_hand() -> None:
    """One hidden layer: λ_max(W₁ᵀ diag(c) W₁) with c = sup (vσ'')⁺ for the worst pair, plus D²/4."""
    torch.manual_seed(1)
    first, second = torch.randn(5, 3).double(), torch.randn(3, 5).double()
    model = nn.Sequential(linear(first), nn.Softplus(), linear(second))
    bends, slopes = list[float](), list[float]()
    for k in range(3):
        for y in range(3):
            v = second[k] - second[y]
            c = (v.clamp_min(0) / 4).numpy()
            bends.append(float(np.linalg.eigvalsh(first.numpy().T @ np.diag(c) @ first.numpy())[-1]))
            cut = float(v.norm()) * float(np.linalg.norm(first.numpy(), 2))
            single = float(v.abs() @ first.norm(dim=1))
            slopes.append(min(cut, single, float((first.abs().T @ v.abs()).norm())))
    bound = certus.input_smoothness(model)
    assert bound.bounds["sum"] <= (max(bends) + max(slopes) ** 2 / 4) * (1 + 1e-7)
    assert bound.margin_curvature is not None
    torch.testing.assert_close(
        bound.margin_curvature.flatten(), torch.tensor(bends).double(), rtol=1e-7, atol=1e-9
    )


def test_label_smoothing_does_not_vanish_where_the_model_is_certain() -> None:
    """At q → 0 with ε = 0.1 and K = 3 the first-order part stays; the unsmoothed rule would say 0."""
    weight = torch.tensor([[0.0], [1.0], [0.0]])
    model = nn.Sequential(linear(torch.ones(1, 1)), nn.Tanh(), linear(weight, torch.tensor([60.0, 0.0, 0.0])))
    criterion = CrossEntropy(label_smoothing=0.1)
    point, label = torch.tensor([[math.atanh(1 / math.sqrt(3))]]), torch.tensor([0])
    truth = curvature_at(model, point, 0, criterion)
    assert truth == pytest.approx(4 / (3 * math.sqrt(3)) * 0.1 / 3, rel=1e-6)
    near = certus.bounds.local_smoothness(model, point, label, 0.01, criterion)
    assert float(near.curvature) >= truth
    plain = certus.bounds.local_smoothness(model, point, label, 0.01)
    assert float(plain.curvature) < 1e-20


def test_local_bounds_shrink_to_the_truth() -> None:
    """At radius 0 every σ' and σ'' is known: one hidden unit leaves no slack."""
    model = nn.Sequential(linear(torch.tensor([[2.0]])), nn.Tanh(), linear(torch.tensor([[1.0], [-0.5]])))
    point = torch.tensor([[-0.4]]).double()
    near = certus.bounds.local_smoothness(model, point, torch.tensor([1]), 0.0)
    assert float(near.curvature) == pytest.approx(curvature_at(model, point[0], 1, CrossEntropy()), rel=1e-6)
