"""Gaussian noise on the inputs in training, drawn anew at every evaluation of the loss.

For f between 0 and B, h(x) = E f(x + σZ) bends by at most 2φ(1)B/σ² ≈ 0.484 B/σ² in any direction, whatever
the model (docs/smoothing.md): the *exact* smoothed inner problem is strongly concave once sγ exceeds that.
The ascent sees draws and not h, so that noise is fresh in each of its steps, and the points found are
*estimated*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from certus.costs import SquaredL2
from certus.errors import UnsupportedError
from certus.evidence import Evidence
from certus.inner.methods import Method
from certus.losses import Criterion, MissProbability, ModelLoss
from certus.rounding import FEW, up
from certus.smoothing.sampling import Noise

STEEPEST_BEND = up(2 * math.exp(-0.5) / math.sqrt(2 * math.pi), FEW)
"""2φ(1): how much a smoothed loss between 0 and 1 can bend, in units of 1/σ²."""


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
    """Whether the exact smoothed inner problem is strongly concave at γ, as JSON.

    Args:
        convexity: s, the modulus of the cost in its own norm, in which the noise is measured.
    """
    bounded = isinstance(criterion, MissProbability)
    threshold = up(STEEPEST_BEND / sigma**2 / convexity) if bounded else None
    return {
        "sigma": sigma,
        "gamma": gamma,
        "threshold": threshold,
        "concave": None if threshold is None else gamma > threshold,
        "evidence": Evidence.PROVEN if bounded else None,
        "points": Evidence.ESTIMATED,
    }
