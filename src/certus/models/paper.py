"""The networks of the paper's experiments."""

from __future__ import annotations

from torch import nn


def toy_mlp(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """2 → 4 → 2 → 2: two hidden layers of 4 and 2 units on the synthetic data (sec:toy)."""
    return nn.Sequential(nn.Linear(2, 4), activation(), nn.Linear(4, 2), activation(), nn.Linear(2, 2))


def mnist_cnn(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """The MNIST network (sec:mnist-real): 8×8, 6×6 and 5×5 convolutions and a linear layer, 710,218 weights.

    Takes (batch, 1, 28, 28) images. The first convolution has stride 2 and keeps the image's size before
    striding (3 pixels of zeros on each side); the others are unpadded.
    """
    return nn.Sequential(
        nn.Conv2d(1, 64, kernel_size=8, stride=2, padding=3),
        activation(),
        nn.Conv2d(64, 128, kernel_size=6, stride=2),
        activation(),
        nn.Conv2d(128, 128, kernel_size=5),
        activation(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
