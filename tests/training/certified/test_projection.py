"""Proj_Θ: against NumPy's singular values, and against the curvature found by exact Hessians and a search."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import certus
from certus import CrossEntropy, SquaredL2
from certus.costs import SquaredSup
from certus.errors import UnsupportedError
from certus.losses import SquaredError
from certus.models import certified_mlp
from certus.training.certified import SAFETY, CertifiedSet, clip_matrix
from tests.bounds.margins import by_margins
from tests.training.certified.networks import Case, cases

NAMES = sorted(cases())


@given(st.integers(1, 7), st.integers(1, 7), st.floats(0.1, 4.0), st.booleans(), st.integers(0, 2**32 - 1))
def test_clipping_equals_numpy_svd(rows: int, columns: int, scale: float, weighted: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) * scale
    metric = rng.uniform(0.2, 3.0, columns) if weighted else np.ones(columns)
    left, values, right = np.linalg.svd(matrix * metric, full_matrices=False)
    expected = (left * np.minimum(values, 1)) @ right / metric
    weight = torch.tensor(matrix)
    clip_matrix(weight, torch.tensor(metric) if weighted else None)
    assert np.allclose(weight.numpy(), expected, atol=1e-9)


def projected(case: Case, gamma: float = 1.5) -> CertifiedSet:
    certified = CertifiedSet(case.model, gamma, input_shape=case.shape, **case.options)
    certified(case.model)
    return certified


@pytest.mark.parametrize("name", NAMES)
def test_the_bound_is_proven_and_used_up(name: str) -> None:
    """Weights from outside end just below (1 − 10⁻³)·2γ, by the independent analysis in float64."""
    case = cases()[name]
    certified = projected(case)
    bound = certified.prove().curvature
    assert certified.ceiling == pytest.approx((1 - SAFETY) * 3.0)
    assert 0.99 * certified.ceiling <= bound <= certified.ceiling


def curvature(case: Case, points: Tensor, labels: Tensor) -> Tensor:
    """λ_max of exact Hessians in the cost's norm, one per point."""
    model, criterion = case.model.double(), case.options.get("criterion", CrossEntropy())
    cost = case.options.get("cost", SquaredL2())
    found = []
    for point, label in zip(points, labels, strict=True):

        def loss(moves: Tensor, point: Tensor = point, label: Tensor = label) -> Tensor:
            moved = point.unsqueeze(0) + cost.whiten(moves.reshape(1, *point.shape))
            return by_margins(criterion)(model(moved), label.reshape(1)).sum()

        hessian = torch.autograd.functional.hessian(loss, torch.zeros(point.numel(), dtype=torch.float64))
        found.append(torch.linalg.eigvalsh(hessian)[-1])
    return torch.stack(found)


@pytest.mark.parametrize("name", NAMES)
def test_no_curvature_exceeds_the_ceiling(name: str) -> None:
    """Exact Hessians at random points, and around the worst of them, never above (1 − 10⁻³)·2γ."""
    case = cases(1)[name]
    certified = projected(case)
    generator = torch.Generator().manual_seed(0)
    best, best_label = torch.zeros(1, *case.shape, dtype=torch.float64), torch.zeros(1, dtype=torch.long)
    for spread in (2.0, 0.3, 0.05):
        noise = torch.randn(40, *case.shape, dtype=torch.float64, generator=generator)
        labels = torch.randint(0, case.classes, (40,), generator=generator)
        points = best + spread * noise
        labels = labels if spread == 2.0 else best_label.expand(40)
        found = curvature(case, points, labels)
        assert float(found.max()) <= certified.ceiling
        best, best_label = points[found.argmax()].unsqueeze(0), labels[found.argmax()].reshape(1)


def test_points_inside_stay() -> None:
    """A projection leaves points of Θ alone, and a second one changes nothing."""
    case = cases()["two layers"]
    certified = projected(case)
    before = {name: weight.clone() for name, weight in case.model.state_dict().items()}
    certified(case.model)
    for name, weight in case.model.state_dict().items():
        assert torch.allclose(weight, before[name], rtol=1e-5, atol=1e-6), name


def test_the_sharpness_is_what_the_max_rule_leaves() -> None:
    """b_n = τ/e_n with one hidden layer, computed by hand in NumPy."""
    case = cases()["one layer"]
    certified = projected(case)
    state = {
        name: np.asarray(weight.double(), np.float64) for name, weight in case.model.state_dict().items()
    }
    head = state["3.weight"]
    apart = max(np.linalg.norm(a - b) for a in head for b in head)
    assert apart == pytest.approx(2 * math.sqrt(certified.ceiling), rel=3e-4)
    expected = np.minimum(certified.ceiling / (head.max(0) - head.min(0)), 40)
    assert np.allclose(state["2.sharpness"], expected, rtol=3e-4)
    values = np.linalg.svd(state["1.weight"], compute_uv=False)
    assert values.max() == pytest.approx(1, abs=1e-5)


def test_a_shared_sharpness_serves_all_its_units() -> None:
    model = nn.Sequential(nn.Linear(4, 16), certus.models.LogCosh(3.0), nn.Linear(16, 3))
    certified = CertifiedSet(model, 0.5, input_shape=(4,))
    certified(model)
    assert model[1].sharpness.shape == ()
    assert certified.prove().curvature <= certified.ceiling


def test_weights_changed_from_outside_are_brought_back_with_a_warning() -> None:
    case = cases()["one layer"]
    certified = projected(case)
    case.model[-1].weight.data.mul_(2)  # type: ignore[index]
    with pytest.warns(UserWarning, match="the last layer was scaled down"):
        bound = certified.prove()
    assert bound.curvature <= certified.ceiling


def test_unprovable_layers_are_named_by_path() -> None:
    def make(*layers: nn.Module, **options: object) -> CertifiedSet:
        return CertifiedSet(nn.Sequential(*layers), 1.0, input_shape=(4,), **options)  # type: ignore[arg-type]

    with pytest.raises(UnsupportedError, match=r"The layer 1 \(ReLU\) cannot be certified: it is not smooth"):
        make(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with pytest.raises(
        UnsupportedError, match=r"The layer 1 \(LayerNorm\) cannot be certified: it has no rule"
    ):
        make(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    with pytest.raises(UnsupportedError, match=r"must end in a trained Linear layer; it ends in 1 \(ELU\)"):
        make(nn.Linear(4, 8), nn.ELU())
    plain = certified_mlp(4, [8], 3)
    with pytest.raises(UnsupportedError, match="residuals"):
        make(*plain, criterion=SquaredError())
    with pytest.raises(UnsupportedError, match="strongly convex"):
        make(*plain, cost=SquaredSup())
    with pytest.raises(
        certus.errors.ArgumentError, match="`model` must be the model that this projection was created for"
    ):
        CertifiedSet(plain, 1.0, input_shape=(4,))(certified_mlp(4, [8], 3))
    with pytest.raises(certus.errors.ArgumentError, match="`gamma` must be positive and finite; got -1"):
        CertifiedSet(plain, -1.0, input_shape=(4,))
