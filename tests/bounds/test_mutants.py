"""Mistakes that would make a bound wrong, made on purpose: each must be seen by a check of these tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import CrossEntropy
from certus.bounds import norm_proposals
from certus.kernel import norms, operators, pointwise
from certus.kernel.losses import Softmax
from certus.kernel.operators import Affine
from certus.kernel.passes import ForwardBound
from certus.kernel.pointwise import Pointwise, Site
from tests.bounds.networks import Plan
from tests.bounds.test_closed_forms import check_linear_softmax
from tests.bounds.test_closed_forms import (
    test_label_smoothing_does_not_vanish_where_the_model_is_certain as check_smoothing,
)
from tests.bounds.test_closed_forms import (
    test_one_hidden_unit_with_a_known_maximiser as check_known_maximiser,
)
from tests.bounds.test_norm_proposals import (
    test_convolutions_against_the_dense_svd as check_convolutions,
)
from tests.bounds.test_soundness import violations
from tests.kernel.reading import operator, svd_norm


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm_proposals, "_CACHE", type(norm_proposals._CACHE)())


def caught(check: Callable[[], object]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def test_unchecked_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power iteration gives lower bounds: as claims they are refused, unchecked they would be wrong."""

    def power_iteration(matrices: Tensor) -> float:
        return float(norm_proposals._power_iteration(matrices, 3).max())

    monkeypatch.setattr(norm_proposals, "_largest_norm", power_iteration)
    assert not caught(lambda: svd_at_most_norm(1))
    monkeypatch.setattr(operators, "checked_norm", lambda matrices, claim, error=0.0: claim)
    assert caught(lambda: svd_at_most_norm(2))


def svd_at_most_norm(seed: int) -> None:
    torch.manual_seed(seed)
    layer = nn.Linear(12, 12).double()
    assert svd_norm(layer.weight.detach()) <= operator(layer, (12,)).norm


def test_an_fft_at_the_unpadded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    right = norms.circulant_blocks

    def unpadded(weight: Tensor, padded: tuple[int, ...], *rest: Any) -> tuple[Tensor, float]:
        return right(weight, tuple(max(size - 2, 1) for size in padded), *rest)

    assert not caught(lambda: check_convolutions(2))
    for module in (operators, norm_proposals):
        monkeypatch.setattr(module, "circulant_blocks", unpadded)
    monkeypatch.setattr(norm_proposals, "_SMALL_SIDE", 0)
    assert caught(lambda: check_convolutions(2))


DEEP = Plan("mlp", 1, (1, 1), 2, 12, 3.0, 5)


def test_curvature_without_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum rule, the max rule and β, each without the term of the first activation."""
    right = pointwise.sum_rule

    def forgetful(site: Site, bent: Tensor) -> Tensor:
        return right(site, bent) * (0.0 if site.matrix is not None else 1.0)

    assert not caught(check_known_maximiser)
    monkeypatch.setattr("certus.kernel.pointwise.sum_rule", forgetful)
    assert caught(check_known_maximiser)


def test_beta_without_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Pointwise.forward
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 2)).double()
    for weights in network.parameters():
        weights.data = torch.ones_like(weights)
    network[2].weight.data = torch.tensor([[0.1], [-0.1]]).double()
    network[2].bias.data = torch.tensor([-30.0, 30.0]).double()
    points = torch.linspace(-3, 3, 101, dtype=torch.float64).reshape(-1, 1)

    def sound() -> None:
        from tests.bounds.networks import sample

        found = sample(network, CrossEntropy(), points, torch.zeros(101, dtype=torch.long))
        assert found.curvature.max() <= certus.input_smoothness(network).bounds["corrected"]

    assert not caught(sound)

    def straight(self: Pointwise, before: ForwardBound, *rest: Any) -> tuple[ForwardBound, Any]:
        bound, memory = right(self, before, *rest)
        return replace(bound, curvature=before.curvature * 0), memory

    monkeypatch.setattr(Pointwise, "forward", straight)
    assert caught(sound)


def test_half_and_one_swapped_in_the_softmax_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """λ_max(diag p − ppᵀ) ≤ 1 instead of ½, D²/2 instead of D²/4; and the other way round, D²/8."""
    assert not caught(lambda: check_linear_softmax(0, 0.3))
    right = Softmax.combine
    for factor in (2.0, 0.5):
        with monkeypatch.context() as patch:
            patch.setattr(
                Softmax,
                "combine",
                lambda self, bend, spread, *rest, f=factor: right(self, bend, spread * f**0.5, *rest),
            )
            patch.setattr(Softmax, "variance", lambda self, error, f=factor: 0.25 * f + 0 * error)
            patch.setattr(Softmax, "corrected", lambda self, bend, length: 1e9 + 0 * bend)
            assert caught(lambda: check_linear_softmax(0, 0.3))


def test_the_unsmoothed_rule_under_label_smoothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(check_smoothing)
    monkeypatch.setattr(Softmax, "weight", lambda self, error, classes: self.slope * error)
    assert caught(check_smoothing)


def test_random_networks_see_a_bound_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampling itself has teeth: norms a third of the truth are found out."""
    plans = [Plan(kind, 2, (3,), 3, 1, 1.0, seed) for kind in ("mlp", "residual") for seed in range(10)]
    assert not any(violations(plan, CrossEntropy()) for plan in plans)
    right: Any = vars(Affine)["norm"]
    monkeypatch.setattr(Affine, "norm", property(lambda self: right.fget(self) / 3))
    assert any(violations(plan, CrossEntropy()) for plan in plans)
