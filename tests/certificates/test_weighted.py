"""Certificates of weighted samples: a weight of k is k copies of the sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from certus._validation import checked_weights
from certus.certificates import Certificate, certify
from certus.certificates.error_costs import worst_error
from certus.certificates.files import as_json
from certus.data import Samples
from certus.errors import ArgumentError, UnreadableModelError
from certus.kernel.rounding import mean_down, mean_up
from certus.models import mlp
from certus.storage.write import write_json

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(10, 2, generator=GENERATOR, dtype=torch.float64)
LABELS = (INPUTS.sum(1) > 0).long()
COPIES = torch.tensor([0, 3, 1, 1, 2, 0, 4, 1, 1, 2])


@pytest.fixture(scope="module")
def both() -> tuple[Certificate, Certificate]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = mlp(2, [4], 2, "softplus").double()
    repeated = Samples(INPUTS.repeat_interleave(COPIES, 0), LABELS.repeat_interleave(COPIES))
    weighted = Samples(INPUTS, LABELS, COPIES.double())
    first, second = (certify(model, data, rho=[0.02, 0.2], local_radii=2) for data in (weighted, repeated))
    return first, second


def test_a_weight_equals_as_many_copies(both: tuple[Certificate, Certificate]) -> None:
    for one, other in zip(*(each.curve([0.0, 0.02, 0.2]) for each in both), strict=True):
        assert one.loss_high == pytest.approx(other.loss_high, rel=1e-6)
        assert one.loss_low == pytest.approx(other.loss_low, rel=1e-6)
        assert one.error_high == pytest.approx(other.error_high, abs=1e-9)
        assert one.error_low == pytest.approx(other.error_low, abs=1e-9)


def test_the_worst_case_has_the_weights(both: tuple[Certificate, Certificate]) -> None:
    data, weights = both[0].worst_case_data(0.2)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights.reshape(-1, 10)[:, 0].sum()) == 0  # of weight 0
    cost = ((data.inputs - INPUTS.repeat(len(data) // 10, 1)) ** 2).sum(1)
    assert float(weights @ cost) <= 0.2 * (1 + 1e-9)


def test_the_file_keeps_the_weights(both: tuple[Certificate, Certificate], tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    write_json(path, as_json(both[0]))
    again = Certificate.load(path)
    assert again.weights is not None
    assert torch.equal(again.weights, checked_weights(COPIES, 10))
    assert again.error_bound(0.02) == both[0].error_bound(0.02)


def test_options_that_exclude_weights() -> None:
    model, data = mlp(2, [4], 2, "softplus").double(), Samples(INPUTS, LABELS, COPIES.double())
    with pytest.raises(ArgumentError, match=r"`data` must be independent draws .* got weighted samples"):
        certify(model, data, rho=0.1, confidence=0.95)
    with pytest.raises(ArgumentError, match="`epsilon` must be left out for weighted samples"):
        certify(model, data, rho=0.1, epsilon=0.1)

    class Odd(torch.nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.special.bessel_j0(points @ torch.ones(2, 2, dtype=torch.float64))
            return found

    with pytest.raises(UnreadableModelError):
        certify(Odd(), data, rho=0.1)


@pytest.mark.parametrize("scale", [1e308, 1e-310])
def test_only_the_ratios_of_weights_count(scale: float) -> None:
    """Their sum overflows, or their inverse does: the bounds are those of the same weights near 1."""
    model = mlp(2, [4], 2, "softplus").double()
    plain = certify(model, Samples(INPUTS, LABELS, 1 + COPIES.double() % 2 / 2), rho=0.1)
    found = certify(model, Samples(INPUTS, LABELS, scale * (1 + COPIES.double() % 2 / 2)), rho=0.1)
    assert found.bound(0.1) == pytest.approx(plain.bound(0.1), rel=1e-9)
    assert found.error_bound(0.1) == pytest.approx(plain.error_bound(0.1), rel=1e-9)


@given(st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 5)), min_size=1, max_size=8), st.floats(0, 4))
def test_the_knapsack_is_a_linear_program(pairs: list[tuple[float, int]], rho: float) -> None:
    costs = np.array([cost for cost, _ in pairs])
    weights = checked_weights(torch.tensor([1 + weight for _, weight in pairs]), len(pairs))
    masses = weights.numpy() / len(pairs)
    solved = linprog(-masses, A_ub=(masses * costs)[None], b_ub=[rho], bounds=(0, 1))
    (share,) = worst_error(torch.from_numpy(costs), [rho], weights)
    assert share == pytest.approx(-solved.fun, abs=1e-9)


def test_means_leave_out_what_does_not_count() -> None:
    values = torch.tensor([1.0, 2.0, float("inf")], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)
    assert mean_down(values, weights) < 5 / 3 < mean_up(values, weights)
    assert mean_up(values, torch.ones(3)) == float("inf")
