"""Metrics of one epoch of training, without torch: ``certus runs`` reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch, while θ moved; None where a method does not measure them.

    Attributes:
        loss: mean training loss at the moved inputs.
        accuracy: share of moved inputs that are classified correctly; None in regression.
        phi: mean of f at the last evaluated points of the ascents, a lower estimate of E φ_γ.
        rho_running: mean transport cost there. Not ρ̂, which is one pass at the final θ.
        gradients: mean gradients per sample of the inner problem.
        converged: share of inner problems that met their tolerance.
        gamma: penalty at the end of the epoch.
        calibration_loss, calibration_accuracy: on the unmoved calibration split.
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
