"""The networks have the paper's sizes."""

from __future__ import annotations

import torch

from certus.models import mnist_cnn, toy_mlp


def test_the_papers_networks() -> None:
    """710,218 weights, and the shapes of TensorFlow's SAME padding at stride 2: 28 → 14 → 5 → 1."""
    network = mnist_cnn()
    assert sum(weight.numel() for weight in network.parameters()) == 710_218
    images = torch.zeros(2, 1, 28, 28)
    sizes = [tuple(network[: i + 1](images).shape[2:]) for i in (0, 2, 4)]
    assert sizes == [(14, 14), (5, 5), (1, 1)]
    assert network(images).shape == (2, 10)
    assert toy_mlp(torch.nn.ReLU)(torch.zeros(3, 2)).shape == (3, 2)
    assert [tuple(weight.shape) for weight in toy_mlp().parameters() if weight.dim() == 2] == [
        (4, 2),
        (2, 4),
        (2, 2),
    ]
