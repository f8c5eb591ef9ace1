"""The same network with its strides apart."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from certus.bounds import input_smoothness
from certus.models.networks import mnist_cnn
from studies.mnist.bounds import split_strides


def test_it_is_the_same_function_and_a_copy() -> None:
    torch.manual_seed(0)
    model, images = mnist_cnn(), torch.rand(3, 1, 28, 28)
    apart = split_strides(model)
    torch.testing.assert_close(apart(images), model(images))
    assert len(apart) == len(model) + 2
    apart.double()
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("stride", [(2, 2), (3, 1)])
def test_every_stride_has_its_own_step(stride: tuple[int, int]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, stride=stride, padding=1, bias=False))
    points = torch.rand(2, 2, 7, 7)
    torch.testing.assert_close(split_strides(model)(points), model(points))


def test_the_papers_rule_takes_the_norm_of_the_whole_convolution() -> None:
    """The kernel [1, 1]: with stride 2 its pairs do not overlap, and ‖θ‖ = √2; with stride 1 almost 2."""
    convolution = nn.Conv2d(1, 1, (1, 2), stride=(1, 2), bias=False)
    nn.init.ones_(convolution.weight)
    head = nn.Linear(8, 2, bias=False)
    nn.init.zeros_(head.weight)
    head.weight.data[0, 0] = 1.0
    model = nn.Sequential(convolution, nn.Flatten(), head).double()
    bounds = [
        input_smoothness(one, input_shape=(1, 1, 16)).bounds["paper"] for one in (model, split_strides(model))
    ]
    # A linear network: √2·0 + α², and α is the product of ‖θ‖ and 1.
    dense = torch.zeros(15, 16, dtype=torch.float64)
    for place in range(15):
        dense[place, place : place + 2] = 1.0
    norm = torch.linalg.matrix_norm(dense, 2).item()
    assert bounds[0] == pytest.approx(2.0, rel=1e-3)
    assert norm**2 <= bounds[1] <= 4.0 * (1 + 1e-3)
