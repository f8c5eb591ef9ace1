"""A small residual network for images (He et al., 2016), with any number of stages of one block each.

    3×3 convolution → blocks → mean over the picture → linear

A block is two 3×3 convolutions, each with batch normalisation, beside a shortcut; every block but the first
halves height and width, and its shortcut is then a 1×1 convolution.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from certus.errors import ArgumentError, require
from certus.layers import Residual

MOST_CHANNELS = 4096


def resnet(shape: tuple[int, ...], channels: Sequence[int], outputs: int) -> nn.Sequential:
    """The network for images of ``shape`` (channels, height, width), with one block for each of ``channels``.

    >>> network = resnet((3, 32, 32), [16, 32, 64], 10)
    >>> network(torch.zeros(2, 3, 32, 32)).shape, sum(weights.numel() for weights in network.parameters())
    (torch.Size([2, 10]), 78042)
    """
    require(len(shape) == 3, "model", "have images, (channels, height, width), for resnet", shape)
    rule = f"have between 1 and {MOST_CHANNELS} channels in each stage"
    require(all(1 <= width <= MOST_CHANNELS for width in channels), "model", rule, list(channels))
    halvings = len(channels) - 1
    fits = min(shape[1:]) >= 2**halvings
    require(fits, "model", f"have images of at least {2**halvings} pixels for {len(channels)} stages", shape)
    width = channels[0]
    layers: list[nn.Module] = [_convolution(shape[0], width), nn.BatchNorm2d(width), nn.ReLU()]
    for stage, wider in enumerate(channels):
        layers += [_block(width, wider, stride=1 if stage == 0 else 2), nn.ReLU()]
        width = wider
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs)]
    return nn.Sequential(*layers)


def parse_resnet(spec: str, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """The network that ``resnet:CHANNELS`` names, such as ``resnet:16,32,64``."""
    _, _, listed = spec.partition(":")
    try:
        channels = [int(width) for width in listed.split(",")]
    except ValueError:
        raise ArgumentError(f"`model` must be like resnet:16,32,64; got {spec!r}.") from None
    return resnet(shape, channels, outputs)


def _block(inputs: int, outputs: int, stride: int) -> Residual:
    branch = nn.Sequential(
        _convolution(inputs, outputs, stride),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        _convolution(outputs, outputs),
        nn.BatchNorm2d(outputs),
    )
    if stride == 1 and inputs == outputs:
        return Residual(branch)
    shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return Residual(branch, nn.Sequential(shortcut, nn.BatchNorm2d(outputs)))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    # Without a bias: the normalisation behind it would take it away again.
    made = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    # Convolutions on processors are quicker with the channels innermost; what follows takes it over.
    made.weight.data = made.weight.data.contiguous(memory_format=torch.channels_last)
    return made
