"""Robustness of a trained model: ρ̂ at the final θ, the γ for a wanted ρ, and a default ρ for some data.

    ρ̂_n(θ) = E_n[c(T_γ(θ; Z), Z)]                                                               [eqn:tol-n]

ρ̂ falls as γ grows, so the γ for a wanted ρ is found on log γ by secants, the first as for a linear loss
(ρ̂ ∝ γ⁻²), in turns with bisection once it is bracketed. The default ρ is on the data's own scale,

    √ρ = one tenth of the median distance from a sample to the nearest one with another label

Moves of about that distance would turn samples into those of another class, which no model can classify; a
tenth of it keeps the classes apart and is well above noise. In regression, labels
differ everywhere, so the nearest other sample counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch

from certus.costs import Cost
from certus.data import Samples
from certus.errors import ArgumentError
from certus.inner import WRM
from certus.losses import ModelLoss
from certus.training.loaders import BatchLoader
from certus.training.metrics import Sums

if TYPE_CHECKING:  # it loads torch._dynamo, which takes a second and a half
    from lightning_fabric import Fabric

_CLOSE = 0.05  # share of ρ
_MOST_PASSES = 60
_SAME = 1e-4  # width of a bracket of log γ that ends the search
_SEARCHED = 4096  # samples on which γ is sought before all decide
_SHARE, _SAMPLES = 0.1, 1000  # of the distance between classes, and by how many samples it is measured


class RobustnessStatus(Enum):
    """Outcome of the search for the γ of a requested ρ."""

    FIXED = "fixed"
    """γ was given; ρ̂ was measured."""

    REACHED = "reached"
    """ρ̂ is within 5% of the wanted ρ."""

    FLOOR = "floor"
    """γ_min binds: a smaller γ would be needed to move the data by ρ."""

    MISSED = "missed"
    """ρ̂ jumps past the wanted ρ as γ changes; the nearest level found is reported."""


@dataclass(frozen=True)
class Robustness:
    """Robustness at a fixed θ; ρ̂ and φ are *estimated* by the ascent.

    Attributes:
        gamma, rho_hat, phi: the penalty, the mean transport cost, and the mean of f.
        gradients: mean gradients per sample of this pass.
        samples: number of samples of a random subset that was measured; None for all.
        interval: of a subset, the 95% interval for ρ̂ over all samples, by the normal approximation.
    """

    gamma: float
    rho_hat: float
    phi: float
    gradients: float
    status: RobustnessStatus
    samples: int | None = None
    interval: tuple[float, float] | None = None


def measure_robustness(
    method: WRM,
    loss: ModelLoss,
    data: Samples | BatchLoader,
    batch_size: int,
    fabric: Fabric,
    at_most: int | None = None,
) -> Robustness:
    """Measure ρ̂ and φ in one precise pass over the data at the present θ and γ, shared among processes; with
    ``at_most``, over a random subset of a loader's samples."""
    assert isinstance(method.gamma, float | int)
    careful, sums = method.careful(), Sums()
    if isinstance(data, Samples):
        batches = data[fabric.global_rank :: fabric.world_size].batches(batch_size)
    else:
        batches = data.one_pass(at_most)
    for batch in batches:
        measured = careful.perturb(loss, batch.inputs, batch.targets).measured
        names = {"rho_hat": "rho_running", "phi": "phi", "gradients": "gradients"}
        sums.add(batch.weights, **{name: measured[key] for name, key in names.items()})
        sums.add(batch.weights, square=measured["rho_running"].cpu().double() ** 2)
    means: dict[str, Any] = dict(sums.means(fabric))
    whole = None if isinstance(data, Samples) else data.count
    mean, square = means["rho_hat"], means.pop("square")
    if at_most is not None and whole is not None and at_most < whole:
        # Without replacement, which the last factor stands for.
        spread = math.sqrt(max(square - mean**2, 0.0) / at_most * (1 - at_most / whole))
        half = NormalDist().inv_cdf(0.975) * spread
        means |= {"samples": at_most, "interval": (max(0.0, mean - half), mean + half)}
    return Robustness(gamma=float(method.gamma), status=RobustnessStatus.FIXED, **means)


def calibrate(
    method: WRM,
    loss: ModelLoss,
    data: Samples | BatchLoader,
    batch_size: int,
    fabric: Fabric,
    at_most: int | None = None,
) -> Robustness:
    """Set γ so that ρ̂ is within 5% of the requested ρ at the current θ, or to its floor.

    γ is searched on a part of the data and checked on all of it, or on a random subset of ``at_most``
    samples; if the check fails, the search continues there.
    """
    count = len(data) if isinstance(data, Samples) else data.count
    if count is None or min(count, at_most or count) > _SEARCHED:
        few = data[:: -(-len(data) // _SEARCHED)] if isinstance(data, Samples) else data.some(_SEARCHED)
        _search(method, loss, few, batch_size, fabric)
    return _search(method, loss, data, batch_size, fabric, at_most)


def _search(
    method: WRM,
    loss: ModelLoss,
    data: Samples | BatchLoader,
    batch_size: int,
    fabric: Fabric,
    at_most: int | None = None,
) -> Robustness:
    """Search log γ by secants against log ρ̂, inside the bracket of earlier trials."""
    rho = method.rho
    assert rho is not None
    low, high = -math.inf, math.inf  # log γ with ρ̂ > ρ, and with ρ̂ < ρ
    tried: list[Robustness] = []
    for _ in range(_MOST_PASSES):
        robustness = measure_robustness(method, loss, data, batch_size, fabric, at_most)
        tried.append(robustness)
        if abs(robustness.rho_hat - rho) <= _CLOSE * rho:
            return replace(robustness, status=RobustnessStatus.REACHED)
        if robustness.rho_hat < rho and method.at_floor:
            return replace(robustness, status=RobustnessStatus.FLOOR)
        here = math.log(robustness.gamma)
        low, high = (here, high) if robustness.rho_hat > rho else (low, here)
        if high - low < _SAME:
            break
        method.load_state_dict({"gamma": max(math.exp(_next_guess(tried, rho, low, high)), method.gamma_min)})
    nearest = min(tried, key=lambda robustness: abs(robustness.rho_hat - rho))
    method.load_state_dict({"gamma": nearest.gamma})
    return replace(nearest, status=RobustnessStatus.MISSED)


def _next_guess(tried: list[Robustness], rho: float, low: float, high: float) -> float:
    """Return the next log γ: along the last secant, or halfway if that leaves the bracket."""
    last = tried[-1]
    here, floor = math.log(last.gamma), 1e-12 * rho
    excess = math.log(max(last.rho_hat, floor) / rho)
    slope = -2.0
    if len(tried) > 1:
        before = tried[-2]
        run = here - math.log(before.gamma)
        rise = math.log(max(last.rho_hat, floor) / max(before.rho_hat, floor))
        slope = min(rise / run, -0.2) if run != 0 else slope
    guess = here - max(-2.0, min(2.0, excess / slope))
    bracketed = math.isfinite(low) and math.isfinite(high)
    trusted = low < guess < high and not (bracketed and len(tried) % 2 == 0)
    return guess if trusted else (low + high) / 2


@dataclass(frozen=True)
class Suggestion:
    """Default ρ with the distance, in the cost's norm, that it was derived from."""

    rho: float
    distance: float
    neighbour: str

    @property
    def reason(self) -> str:
        """Explanation in one sentence."""
        return (
            f"rho = {self.rho:.4g}, a root mean square distance of {self.rho**0.5:.3g}: a tenth of "
            f"{self.distance:.3g}, the median distance from a sample to {self.neighbour}"
        )


def suggest_rho(data: Samples, cost: Cost, seed: int = 0) -> Suggestion:
    """Derive a default ρ from the distances between at most 1,000 samples, drawn by ``seed``.

    >>> data = Samples(torch.tensor([[0.0], [0.1], [2.0], [2.1]]), torch.tensor([0, 0, 1, 1]))
    >>> from certus.costs import SquaredL2
    >>> suggestion = suggest_rho(data, SquaredL2())
    >>> round(suggestion.distance, 3), round(suggestion.rho, 5)
    (1.9, 0.0361)
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:_SAMPLES]
    labelled, sample = not data.targets.is_floating_point(), data[order]
    kind = sample.targets if labelled else torch.arange(len(sample))
    nearest = []  # √c to the nearest sample of another kind; ∞ without any
    for index in range(len(sample)):
        costs = cost(sample.inputs, sample.inputs[index : index + 1].expand_as(sample.inputs))
        nearest.append(torch.where(kind != kind[index], costs, torch.inf).min().sqrt())
    distances = torch.stack(nearest)
    distances = distances[torch.isfinite(distances) & (distances > 0)]
    if len(distances) == 0:
        raise ArgumentError("`rho` cannot be suggested: no two samples differ. Give `gamma` or `rho`.")
    distance = float(distances.median())
    neighbour = "the nearest sample with another label" if labelled else "the nearest other sample"
    return Suggestion((_SHARE * distance) ** 2, distance, neighbour)
