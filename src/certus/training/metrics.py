"""What is measured in training, kept as sums and counts so that processes and resumed runs add up exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from torch import Tensor


@dataclass
class Sums:
    """Sums of per-sample quantities and their counts, by name."""

    totals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, weights: Tensor | None = None, **quantities: Tensor) -> None:
        """Add (batch,) tensors, each sample as often as its weight says; what is not measured is left out."""
        for name, values in quantities.items():
            total, count = self.totals.get(name, (0.0, 0.0))
            summed, more = values.detach().cpu().double(), float(len(values))
            if weights is not None:
                counts = weights.cpu().double()
                summed, more = summed * counts, float(counts.sum())
            self.totals[name] = (total + float(summed.sum()), count + more)

    def means(self, fabric: Fabric) -> dict[str, float]:
        """Means over the samples of all processes."""
        names = sorted(self.totals)
        if not names:
            return {}
        table = torch.tensor([self.totals[name] for name in names], dtype=torch.float64)
        if fabric.world_size > 1:  # on devices that have float64: MPS knows one process only
            reduced = fabric.all_reduce(table.to(fabric.device), reduce_op="sum")
            assert isinstance(reduced, Tensor)
            table = reduced.cpu()
        return {name: float(row[0] / row[1]) for name, row in zip(names, table, strict=True)}

    def state(self) -> dict[str, list[float]]:
        return {name: list(pair) for name, pair in self.totals.items()}

    @staticmethod
    def from_state(state: Mapping[str, list[float]]) -> Sums:
        return Sums({name: (pair[0], pair[1]) for name, pair in state.items()})


@dataclass(frozen=True)
class EpochMetrics:
    """One epoch, while θ moved; None where a method does not measure it.

    Attributes:
        loss: mean training loss at the moved inputs.
        accuracy: share of moved inputs classified right; None in regression.
        phi: mean of f where the ascent measured it last, a lower estimate of E φ_γ.
        rho_running: mean transport cost there. Not ρ̂, which is one pass at the final θ.
        gradients: mean gradients per sample of the inner problem.
        converged: share of inner problems that met their tolerance.
        gamma: penalty at the end of the epoch.
        calibration_loss, calibration_accuracy: on the calibration split as it is.
        seconds: wall time of the epoch.
        curvature: L̄, *proven* for the weights at the end of the epoch; None unless training is certified.
    """

    epoch: int
    loss: float
    accuracy: float | None
    phi: float | None
    rho_running: float | None
    gradients: float | None
    converged: float | None
    gamma: float | None
    calibration_loss: float | None
    calibration_accuracy: float | None
    seconds: float
    curvature: float | None = None
