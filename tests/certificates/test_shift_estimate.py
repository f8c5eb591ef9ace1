"""Estimated distances between populations that are known, and exact ones between columns."""

from __future__ import annotations

import ot
import pytest
import torch

from certus.certificates.transport import column_shifts, estimated_distance, transport_distance
from certus.costs import SquaredL2, SquaredSup, WeightedL2
from certus.data import Samples


def normal(count: int, seed: int, move: float = 0.0, features: int = 8) -> Samples:
    points = torch.randn(count, features, generator=torch.Generator().manual_seed(seed)).double()
    points[:, 0] += move
    return Samples(points, torch.arange(count) % 2)


@pytest.mark.parametrize("move", [0.0, 1.0])
def test_a_translation_is_found_where_the_samples_are_far_apart(move: float) -> None:
    """W between the populations is move²; between the samples it is several units more."""
    first, second = normal(200, 0), normal(240, 1, move)
    found = estimated_distance(first, second, SquaredL2())
    assert found is not None
    assert found == pytest.approx(move**2, abs=0.35)
    assert transport_distance(first, second, SquaredL2(), label_cost=1.0).low > move**2 + 2


def test_labels_count_where_they_have_a_price() -> None:
    first = normal(200, 0)
    second = Samples(normal(200, 1).inputs, torch.zeros(200, dtype=torch.long))
    assert (estimated_distance(first, second, SquaredL2()) or 0) == pytest.approx(0, abs=0.35)
    priced = estimated_distance(first, second, SquaredL2(), label_cost=4.0)
    assert priced is not None
    assert priced > 1
    assert estimated_distance(first[:3], second, SquaredL2()) is None
    own = Samples(first.inputs[:6], torch.arange(6))  # no label has two halves
    assert estimated_distance(own, own, SquaredL2(), label_cost=1.0) is None


def test_columns_against_pot() -> None:
    first, second = normal(30, 0, features=3), normal(41, 1, 0.5, features=3)
    weights = torch.tensor([1.0, 0.5, 3.0])
    found = column_shifts(first.inputs, second.inputs, WeightedL2(weights))
    assert found is not None
    for at in range(3):
        exact = ot.emd2_1d(first.inputs[:, at].numpy(), second.inputs[:, at].numpy())
        assert float(found[at]) == pytest.approx(float(weights[at]) * exact, rel=1e-9)
    whole = transport_distance(first, second, WeightedL2(weights.double()), label_cost=1.0)
    assert float(found.sum()) <= whole.high
    assert column_shifts(first.inputs, second.inputs, SquaredSup()) is None


def test_one_hot_columns_add_up_to_total_variation() -> None:
    eye = torch.eye(3)
    first, second = eye[[0, 0, 1, 2]], eye[[0, 1, 1, 1]]
    found = column_shifts(first, second, WeightedL2(torch.full((3,), 0.5)))
    assert found is not None
    assert float(found.sum()) == pytest.approx(0.5)
