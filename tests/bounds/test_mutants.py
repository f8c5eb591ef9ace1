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
from certus.bounds import criteria, spectral
from certus.bounds import curvature_rules as bending
from certus.bounds.activations import Activation
from certus.bounds.curvature_rules import Site
from certus.bounds.passes import Reach
from tests.bounds.networks import Plan
from tests.bounds.test_closed_forms import check_linear_softmax
from tests.bounds.test_closed_forms import (
    test_label_smoothing_does_not_vanish_where_the_model_is_certain as check_smoothing,
)
from tests.bounds.test_closed_forms import (
    test_one_hidden_unit_with_a_known_maximiser as check_known_maximiser,
)
from tests.bounds.test_norms import (
    test_convolutions_against_the_dense_svd as check_convolutions,
)
from tests.bounds.test_norms import (
    test_gram_iteration_is_an_upper_bound_and_tight as check_matrices,
)
from tests.bounds.test_soundness import violations


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spectral, "_CACHE", type(spectral._CACHE)())


def caught(check: Callable[[], object]) -> bool:
    try:
        check()
    except AssertionError:
        return True
    return False


def test_power_iteration_for_a_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    def power_iteration(matrices: Tensor) -> float:
        vectors = torch.ones(len(matrices), matrices.shape[2], 1, dtype=matrices.dtype)
        for _ in range(20):
            vectors = matrices.mH @ (matrices @ vectors)
            vectors = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return float(torch.linalg.vector_norm(matrices @ vectors, dim=1).max())

    assert not caught(lambda: check_matrices((40, 40), "gaussian"))
    monkeypatch.setattr(spectral, "_largest", power_iteration)
    assert caught(lambda: check_matrices((40, 40), "gaussian"))


def test_an_fft_at_the_unpadded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from certus.bounds import operators as convolution
    from tests.bounds import test_norms

    right = spectral.circulant_norm

    def unpadded(weight: Tensor, padded: tuple[int, ...], *rest: object) -> float:
        return right(weight, tuple(max(size - 2, 1) for size in padded), *rest)  # type: ignore[arg-type]

    assert not caught(lambda: check_convolutions(2))
    monkeypatch.setattr(test_norms, "circulant_norm", unpadded)
    monkeypatch.setattr(convolution, "circulant_norm", unpadded)
    assert caught(lambda: check_convolutions(2))


DEEP = Plan("mlp", 1, (1, 1), 2, 12, 3.0, 5)


def test_curvature_without_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum rule, the max rule and β, each without the term of the first activation."""
    right = bending.sum_rule_curvature

    def forgetful(site: Site, bent: Tensor) -> Tensor:
        return right(site, bent) * (0.0 if site.matrix is not None else 1.0)

    assert not caught(check_known_maximiser)
    monkeypatch.setattr("certus.bounds.activations.sum_rule_curvature", forgetful)
    assert caught(check_known_maximiser)


def test_beta_without_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Activation.forward
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

    def straight(self: Activation, before: Reach, *rest: Any) -> tuple[Reach, Any]:
        reach, saved = right(self, before, *rest)
        return replace(reach, curvature=before.curvature * 0), saved

    monkeypatch.setattr(Activation, "forward", straight)
    assert caught(sound)


def test_half_and_one_swapped_in_the_softmax_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """λ_max(diag p − ppᵀ) ≤ 1 instead of ½, D²/2 instead of D²/4; and the other way round, D²/8."""
    assert not caught(lambda: check_linear_softmax(0, 0.3))
    right = criteria.Softmax.combine
    for factor in (2.0, 0.5):
        with monkeypatch.context() as patch:
            patch.setattr(
                criteria.Softmax,
                "combine",
                lambda self, bend, spread, *rest, f=factor: right(self, bend, spread * f**0.5, *rest),
            )
            patch.setattr(criteria.Softmax, "variance", lambda self, error, f=factor: 0.25 * f + 0 * error)
            patch.setattr(criteria.Softmax, "corrected", lambda self, bend, length: 1e9 + 0 * bend)
            assert caught(lambda: check_linear_softmax(0, 0.3))


def test_the_unsmoothed_rule_under_label_smoothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(check_smoothing)
    monkeypatch.setattr(criteria.Softmax, "weight", lambda self, error, classes: self.slope * error)
    assert caught(check_smoothing)


def test_random_networks_see_a_bound_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampling itself has teeth: norms a third of the truth are found out."""
    plans = [Plan(kind, 2, (3,), 3, 1, 1.0, seed) for kind in ("mlp", "residual") for seed in range(10)]
    assert not any(violations(plan, CrossEntropy()) for plan in plans)
    right = spectral._largest
    monkeypatch.setattr(spectral, "_largest", lambda matrices: right(matrices) / 3)
    monkeypatch.setattr(spectral, "_CACHE", type(spectral._CACHE)())
    assert any(violations(plan, CrossEntropy()) for plan in plans)
