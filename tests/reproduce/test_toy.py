"""The boundary of networks that are known: a circle, an ellipse, none."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from certus.reproduce.toy_networks import FARTHEST, boundary_radii


class Conic(nn.Module):
    """Class 1 outside x²/a² + y²/b² = 1."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.squares = torch.tensor([a**2, b**2])

    def forward(self, points: Tensor) -> Tensor:
        outside = (points**2 / self.squares).sum(1) - 1
        return torch.stack([torch.zeros_like(outside), outside], 1)


def test_a_circle() -> None:
    torch.testing.assert_close(boundary_radii(Conic(1.5, 1.5)), torch.full((360,), 1.5), atol=1e-4, rtol=0)


def test_an_ellipse() -> None:
    angles = torch.arange(360) * (2 * math.pi / 360)
    truth = 1 / (angles.cos() ** 2 / 4 + angles.sin() ** 2 / 1).sqrt()
    torch.testing.assert_close(boundary_radii(Conic(2.0, 1.0)), truth, atol=1e-3, rtol=0)


def test_no_boundary_within_reach() -> None:
    assert boundary_radii(Conic(9.0, 9.0)).tolist() == pytest.approx([FARTHEST] * 360)
