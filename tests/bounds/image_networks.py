"""Random networks up to the size of CIFAR images, each a function of one seed.

Between two activations stand one to four affine layers, of every kind that has a rule: convolutions with
strides, dilations and groups, pooling, batch norm, scaling. So there are chains of affine layers that are
written out and chains that are too large for it, and branches that are added.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from certus.layers import Normalize, Residual, Scale
from tests.bounds.networks import SMOOTH

Shape = tuple[int, ...]

SHAPES: list[Shape] = [(1, 8, 8), (1, 28, 28), (1, 33, 33), (3, 16, 16), (3, 32, 32), (2, 40), (24,)]


@dataclass(frozen=True)
class Made:
    """A network, the shape of its inputs, its classes, and its depth: how many activations one meets."""

    model: nn.Module
    shape: Shape
    classes: int
    depth: int


def random_network(seed: int) -> Made:
    """The network of a seed, in float64 and eval mode."""
    choice = random.Random(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = _build(choice)
        gain, aligned = choice.choice((0.7, 1.0, 2.0)), choice.random() < 0.5
        for module in made.model.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.normal_(module.bias)
                nn.init.normal_(module.running_mean)  # type: ignore[arg-type]
                nn.init.uniform_(module.running_var, 0.3, 2.0)  # type: ignore[arg-type]
            elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
                # One layer of a chain may carry the gain of all of it.
                _draw_weights(module, gain * choice.choice((1.0, 1.0, 0.1, 30.0)), aligned)
    return made


def _draw_weights(module: nn.Linear | nn.Conv1d | nn.Conv2d, gain: float, aligned: bool) -> None:
    """Signs at random, or nearly all weights positive: then the layers' worst directions agree, products of
    norms are nearly attained, and a bound that is a little too small is found out."""
    fan = module.weight[0].numel()
    if aligned:
        nn.init.uniform_(module.weight, 0.8 * gain / fan, 1.2 * gain / fan)
        module.weight.data[0] *= -1
    else:
        nn.init.normal_(module.weight, std=gain / fan**0.5)
    assert module.bias is not None
    nn.init.normal_(module.bias, std=0.3)


def _build(choice: random.Random) -> Made:
    shape, depth, classes = choice.choice(SHAPES), choice.randint(1, 4), choice.randint(2, 5)
    make = choice.choice(SMOOTH)
    layers: list[nn.Module] = []
    if choice.random() < 0.2:
        channels = shape[0]
        layers.append(Normalize([0.1] * channels, [0.5] * channels))
    now = shape
    for _ in range(depth):
        for _ in range(choice.choice((1, 1, 2, 3, 4))):
            now = _append(layers, _affine(choice, now), now)
        layers.append(make())
        if choice.random() < 0.3:
            layers.append(_residual(choice, now, make))
    if len(now) > 1:
        if choice.random() < 0.5:
            now = _append(
                layers, nn.AdaptiveAvgPool2d(2) if len(now) == 3 else nn.AvgPool1d(min(2, now[1])), now
            )
        now = _append(layers, nn.Flatten(), now)
    for _ in range(choice.choice((0, 0, 1))):
        now = _append(layers, nn.Linear(now[0], choice.choice((3, 8))), now)
    layers.append(nn.Linear(now[0], classes))
    return Made(nn.Sequential(*layers).double().eval(), shape, classes, depth)


def _append(layers: list[nn.Module], layer: nn.Module, shape: Shape) -> Shape:
    """The layer behind the others, and the shape behind it."""
    layers.append(layer)
    with torch.no_grad():
        made = layer.double().eval()(torch.zeros(1, *shape, dtype=torch.float64))
    return tuple(made.shape[1:])


def _affine(choice: random.Random, shape: Shape) -> nn.Module:
    if len(shape) == 1:
        if choice.random() < 0.2:
            return choice.choice((nn.BatchNorm1d(shape[0]), Scale(-1.5)))
        return nn.Linear(shape[0], choice.choice((4, 16, 30)))
    convolution = nn.Conv2d if len(shape) == 3 else nn.Conv1d
    channels, side = shape[0], min(shape[1:])
    kind = choice.random()
    if kind < 0.12:
        return (nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d)(channels)
    if kind < 0.2:
        return Scale(choice.choice((-0.5, 3.0)))
    if kind < 0.35 and side >= 4:
        pool = nn.AvgPool2d if len(shape) == 3 else nn.AvgPool1d
        return pool(*choice.choice(((2, 2, 0), (3, 1, 1), (3, 2, 1))), ceil_mode=choice.random() < 0.5)
    groups = choice.choice((1, 1, 1, channels))
    wider = groups * choice.choice((1, 2)) if groups > 1 else choice.choice((1, 4, 8))
    kernel, dilation = choice.choice((1, 2, 3, 5)), choice.choice((1, 1, 2))
    padding = choice.choice((0, 1, 2))
    if side + 2 * padding <= dilation * (kernel - 1):
        kernel, dilation = 1, 1
    stride = choice.choice((1, 1, 2)) if side >= 6 else 1
    return convolution(
        channels, wider, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups
    )


def _residual(choice: random.Random, shape: Shape, make: Callable[[], nn.Module]) -> nn.Module:
    channels = shape[0]
    if len(shape) == 1:
        branch = nn.Sequential(nn.Linear(channels, 6), make(), nn.Linear(6, channels))
        return Residual(branch, nn.Linear(channels, channels) if choice.random() < 0.5 else None)
    convolution = nn.Conv2d if len(shape) == 3 else nn.Conv1d
    branch = nn.Sequential(
        *(convolution(channels, 4, 3, padding=1), make(), convolution(4, channels, 3, padding=1)),
        *([make()] if choice.random() < 0.3 else []),
    )
    return Residual(branch, convolution(channels, channels, 1) if choice.random() < 0.5 else None)
