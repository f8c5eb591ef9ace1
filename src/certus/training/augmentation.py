"""Data augmentation: translations, affine maps and mirror images, and Gaussian noise.

Noise is drawn anew at every evaluation of the loss. For f between 0 and B, the second derivative of h(x) = E
f(x + σZ) is at most 2φ(1)B/σ² ≈ 0.484 B/σ² in any direction, for every model (docs/smoothing.md): the *exact*
smoothed inner problem is strongly concave if sγ exceeds that. The ascent uses draws of the noise instead of
h, fresh ones in each step, so that its points are *estimated*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from certus.costs import SquaredL2
from certus.errors import UnsupportedError, require, require_count
from certus.inner.methods import Method
from certus.kernel.evidence import Evidence
from certus.kernel.smoothing import ConcavityThreshold
from certus.losses import Criterion, MissProbability, ModelLoss
from certus.smoothing.sampling import Noise


@dataclass(frozen=True)
class RandomTranslation:
    """Random translation by up to ``pixels`` along both axes; the border is filled with zeros.

    >>> RandomTranslation(1)(torch.zeros(5, 1, 8, 8)).shape
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
class RandomAffine:
    """Random affine map near the identity: rotation, stretch, shear and translation.

    The map is x ↦ (I + strength·E)x + jitter·e about the centre, the entries of E and e uniform in [−1, 1].
    Pixels are interpolated, which also blurs them a little. The border is filled with zeros.

    Args:
        jitter: largest translation in pixels; may be fractional.

    >>> RandomAffine(0.1, jitter=1)(torch.zeros(5, 1, 8, 8)).shape
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
        strength, aspect, jitter = self.strength, width / height, 2 * self.jitter
        row = [strength, strength / aspect, jitter / width]
        sizes = torch.tensor([row, [strength * aspect, strength, jitter / height]])
        maps = torch.eye(2, 3) + sizes * noise
        places = functional.affine_grid(maps.to(images), list(images.shape), align_corners=False)
        return functional.grid_sample(images, places, align_corners=False)


@dataclass(frozen=True)
class RandomFlip:
    """Mirror image, left to right, with probability ½.

    >>> RandomFlip()(torch.zeros(5, 3, 8, 8)).shape
    torch.Size([5, 3, 8, 8])
    """

    def __call__(self, images: Tensor) -> Tensor:
        require(images.dim() == 4, "images", "be (batch, channels, height, width)", tuple(images.shape))
        flipped = torch.rand(len(images), 1, 1, 1).to(images.device) < 0.5
        return torch.where(flipped, images.flip(-1), images)


@dataclass(frozen=True, eq=False)
class NoisyLoss(ModelLoss):
    """Loss at noisy inputs, with fresh noise from torch's own generator in every call."""

    noise: Noise | None = None

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        assert self.noise is not None
        return super().__call__(inputs + fresh_noise(self.noise, inputs), targets)


def fresh_noise(noise: Noise, like: Tensor) -> Tensor:
    """Draw (batch, …) noise from torch's own generator."""
    return noise.sigma * noise.cost.whiten(torch.randn_like(like))


def training_noise(noise: float | Noise | None, method: Method) -> Noise | None:
    """Return the noise of a training in the geometry of the method's cost, checked against its ascent."""
    if noise is None or noise == 0:
        return None
    penalty = method.penalty
    if not isinstance(noise, Noise):
        noise = Noise(noise, SquaredL2() if penalty is None else penalty.cost)
    if penalty is not None and penalty.maximizer.compares_values:
        raise UnsupportedError(
            f"`noise` needs an ascent with fixed steps, such as maximizer=certus.inner.PaperAscent(5); "
            f"{type(penalty.maximizer).__name__} compares values, which fresh noise changes."
        )
    return noise


def smoothed_concavity(sigma: float, criterion: Criterion, gamma: float, convexity: float) -> dict[str, Any]:
    """Whether the exact smoothed inner problem is strongly concave at γ, as JSON; ``convexity`` is s, the
    modulus of the cost in its own norm, in which the noise is measured."""
    bounded = isinstance(criterion, MissProbability)
    threshold = ConcavityThreshold.of(sigma, convexity) if bounded else None
    return {
        "sigma": sigma,
        "gamma": gamma,
        "threshold": None if threshold is None else threshold.value,
        "concave": None if threshold is None else gamma > threshold.value,
        "evidence": None if threshold is None else threshold.evidence,
        "points": Evidence.ESTIMATED,
    }
