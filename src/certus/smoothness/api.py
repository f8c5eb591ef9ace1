"""``input_smoothness`` and ``local_smoothness``: what a certificate, a training loop or a report asks for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from certus.batches import widened
from certus.costs import Cost, SquaredL2
from certus.errors import CertusError, require
from certus.losses import Criterion, CrossEntropy
from certus.outward import up
from certus.smoothness.analysis import Analysis, Found
from certus.smoothness.criteria import Softmax
from certus.smoothness.results import LayerBound, LocalBound, SmoothnessBound
from certus.smoothness.stage import Shape
from certus.smoothness.steps import printed, widths
from certus.smoothness.table import table_of
from certus.split import require_real

_L2 = SquaredL2()
_CROSS_ENTROPY = CrossEntropy()
_CHUNK = 1 << 18  # numbers in one tensor of a pass: 2 MB, which stays in the cache


def input_smoothness(
    model: nn.Module | Analysis,
    criterion: Criterion = _CROSS_ENTROPY,
    *,
    input_shape: Shape | None = None,
    cost: Cost = _L2,
) -> SmoothnessBound:
    """Proven bounds on the smoothness of x ↦ ℓ(θ; (x, y)) for every input and label, layer by layer.

    Args:
        model: sequential, of layers with rules; read in eval mode, and left as it is. Or an ``Analysis`` made
            beforehand, which has its own criterion, shape and cost.
        criterion: ``CrossEntropy``, ``SquaredError``, ``Logistic`` or ``SmoothMargin``.
        input_shape: the shape of one input; not needed if the model begins with a linear layer.
        cost: all bounds are in its norm. For a norm without inner product L⁺ means
            ℓ(x + δ) ≤ ℓ(x) + ⟨∇ℓ(x), δ⟩ + (L⁺/2)‖δ‖².

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> round(input_smoothness(model).curvature, 6)              # D²/4, D = ‖w₁ − w₂‖ = 5
    6.25
    """
    analysis = model
    if not isinstance(analysis, Analysis):
        analysis = Analysis(analysis, criterion, input_shape=input_shape, cost=cost)
    found = analysis.everywhere
    bounds = {name: float(values[0]) for name, values in found.bounds.items()}
    if analysis.softmax is not None:
        bounds = {"paper": _printed(analysis, analysis.softmax), **bounds}
    if any(math.isnan(bound) for bound in bounds.values()):
        raise CertusError("The bounds overflow float64: the weights of this model are too large.")
    layers = _table(analysis, found)
    obstacle = None
    if math.isinf(min(bounds.values())):
        kinked = [layer.path for layer in layers if math.isinf(layer.bend)]
        obstacle = kinked[0] if kinked else "the residuals F − y have no bound over all inputs"
    return SmoothnessBound(
        bounds=bounds,
        lipschitz=float(found.lipschitz[0]),
        output_lipschitz=float(found.output_lipschitz[0]),
        margin_lipschitz=None if found.margin_lipschitz is None else found.margin_lipschitz[0],
        margin_curvature=None if found.margin_curvature is None else found.margin_curvature[0],
        layers=layers,
        obstacle=obstacle,
        cost=analysis.cost,
        assumptions=analysis.assumptions,
    )


def local_smoothness(
    model: nn.Module | Analysis,
    inputs: Tensor,
    targets: Tensor,
    radius: float | Tensor,
    criterion: Criterion = _CROSS_ENTROPY,
    *,
    cost: Cost = _L2,
) -> LocalBound:
    """The same on the ball of ``radius``, in the norm of ``cost``, around each input, for its own target.

    Args:
        model: or an ``Analysis`` made beforehand, which has its own criterion and cost.
        inputs, targets: (batch, …) and (batch,).
        radius: one number, or (batch,).

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 3))
    >>> inputs, targets = torch.zeros(5, 2), torch.zeros(5, dtype=torch.long)
    >>> everywhere = input_smoothness(model).curvature
    >>> bool((local_smoothness(model, inputs, targets, 0.1).curvature <= everywhere).all())
    True
    """
    if not isinstance(model, Analysis):
        model = Analysis(model, criterion, input_shape=tuple(inputs.shape[1:]), cost=cost)
    require(
        tuple(inputs.shape[1:]) == model.shape, "inputs", f"have shape (batch, {model.shape})", inputs.shape
    )
    require(len(inputs) > 0, "inputs", "hold at least one sample", "none")
    require_real(inputs=inputs, targets=targets)
    radii = widened(radius).expand(len(inputs))
    valid = bool((torch.isfinite(radii) & (radii >= 0)).all())
    require(valid, "radius", "be finite and not negative", radius)
    points = inputs.detach().cpu().double()
    require(bool(torch.isfinite(points).all()), "inputs", "be finite", "NaN or infinity")
    rows = model.outputs.classes
    size = max(1, _CHUNK // (rows * max([1, *widths(model.steps)])))
    parts = [
        model.run(points[at : at + size], targets[at : at + size].cpu(), radii[at : at + size])
        for at in range(0, len(points), size)
    ]
    bounds = {name: torch.cat([part.bounds[name] for part in parts]) for name in parts[0].bounds}
    whole = model.everywhere  # what holds everywhere holds on a ball
    curvature = torch.stack(
        [*bounds.values(), *(part.expand(len(radii)) for part in whole.bounds.values())]
    ).amin(0)
    if bool(torch.isnan(curvature).any()):
        raise CertusError("The bounds overflow float64: the weights of this model are too large.")
    labels = targets.long().cpu()
    return LocalBound(
        bounds=bounds,
        curvature=curvature,
        lipschitz=torch.cat([part.lipschitz for part in parts]).minimum(whole.lipschitz),
        margin_lipschitz=_smaller([part.margin_lipschitz for part in parts], whole.margin_lipschitz, labels),
        margin_curvature=_smaller([part.margin_curvature for part in parts], whole.margin_curvature, labels),
        margins=_joined([part.margins for part in parts]),
        error=_joined([part.error for part in parts]),
        radius=radii,
        assumptions=model.assumptions,
    )


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    given = [part for part in parts if part is not None]
    return torch.cat(given) if given else None


def _smaller(parts: list[Tensor | None], whole: Tensor | None, labels: Tensor) -> Tensor | None:
    """(batch, classes) of the balls, or [k, y] of all of space where that is smaller."""
    joined = _joined(parts)
    return joined if joined is None or whole is None else joined.minimum(whole[0].T[labels])


def _printed(analysis: Analysis, softmax: Softmax) -> float:
    """√2·β_L + α_L² with the constants that the paper prints."""
    steps = analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]
    length, bend = printed(steps, analysis.geometry.length)
    return up(softmax.printed(bend, length))


def _table(analysis: Analysis, found: Found) -> list[LayerBound]:
    start = analysis.geometry.start(analysis.shape)
    lines, end = table_of(analysis.steps, start, found.parts)
    if analysis.head is not None:
        more, _ = table_of([analysis.head], end, found.parts)
        lines += more
    own = float(found.bounds["sum"][0]) - sum(line.curvature for line in lines)
    last = LayerBound(
        "", "loss", math.nan, math.nan, float(found.lipschitz[0]), max(own, 0.0) if own == own else 0.0
    )
    return [*lines, last]
