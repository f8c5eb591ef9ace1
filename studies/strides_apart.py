"""A network whose strided convolutions are written in two steps: one of stride 1, then every n-th output.

It is the same function. Bounds that multiply norms layer by layer are larger for it: the norm of the whole
convolution takes the place of the strided one's. Who computes ‖θ_l‖ from the kernel alone, as by its Fourier
transform, gets this.
"""

from __future__ import annotations

from copy import deepcopy

from torch import nn


def with_strides_apart(model: nn.Sequential) -> nn.Sequential:
    """A copy; only its convolutions of images are looked at."""
    return nn.Sequential(*(part for layer in deepcopy(model) for part in _apart(layer)))


def _apart(layer: nn.Module) -> list[nn.Module]:
    if not isinstance(layer, nn.Conv2d) or set(layer.stride) == {1}:
        return [layer]
    channels = layer.out_channels
    # torch declares a stride of any length where it takes two numbers.
    every = nn.Conv2d(channels, channels, 1, stride=layer.stride, groups=channels, bias=False)  # type: ignore[arg-type]
    nn.init.ones_(every.weight)
    layer.stride = (1, 1)
    return [layer, every.to(layer.weight)]
