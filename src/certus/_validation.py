"""Validation of a batch, a cost, a domain, a loss and a penalty."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from certus._tensor import as_float64
from certus.costs import Cost, LabelCost
from certus.costs.claims import check_claims
from certus.data import require_real
from certus.domains import Domain
from certus.errors import ArgumentError, LossError, format_samples, require
from certus.losses import AnyLoss


def check_batch(inputs: Tensor, targets: Tensor | None) -> None:
    """Require finite floating-point inputs (batch, …), not empty, and one target each on their device."""
    require(isinstance(inputs, Tensor), "inputs", "be a tensor", type(inputs))
    require_real(inputs=inputs, targets=targets)
    require(inputs.is_floating_point(), "inputs", "be of a floating-point dtype", inputs.dtype)
    require(inputs.dim() >= 2, "inputs", "have shape (batch, …)", f"shape {tuple(inputs.shape)}")
    require(inputs.numel() > 0, "inputs", "not be empty", f"shape {tuple(inputs.shape)}")
    _require_all(torch.isfinite(inputs).flatten(1).all(1), "inputs", "be finite", "NaN or infinity")
    if targets is None:
        return
    require(isinstance(targets, Tensor), "targets", "be a tensor or None", type(targets))
    matching = targets.dim() >= 1 and len(targets) == len(inputs)
    rule = f"have one entry for each of the {len(inputs)} inputs"
    require(matching, "targets", rule, f"shape {tuple(targets.shape)}")
    rule = f"be on the device {inputs.device} of `inputs`"
    require(targets.device == inputs.device, "targets", rule, targets.device)
    if targets.is_floating_point():
        finite = torch.isfinite(targets.unsqueeze(1)).flatten(1).all(1)
        _require_all(finite, "targets", "be finite", "NaN or infinity")


def check_geometry(inputs: Tensor, cost: Cost, domain: Domain) -> None:
    """Require a cost and a domain that fit each other, the inputs and their claims; inputs in the domain."""
    require(isinstance(cost, Cost), "cost", "be a Cost, such as SquaredL2()", cost)
    require(isinstance(domain, Domain), "domain", "be a Domain, such as Box(0, 1)", domain)
    cost.support(domain)
    cost.check_shape(inputs)
    check_domain(inputs, domain)
    check_claims(cost, domain, inputs)


def check_domain(inputs: Tensor, domain: Domain) -> None:
    """Require a domain that fits and contains the inputs."""
    domain.check_shape(inputs)
    rule = f"lie in the domain {type(domain).__name__}; `domain.project(inputs)` moves them there"
    _require_all(domain.contains(inputs), "inputs", rule, "points outside")


def checked_weights(weights: Tensor, count: int) -> Tensor:
    """(n,) weights of samples as float64 on the CPU, scaled to a mean of 1.

    >>> checked_weights(torch.tensor([3, 1]), 2)
    tensor([1.5000, 0.5000], dtype=torch.float64)
    """
    require(isinstance(weights, Tensor), "weights", "be a tensor", type(weights))
    shape = tuple(weights.shape)
    require(shape == (count,), "weights", f"have one entry for each of the {count} samples", f"shape {shape}")
    numbers = weights.detach().cpu().double()
    _require_all(torch.isfinite(numbers) & (numbers >= 0), "weights", "be finite and not negative", "others")
    require(bool(numbers.sum() > 0), "weights", "not all be 0", "zeros only")
    numbers = numbers / numbers.max()  # or the sum of huge weights would overflow
    return numbers * (count / numbers.sum())


def check_label_cost(targets: Tensor | None, label_cost: LabelCost) -> None:
    """Require targets that are labels of the label cost."""
    if targets is None or targets.dtype != torch.long or targets.dim() != 1:
        value = None if targets is None else f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise ArgumentError(f"`targets` must be (batch,) int64 labels for a label cost; got {value}.")
    rule = f"be labels from 0 to {label_cost.classes - 1}, the classes of `label_cost`"
    _require_all((targets >= 0) & (targets < label_cost.classes), "targets", rule, "others")


def check_loss(loss: AnyLoss, targets: Tensor | None) -> None:
    """Require a loss that accepts inputs and targets, or inputs only if there are no targets."""
    if not callable(loss):
        raise ArgumentError(f"`loss` must be callable; got {type(loss)}.")
    try:
        signature = inspect.signature(loss.forward if isinstance(loss, nn.Module) else loss)
    except (TypeError, ValueError):
        return  # built-ins without a signature
    given = "inputs" if targets is None else "inputs, targets"
    try:
        signature.bind(*given.split(", "))
    except TypeError as reason:
        raise LossError(
            f"`loss` must accept ({given}): {reason}. "
            "ModelLoss(model, criterion) makes a loss from a model; `targets` are optional."
        ) from None


def check_penalty(gamma: object) -> None:
    """Require positive and finite penalties γ."""
    try:
        tensor = as_float64(gamma)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(f"`gamma` must be a number or a tensor; got {gamma!r}.") from None
    valid = not isinstance(gamma, bool) and bool((torch.isfinite(tensor) & (tensor > 0)).all())
    require(valid, "gamma", "be positive and finite", gamma)


def penalties(gamma: float | Tensor, inputs: Tensor) -> Tensor:
    """γ as a (batch,) tensor like the inputs: one number for all, or one for each sample."""
    check_penalty(gamma)
    tensor = torch.as_tensor(gamma, dtype=inputs.dtype, device=inputs.device)
    if tensor.dim() > 0 and tensor.shape != (len(inputs),):
        raise ArgumentError(
            f"`gamma` must be a number or have shape ({len(inputs)},), one penalty per sample; "
            f"got shape {tuple(tensor.shape)}."
        )
    representable = bool((torch.isfinite(tensor) & (tensor > 0)).all())
    require(representable, "gamma", f"be positive and finite in the inputs' {inputs.dtype}", gamma)
    return tensor.expand(len(inputs))


def _require_all(good: Tensor, name: str, rule: str, value: str) -> None:
    if not good.all():
        bad = (~good).nonzero().flatten().tolist()
        raise ArgumentError(f"`{name}` must {rule}; got {value} at {format_samples(bad)}.")
