"""From the outputs to the inputs: slopes of each unit, and the curvature that the activations add.

A *row* is a function m of a layer's units; its gradient v lies in an interval for each unit. The network's
part of the second derivative is a sum over all activations (sum rule), in which only the sizes of single
entries of v count:

    ∇²m = Σ_l A_lᵀ diag(v_l ∘ σ''(z_l)) A_l
        ≤ Σ_l min(max_n c_n·length_l², Σ_n c_n·unit_n², λ_max(A_lᵀ diag(c) A_l)),

with c_n the largest value of (v_n σ''_n)⁺; the last form where A_l is a matrix. And where m itself has
curvature, ∇²m ⪯ M·I in the units of a layer, an activation makes of it (max rule)

    M ← max_n sup_z M σ'(z)² + v_n σ''(z)          ( = max(M, max_n b_n e_n) for log cosh, e_n = sup v_n⁺)

and a linear layer multiplies by ‖W‖². Inside a sum of branches M starts at 0, for a linear function of the
branch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from certus.smoothness.activations import Activation, Joint
from certus.smoothness.forward import Site, Trace, size, times
from certus.smoothness.network import Step, Sum
from certus.smoothness.operators import Operator
from certus.smoothness.rules import Windows
from certus.smoothness.spectral import quadratic_norm, slack

_EIGENVALUE_WORK = 2e9  # how much to spend on exact eigenvalues, in multiplications


@dataclass(frozen=True, eq=False)
class Rows:
    """Gradients of (batch, rows) functions with respect to a layer.

    Attributes:
        low, high: (batch, rows, *shape) their range.
        length: (batch, rows) bound on their Euclidean norm.
        curvature: (batch, rows) M, or None where it is not followed.
    """

    low: Tensor
    high: Tensor
    length: Tensor
    curvature: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())


@dataclass(eq=False)
class Tally:
    """What a pass finds on its way.

    Attributes:
        lipschitz: (batch, rows) Lipschitz constants, the best over all cuts of the network.
        convex, concave: (batch, rows) curvature of m and of −m by the sum rule, for each path.
        gain: (batch,) Lipschitz constant of the steps passed, as a product of norms.
        ending: (batch, rows) M at the inputs, exactly for the first layer; ∞ if not computed.
    """

    lipschitz: Tensor
    gain: Tensor
    convex: dict[str, Tensor] = field(default_factory=dict)
    concave: dict[str, Tensor] = field(default_factory=dict)
    ending: Tensor | None = None


def backward(
    steps: list[Step], trace: Trace, rows: Rows, tally: Tally, *, whole: bool = True, inside: bool = False
) -> Rows:
    """Pull rows back through the steps, adding to the tally.

    Args:
        whole: go through the very first operator as well; without it only M does.
        inside: the steps are a branch, which is no cut of the network.
    """
    for index in range(len(steps) - 1, -1, -1):
        step, met, action = steps[index], trace[index], steps[index].action
        match action:
            case Operator():
                rows = _through_operator(action, rows, whole or index > 0 or inside)
                tally.gain = tally.gain * action.norm
            case Activation():
                assert isinstance(met, Site)
                rows = _through_activation(step.path, met, rows, tally, inside)
            case Windows():
                rows = _through_windows(step.path, action, rows, tally)
            case Sum(branches):
                assert isinstance(met, list)
                rows = _through_sum(branches, met, rows, tally)
    return rows


def _through_operator(operator: Operator, rows: Rows, whole: bool) -> Rows:
    bent = (
        None
        if rows.curvature is None
        else times(rows.curvature, rows.length.new_tensor(operator.norm * operator.norm))
    )
    if not whole:
        return replace(rows, curvature=bent)
    center, room = (rows.low + rows.high) / 2, (rows.high - rows.low) / 2
    room = room + (operator.rounding + slack(1)) * rows.largest
    form = (*rows.low.shape[:2], *operator.in_shape)
    pulled = operator.transpose(center.flatten(0, 1)).reshape(form)
    spread = operator.absolute_transpose(room.flatten(0, 1)).reshape(form)
    cap = operator.column_norms * rows.length.reshape(*form[:2], *([1] * len(operator.in_shape)))
    low, high = torch.maximum(pulled - spread, -cap), torch.minimum(pulled + spread, cap)
    made = Rows(low, high, operator.norm * rows.length, bent)
    return replace(made, length=torch.minimum(made.length, size(made.largest, 2)))


def _through_activation(path: str, site: Site, rows: Rows, tally: Tally, inside: bool) -> Rows:
    low, high = rows.low, rows.high
    corners = [times(v, c.unsqueeze(1)) for v in (low, high) for c in site.curvature]
    most, opposite = _largest(corners), _largest([-corner for corner in corners])
    for found, bent in ((tally.convex, most), (tally.concave, opposite)):
        found[path] = _curvature(site, bent)
    slopes = [v * s.unsqueeze(1) for v in (low, high) for s in site.slope]
    low = torch.minimum(torch.minimum(slopes[0], slopes[1]), torch.minimum(slopes[2], slopes[3]))
    high = torch.maximum(torch.maximum(slopes[0], slopes[1]), torch.maximum(slopes[2], slopes[3]))
    steepest = site.steepest.flatten(1).amax(1)
    after: Tensor | None = None
    if rows.curvature is not None:
        units = _bend(site, rows, most)
        after = units.flatten(2).amax(2)
        tally.ending = None if inside else _exact(site, units)
    made = Rows(low, high, rows.length * steepest.unsqueeze(1), after)
    largest = made.largest
    made = replace(made, length=torch.minimum(made.length, size(largest, 2)))
    tally.gain = tally.gain * steepest
    if not inside:
        cut = made.length * site.length.unsqueeze(1)
        single = (largest * site.unit.unsqueeze(1)).flatten(2).sum(2)
        tally.lipschitz = torch.minimum(tally.lipschitz, torch.minimum(cut, single))
    return made


def _largest(parts: list[Tensor]) -> Tensor:
    """The largest of four and of 0."""
    return torch.maximum(torch.maximum(parts[0], parts[1]), torch.maximum(parts[2], parts[3])).clamp_min(0)


def _curvature(site: Site, bent: Tensor) -> Tensor:
    """sup λ_max(Aᵀ diag(c) A) for c = ``bent`` ≥ 0. Shapes (batch, rows, *shape) → (batch, rows)."""
    whole = times(bent.flatten(2).amax(2), (site.length**2).unsqueeze(1))
    single = times(bent, (site.unit**2).unsqueeze(1)).flatten(2).sum(2)
    return torch.minimum(torch.minimum(whole, single), _exact(site, bent))


def _exact(site: Site, bent: Tensor) -> Tensor:
    """The eigenvalue itself for each row, or one for all rows of a sample, or ∞, as far as it is
    affordable."""
    flat = bent.flatten(2)
    if site.matrix is None or not bool(torch.isfinite(flat).all()):
        return flat.new_full(flat.shape[:2], math.inf)
    work = min(site.matrix.shape) ** 2 * max(site.matrix.shape) + 1e4
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        flat = flat.amax(1, keepdim=True)
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        return bent.new_full(bent.shape[:2], math.inf)
    return quadratic_norm(site.matrix, flat).expand(bent.shape[:2])


def _bend(site: Site, rows: Rows, most: Tensor) -> Tensor:
    """The max rule before its maximum over the units, (batch, rows, *shape). ``most`` is (vσ'')⁺."""
    assert rows.curvature is not None
    before = rows.curvature.reshape(*most.shape[:2], *([1] * (most.dim() - 2)))
    steep = (site.steepest**2).unsqueeze(1)
    bound = times(before, steep) + most
    push = rows.high.clamp_min(0) * site.activation.sharpness
    if site.activation.joint is Joint.ARC:
        crossing = (site.slope[0] < 0) & (site.slope[1] > 0)
        flat = torch.where(crossing, 0.0, torch.minimum(site.slope[0].abs(), site.slope[1].abs()) ** 2)
        ends = [
            times(before, square) + push * (1 - square) for square in (flat.unsqueeze(1), steep.clamp_max(1))
        ]
        bound = torch.minimum(bound, torch.maximum(*ends))
    if site.activation.joint is Joint.LOGISTIC:
        ends = [p.clamp(0, 1).unsqueeze(1) for p in site.slope]
        values = [times(before, p**2) + push * p * (1 - p) for p in ends]
        inner = push / (2 * (push - before)).clamp_min(1e-300)
        within = (push > before) & (inner >= ends[0]) & (inner <= ends[1])
        peak = torch.where(within, push**2 / (4 * (push - before)).clamp_min(1e-300), 0.0)
        bound = torch.minimum(bound, torch.maximum(torch.maximum(*values), peak))
    return bound


def _through_windows(path: str, windows: Windows, rows: Rows, tally: Tally) -> Rows:
    form = (*rows.low.shape[:2], *windows.in_shape)
    low, high = (
        windows.spread(part.flatten(0, 1)).reshape(form) * (1 + slack(windows.overlap))
        for part in (rows.low.clamp_max(0), rows.high.clamp_min(0))
    )
    kinked = torch.where(rows.length > 0, math.inf, torch.zeros_like(rows.length))
    for found in (tally.convex, tally.concave):
        found[path] = kinked
    growth = math.sqrt(windows.overlap) * (1 + 1e-15)
    tally.gain = tally.gain * growth
    made = Rows(low, high, rows.length * growth, None if rows.curvature is None else rows.curvature + kinked)
    return replace(made, length=torch.minimum(made.length, size(made.largest, 2)))


def _through_sum(branches: list[list[Step]], traces: list[Trace], rows: Rows, tally: Tally) -> Rows:
    parts, gains = [], []
    start = replace(rows, curvature=None if rows.curvature is None else torch.zeros_like(rows.curvature))
    for branch, trace in zip(branches, traces, strict=True):
        own = Tally(tally.lipschitz, torch.ones_like(tally.gain), tally.convex, tally.concave)
        parts.append(backward(branch, trace, start, own, inside=True))
        gains.append(own.gain)
    gain = torch.stack(gains).sum(0)
    tally.gain = tally.gain * gain
    low, high = (
        torch.stack([part.low for part in parts]).sum(0),
        torch.stack([part.high for part in parts]).sum(0),
    )
    rounding = slack(len(parts)) * torch.stack([part.largest for part in parts]).sum(0)
    length = torch.stack([part.length for part in parts]).sum(0)
    bent = None
    if rows.curvature is not None:
        bends = [part.curvature for part in parts if part.curvature is not None]
        bent = times(rows.curvature, (gain**2).unsqueeze(1)) + torch.stack(bends).sum(0)
    made = Rows(low - rounding, high + rounding, length, bent)
    return replace(made, length=torch.minimum(length, size(made.largest, 2)))
