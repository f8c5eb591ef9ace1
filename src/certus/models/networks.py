"""Networks: those of the paper, residual networks, and networks for certified training.

In networks for certified training, affine layers of norm at most 1 stand between log cosh units. Every unit
has its own sharpness, which certified training (``certus.training.certified``) ties to 2γ/e_n. Wide layers
serve best: the slope D of the margins spreads over the units, and the smaller each e_n, the sharper the unit
may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, require
from certus.layers import LogCosh, Residual, SmoothAbs


def toy_mlp(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """Return the toy network 2 → 4 → 2 → 2, with hidden layers of 4 and 2 units (sec:toy)."""
    return nn.Sequential(nn.Linear(2, 4), activation(), nn.Linear(4, 2), activation(), nn.Linear(2, 2))


def mnist_cnn(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """Return the MNIST network (sec:mnist-real): three convolutions and a linear layer, 710,218 weights.

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


MOST_CHANNELS = 4096


def resnet(shape: tuple[int, ...], channels: Sequence[int], outputs: int) -> nn.Sequential:
    """Return a residual network for images of ``shape``, (channels, height, width), one block per stage.

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
    """Build the network that ``resnet:CHANNELS`` names, such as ``resnet:16,32,64``."""
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
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    # Convolutions on processors are quicker with the channels innermost; what follows takes it over.
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)
    return convolution


UNITS: dict[str, type[LogCosh | SmoothAbs]] = {"logcosh": LogCosh, "smoothabs": SmoothAbs}
COMPONENTS = 256
"""How many principal components of larger inputs a certified-mlp keeps: few enough for its first layer to be
clipped quickly after every step."""

MOST_WEIGHTS = 10**8


def certified_mlp(
    inputs: int,
    widths: Sequence[int],
    outputs: int,
    units: str = "logcosh",
    *,
    basis: Tensor | None = None,
) -> nn.Sequential:
    """Return a fully connected network on flattened inputs, for certified training.

    Args:
        units: "logcosh" or "smoothabs".
        basis: (components, inputs) with orthonormal rows, in front of the first layer, not trained: such as
            the principal components of the data. What is orthogonal to them has no effect on the network.

    >>> [type(layer).__name__ for layer in certified_mlp(4, [8], 2)]
    ['Flatten', 'Linear', 'LogCosh', 'Linear']
    """
    _check(widths, units)
    check_weights([inputs if basis is None else len(basis), *widths, outputs])
    layers: list[nn.Module] = [nn.Flatten()]
    if basis is not None:
        require(basis.shape[1:] == (inputs,), "basis", f"have {inputs} columns", tuple(basis.shape))
        front = nn.Linear(inputs, len(basis), bias=False)
        front.weight.data.copy_(basis)
        layers.append(front.requires_grad_(False))
        inputs = len(basis)
    for width in widths:
        layers += [nn.Linear(inputs, width), UNITS[units](torch.ones(width))]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def certified_cnn(
    shape: Sequence[int], channels: Sequence[int], outputs: int, units: str = "logcosh"
) -> nn.Sequential:
    """Return convolutions of 5 × 5 with stride 2, log cosh units, and a linear layer, for certified training.

    >>> [type(layer).__name__ for layer in certified_cnn((1, 8, 8), [16], 10)]
    ['Conv2d', 'LogCosh', 'Flatten', 'Linear']
    """
    _check(channels, units)
    require(len(shape) == 3, "shape", "be (channels, height, width)", tuple(shape))
    layers: list[nn.Module] = []
    count, height, width = shape
    check_weights([count, *channels], window=25)
    for out in channels:
        height, width = (height + 1) // 2, (width + 1) // 2
        check_weights([out * height * width, outputs])  # as many units, and at the end as many inputs
        layers += [
            nn.Conv2d(count, out, 5, stride=2, padding=2),
            UNITS[units](torch.ones(out, height, width)),
        ]
        count = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(count * height * width, outputs))


def build_certified(spec: str, inputs: Tensor, outputs: int) -> nn.Sequential:
    """Build ``certified-mlp[:WIDTHS[:UNITS[:COMPONENTS]]]`` or ``certified-cnn[:CHANNELS[:UNITS]]``.

    More than 256 inputs meet 256 principal components first, unless COMPONENTS says otherwise; 0 means none.
    """
    kind, *options = spec.split(":")
    shape = tuple(inputs.shape[1:])
    features = math.prod(shape)
    widths, units, components = "1024" if kind == "certified-mlp" else "32", "logcosh", ""
    try:
        if kind == "certified-cnn":
            widths, units = (*options, *(widths, units)[len(options) :])
            return certified_cnn(shape, [int(width) for width in widths.split(",")], outputs, units)
        widths, units, components = (*options, *(widths, units, components)[len(options) :])
        count = int(components) if components else (COMPONENTS if features > COMPONENTS else 0)
        sizes = [int(width) for width in widths.split(",")]
    except ValueError as reason:
        if isinstance(reason, ArgumentError):
            raise
        example = (
            "certified-mlp:1024,256:logcosh:256" if kind == "certified-mlp" else "certified-cnn:32:logcosh"
        )
        raise ArgumentError(f"`model` must be like {example}; got {spec!r}.") from None
    basis = principal_components(inputs, count) if count else None
    return certified_mlp(features, sizes, outputs, units, basis=basis)


def principal_components(inputs: Tensor, count: int) -> Tensor:
    """Return (count, features) principal components of the first 10,000 of (n, …) inputs."""
    points = inputs[:10_000].flatten(1).double()
    require(1 <= count <= points.shape[1], "components", f"lie between 1 and {points.shape[1]}", count)
    centred = points - points.mean(0)
    vectors: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return vectors[:, -count:].T.flip(0).to(inputs.dtype)


def _check(widths: Sequence[int], units: str) -> None:
    require(units in UNITS, "units", f"be one of {', '.join(UNITS)}", repr(units))
    sizes = all(isinstance(width, int) and 1 <= width <= 1_000_000 for width in widths)
    require(sizes and len(widths) > 0, "widths", "be whole numbers from 1 to a million", list(widths))


def check_weights(widths: Sequence[int], window: int = 1) -> None:
    """Raise ``ArgumentError`` for layers that are too large for memory, before any is allocated.

    Args:
        widths: of inputs, of all layers, and of outputs; or channels, with ``window`` weights each.
    """
    count = window * sum(one * other for one, other in itertools.pairwise(widths))
    rule = f"have at most {MOST_WEIGHTS} weights (FILE.py:FACTORY may have more)"
    require(count <= MOST_WEIGHTS, "model", rule, count)
