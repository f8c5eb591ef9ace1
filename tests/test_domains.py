"""Projections are the nearest points: inside, and at an obtuse angle to every other point of the set."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from certus import Box
from certus.domains import Ball, Domain, Unbounded

DOMAINS: list[Domain] = [
    Unbounded(),
    Box(-1.0, 0.5),
    Box(torch.tensor([-math.inf, 0.0, -1.0]).double(), torch.tensor([0.0, 0.0, math.inf]).double()),
    Ball(0.0, 1.5),
    Ball(torch.tensor([1.0, -2.0, 0.5]).double(), 0.7),
]
vectors = st.lists(st.floats(-10, 10), min_size=3, max_size=3).map(
    lambda values: torch.tensor([values], dtype=torch.float64)
)


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@given(point=vectors, other=vectors)
def test_projection_is_the_nearest_point(domain: Domain, point: Tensor, other: Tensor) -> None:
    nearest, inside = domain.project(point), domain.project(other)
    assert domain.contains(nearest).all()
    # z = Π(x) exactly if ⟨x − z, y − z⟩ ≤ 0 for every y of the set.
    assert ((point - nearest) * (inside - nearest)).sum() <= 1e-9
    assert torch.allclose(domain.project(nearest), nearest, atol=1e-12)
    if domain.contains(point):
        torch.testing.assert_close(nearest, point, rtol=1e-6, atol=0)


def test_membership_is_decided_sample_by_sample() -> None:
    points = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    assert Box(0, 1).contains(points).tolist() == [True, False]
    assert Ball(0.0, 1.0).contains(points).tolist() == [True, False]
    assert Unbounded().contains(points).tolist() == [True, True]


def test_images_take_bounds_per_channel() -> None:
    bounds = Box(torch.tensor([-1.0, 0.0]).reshape(2, 1, 1), 1.0)
    bounds.check_shape(torch.zeros(5, 2, 3, 3))
    projected = bounds.project(torch.full((5, 2, 3, 3), -3.0))
    assert projected[:, 0].unique().tolist() == [-1.0]
    assert projected[:, 1].unique().tolist() == [0.0]


def test_a_point_inside_a_ball_is_returned_bit_for_bit() -> None:
    points = torch.rand(100, 3, generator=torch.Generator().manual_seed(0)) / 3
    assert torch.equal(Ball(0.1, 5.0).project(points), points)
