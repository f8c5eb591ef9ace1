"""Losses in the kernel's form, and checks of their targets."""

from __future__ import annotations

from torch import Tensor

from certus.errors import LossError, UnsupportedError, format_samples
from certus.kernel.losses import Softmax
from certus.kernel.rounding import FEW, up
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin, SquaredError


def read_criterion(criterion: Criterion) -> Softmax | None:
    """Return the loss in the kernel's form; None for a squared error."""
    kind = type(criterion)  # a subclass may compute anything
    match criterion if kind in (CrossEntropy, SmoothMargin, Logistic, SquaredError) else None:
        case CrossEntropy(label_smoothing, temperature):
            inverse = 1 / temperature
            return Softmax(inverse, up(inverse**2, FEW), inverse, smoothing=label_smoothing)
        case SmoothMargin(margin, sharpness):
            return Softmax(1.0, sharpness, sharpness, offset=margin)
        case Logistic():
            return Softmax(logistic=True)
        case SquaredError():
            return None
    raise UnsupportedError(
        "`criterion` must be exactly CrossEntropy, SquaredError, Logistic or SmoothMargin for a smoothness "
        f"bound; got {kind.__name__}."
    )


def has_rule(criterion: Criterion) -> bool:
    """Whether the curvature of a loss can be bounded."""
    try:
        read_criterion(criterion)
    except UnsupportedError:
        return False
    return True


def check_targets(targets: Tensor, count: int, classes: int) -> Tensor:
    """Return labels as (batch,) int64."""
    rule = f"`targets` must be {count} labels from 0 to {classes - 1}"
    if targets.shape != (count,):
        raise LossError(f"{rule}; got shape {tuple(targets.shape)}.")
    labels = targets.long()
    others = (labels < 0) | (labels >= classes) | (labels != targets)
    if bool(others.any()):
        places = format_samples(others.nonzero().flatten().tolist())
        raise LossError(f"{rule}; got {targets[others][0].item():g} at {places}.")
    return labels


def check_values(targets: Tensor, outputs: Tensor) -> Tensor:
    """Return regression targets in float64, in the (batch, K) shape of the outputs."""
    if len(targets) != len(outputs) or targets.numel() != outputs.numel():
        raise LossError(
            f"`targets` must have as many entries as the outputs, {tuple(outputs.shape)}; "
            f"got shape {tuple(targets.shape)}."
        )
    return targets.double().reshape(outputs.shape)
