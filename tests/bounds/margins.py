"""Criteria of classification by their margins F_k − F_y, for derivatives that do not cancel.

Autograd of log p_y subtracts p_y from 1, and of a loss of 10⁻²⁴ nothing is left. Written as
log(1 + Σ_{k≠y} exp(F_k − F_y)), the loss has derivatives that are correct to the last digits at every size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin


def by_margins(criterion: Criterion) -> Callable[[Tensor, Tensor], Tensor]:
    """The same values, (batch, classes) and (batch,) → (batch,); other criteria are left as they are."""
    match criterion:
        case CrossEntropy(smoothing, temperature):
            return lambda outputs, targets: _smoothed(outputs / temperature, targets, smoothing)
        case SmoothMargin(margin, sharpness):
            return lambda outputs, targets: (
                _soft(sharpness * outputs, targets, sharpness * margin) / sharpness
            )
        case Logistic():
            return lambda outputs, targets: _softplus((1 - 2 * targets.to(outputs)) * outputs.flatten())
    return criterion


def _smoothed(outputs: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """(1 − ε)·ℓ_y + (ε/K)·Σ_k ℓ_k."""
    own = _soft(outputs, targets)
    if smoothing == 0:
        return own
    every = [_soft(outputs, torch.full_like(targets, label)) for label in range(outputs.shape[1])]
    return (1 - smoothing) * own + smoothing * torch.stack(every).mean(0)


def _soft(outputs: Tensor, targets: Tensor, margin: float = 0.0) -> Tensor:
    """log(1 + Σ_{k≠y} exp(F_k − F_y + margin)); the class y itself must not appear, or it cancels."""
    own = functional.one_hot(targets, outputs.shape[1]).to(torch.bool)
    lead = (outputs - outputs[own].unsqueeze(1) + margin).masked_fill(own, -torch.inf)
    return _softplus(torch.logsumexp(lead, 1))


def _softplus(values: Tensor) -> Tensor:
    # Without torch's default of 20, beyond which it is linear.
    return functional.softplus(values, threshold=200.0)
