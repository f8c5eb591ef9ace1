"""Augmentation of training images by random translations and affine maps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from certus.errors import require, require_count


@dataclass(frozen=True)
class RandomJitter:
    """Random translation by up to ``pixels`` along both axes; the border is filled with zeros.

    >>> RandomJitter(1)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """

    pixels: int

    def __post_init__(self) -> None:
        require_count("pixels", self.pixels)

    def __call__(self, images: Tensor) -> Tensor:
        require(images.dim() == 4, "images", "be (batch, channels, height, width)", tuple(images.shape))
        count, _, height, width = images.shape
        rule = f"be less than the images' size, {height} by {width}"
        require(self.pixels < min(height, width), "pixels", rule, self.pixels)
        padded = functional.pad(images, (self.pixels,) * 4)
        offsets = torch.randint(0, 2 * self.pixels + 1, (2, count, 1)).to(images.device)
        rows = torch.arange(height, device=images.device) + offsets[0]
        columns = torch.arange(width, device=images.device) + offsets[1]
        samples = torch.arange(count, device=images.device)[:, None, None]
        # An index beside a slice puts the channels last.
        return padded[samples, :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1).contiguous()


@dataclass(frozen=True)
class RandomWarp:
    """Random affine map near the identity: rotation, stretch, shear and translation.

    The map is x ↦ (I + strength·E)x + jitter·e about the centre, the entries of E and e uniform in [−1, 1].
    Pixels are interpolated, which also blurs them a little. The border is filled with zeros.

    Args:
        jitter: in pixels, not only whole ones.

    >>> RandomWarp(0.1, jitter=1)(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 1, 8, 8])
    """

    strength: float
    jitter: float = 0.0

    def __post_init__(self) -> None:
        require(0 < self.strength < 0.5, "strength", "lie between 0 and 0.5", self.strength)
        require(0 <= self.jitter < math.inf, "jitter", "be finite and not negative", self.jitter)

    def __call__(self, images: Tensor) -> Tensor:
        require(images.dim() == 4, "images", "be (batch, channels, height, width)", tuple(images.shape))
        require(images.is_floating_point(), "images", "be floating-point numbers", images.dtype)
        height, width = images.shape[2:]
        noise = 2 * torch.rand(len(images), 2, 3) - 1
        # affine_grid has units of its own along each axis, in which the image ends at −1 and 1.
        long, jitter = width / height, 2 * self.jitter
        sizes = torch.tensor(
            [
                [self.strength, self.strength / long, jitter / width],
                [self.strength * long, self.strength, jitter / height],
            ]
        )
        maps = torch.eye(2, 3) + sizes * noise
        places = functional.affine_grid(maps.to(images), list(images.shape), align_corners=False)
        return functional.grid_sample(images, places, align_corners=False)
