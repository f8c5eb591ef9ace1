"""The robust surrogate φ_γ and the transport map T_γ as functions of a loss and points.

φ_γ(θ; z₀) = sup_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                                      [eqn:inner-sup]
T_γ(θ; z₀) = argmax_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                               [eqn:transport-map]
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.costs import Cost, LabelCost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.losses import AnyLoss, evaluate_loss
from certus.surrogate.maximizers import Maximizer, default_maximizer
from certus.surrogate.wrm import WRM

_L2, _EVERYWHERE = SquaredL2(), Unbounded()


def robust_surrogate(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    gamma: float | Tensor,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    maximizer: Maximizer | None = None,
    label_cost: LabelCost | None = None,
) -> Tensor:
    """φ_γ(θ; z₀), one value per sample: *estimated*, from below, by a precise ascent.

    Differentiable in θ: ∇_θ φ_γ = ∇_θ ℓ(θ; T_γ) (lemma:smoothness), so ``.mean().backward()`` is a step
    of Algorithm 1. With gradients enabled this costs one more forward pass, in the model's present mode.

    Returns: (batch,) tensor.

    >>> slope = torch.tensor([3.0, 4.0])
    >>> robust_surrogate(lambda z: z @ slope, torch.zeros(1, 2), gamma=0.5)   # ‖slope‖²/4γ
    tensor([12.5000])
    """
    maximizer = maximizer or _precise(cost, domain)
    wrm = WRM(gamma, cost=cost, domain=domain, maximizer=maximizer, label_cost=label_cost)
    found = wrm.solve(loss, inputs, targets)
    if not torch.is_grad_enabled():
        return found.value
    losses = evaluate_loss(loss, found.inputs, found.targets)
    # The attained value; the difference of the losses is 0, and carries the gradient in θ.
    return found.value + (losses - losses.detach())


def transport_map(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    gamma: float | Tensor,
    cost: Cost = _L2,
    domain: Domain = _EVERYWHERE,
    maximizer: Maximizer | None = None,
) -> Tensor:
    """T_γ(θ; z₀), where the worst case moves each sample: *estimated* by a precise ascent.

    Returns: tensor of the inputs' shape, detached.

    >>> slope = torch.tensor([3.0, 4.0])
    >>> transport_map(lambda z: z @ slope, torch.zeros(1, 2), gamma=0.5)      # z₀ + slope/2γ
    tensor([[3., 4.]])
    """
    maximizer = maximizer or _precise(cost, domain)
    return WRM(gamma, cost=cost, domain=domain, maximizer=maximizer)(loss, inputs, targets)


def _precise(cost: Cost, domain: Domain) -> Maximizer:
    return default_maximizer(cost, domain, tolerance=1e-6, max_gradients=200)
