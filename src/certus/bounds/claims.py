"""Validation of activations and layer rules that users register.

The bounds take σ, σ' and σ'' and the ranges of the last two from a ``Scalar``. Points of all scales can
refute all of it:

- σ' and σ'' against autograd of σ and σ', where it is defined;
- by the mean value theorem (σ(b) − σ(a))/(b − a) lies in the range of σ' on [a, b], and likewise for σ' and
  σ'': for small intervals everywhere, each bisected towards its worst half, which reveals unlisted kinks;
- every value of σ' and σ'' lies in the ranges of the intervals around it, peaks in particular, and in that of
  the whole line;
- the relation ``joint`` of σ'' and σ'.

The outputs of a rule are compared with the layer's at points of size 10⁻³ to 10⁶, in float64. For operators
the transpose and all norms are tested too, for a user's primitive the bounds on the movement of its outputs.

None of this is a proof: a claim that passes is still *assumed*.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from weakref import WeakSet

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus._tensor import format_point, per_sample
from certus.bounds.norm_proposals import claim_norm
from certus.errors import ClaimError
from certus.kernel.groups import GroupLength, GroupSort
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, AxisProduct, Convolution, Dense, Diagonal, Product, Reshape
from certus.kernel.passes import ForwardBound, Primitive, Range, Shape
from certus.kernel.pointwise import Function, Joint, Pointwise, Scalar

_PASSED: WeakSet[Scalar] = WeakSet()
_FAR = 1e6
_HALVINGS = 12
_ROUNDING = 64 * 2.0**-52
_Ranges = Callable[[Tensor, Tensor], Range]


def check_activation(where: str, activation: Pointwise) -> None:
    """Raise ``ClaimError`` if points refute the activation; ``where`` names it in the message."""
    base = activation.scalar
    if base in _PASSED:
        return
    line, points = Pointwise(base, (1,)), _spread(base)
    for name, function in (("σ", base.value), ("σ'", base.slope), ("σ''", base.curvature)):
        _check_finite(where, name, function, points)
    chain = (
        ("σ'", base.value, base.slope, line.slope_range),
        ("σ''", base.slope, base.curvature, line.curvature_range),
    )
    for name, function, derivative, ranges in chain:
        _check_derivative(where, name, function, derivative, points)
        _check_secants(where, name, function, ranges, points)
        _check_ranges(where, name, derivative, ranges, points)
    _check_joint(where, base, points)
    _PASSED.add(base)


def _spread(base: Scalar) -> Tensor:
    """Points of all scales, and points around every peak and kink, in increasing order."""
    sizes = torch.logspace(-6, math.log10(_FAR), 240, dtype=torch.float64)
    line = torch.linspace(-12, 12, 601, dtype=torch.float64) + 0.00314159  # off the round numbers
    listed = (*base.slope_peaks, *base.curvature_peaks, *base.kinks)
    near = torch.tensor([0.0, 1e-6, 1e-3, 0.1], dtype=torch.float64)
    around = [point + side * near for point in listed if abs(point) <= _FAR for side in (-1, 1)]
    spread: Tensor = torch.cat([-sizes, sizes, line, *around]).unique()
    return spread


def _check_finite(where: str, name: str, function: Function, points: Tensor) -> None:
    values = function(points)
    if not isinstance(values, Tensor) or values.shape != points.shape or values.dtype != points.dtype:
        raise ClaimError(f"{where}: {name} must map float64 tensors to float64 tensors of their shape.")
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        at = float(points[~finite].abs().min())
        raise ClaimError(f"{where}: {name} must be finite; it is not at ±{at:.6g}. Clamp its argument.")


def _check_derivative(
    where: str, name: str, function: Function, derivative: Function, points: Tensor
) -> None:
    """Compare with autograd, up to 10⁻⁷; where it jumps, with its values on both sides."""
    apart = 1e-9 * (1 + points.abs())
    sides = [_autograd(function, at) for at in (points - apart, points, points + apart)]
    slopes = [slope for slope in sides if slope is not None]
    if not slopes:
        return
    stacked, claimed = torch.stack(slopes), derivative(points)
    room = 1e-7 * (1 + stacked.abs().amax(0))
    off = torch.maximum(claimed - stacked.amax(0), stacked.amin(0) - claimed) - room
    worst = _worst(off.nan_to_num(-1.0))  # autograd of some functions is NaN far out
    if worst is not None:
        raise ClaimError(
            f"{where} is refuted: it claims {name} = {float(claimed[worst])!r} at "
            f"z = {float(points[worst])!r}; autograd gives {float(stacked[-1, worst])!r}."
        )


def _autograd(function: Function, points: Tensor) -> Tensor | None:
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        values = function(leaf)
        if not values.requires_grad:
            return None
        slopes: tuple[Tensor | None, ...] = torch.autograd.grad(values.sum(), leaf, allow_unused=True)
    return slopes[0]


def _check_secants(where: str, name: str, function: Function, ranges: _Ranges, points: Tensor) -> None:
    """Test the mean value theorem on intervals between neighbours, each bisected towards its worse half."""
    chosen = [float(points[0])]
    for point in points.tolist():
        if point - chosen[-1] > 1e-7 * (1 + abs(point)):  # far enough for a difference quotient
            chosen.append(point)
    low, high = points.new_tensor(chosen[:-1]), points.new_tensor(chosen[1:])
    off = _beyond(function, ranges, low, high)
    for _ in range(_HALVINGS):
        worst = _worst(off)
        if worst is not None:
            ends = low[worst : worst + 1], high[worst : worst + 1]
            least, most = (float(side) for side in ranges(*ends))
            mean = float((function(ends[1]) - function(ends[0])) / (ends[1] - ends[0]))
            raise ClaimError(
                f"{where} is refuted: it claims that {name} lies between {least:.9g} and {most:.9g} from "
                f"z = {float(ends[0])!r} to {float(ends[1])!r}; its mean there is {mean:.9g}."
            )
        middle = (low + high) / 2
        left, right = _beyond(function, ranges, low, middle), _beyond(function, ranges, middle, high)
        low, high = torch.where(left >= right, low, middle), torch.where(left >= right, middle, high)
        off = torch.maximum(left, right)


def _beyond(function: Function, ranges: _Ranges, low: Tensor, high: Tensor) -> Tensor:
    """Distance of the mean of a derivative to its range, less rounding."""
    ends, width = (function(low), function(high)), high - low
    secants = (ends[1] - ends[0]) / width
    room = _ROUNDING * (1 + ends[0].abs() + ends[1].abs() + low.abs() + high.abs()) / width
    least, most = ranges(low, high)
    return torch.maximum(secants - most, least - secants) - room


def _check_ranges(where: str, name: str, function: Function, ranges: _Ranges, points: Tensor) -> None:
    """Check values against the ranges of intervals around them, of half-lines and of the whole line."""
    low, middle, high = points[:-2], points[1:-1], points[2:]
    values = function(points)
    turns = (values[1:-1] - values[:-2]) * (values[2:] - values[1:-1]) <= 0
    tops = [_zoom(function, low[turns], high[turns], sign) for sign in (1, -1)]
    tried = torch.cat([middle, *tops])
    lows, highs = (torch.cat([each, each[turns], each[turns]]) for each in (low, high))
    values, far = function(tried), torch.full_like(tried, math.inf)
    for ends in ((lows, highs), (-far, highs), (lows, far), (-far, far)):
        least, most = ranges(*ends)
        off = torch.maximum(values - most, least - values) - _ROUNDING * (1 + values.abs())
        worst = _worst(off)
        if worst is not None:
            span = f"from z = {float(ends[0][worst]):.9g} to {float(ends[1][worst]):.9g}"
            claim = f"lie between {float(least[worst])!r} and {float(most[worst])!r} {span}"
            raise ClaimError(
                f"{where} is refuted: it claims that all {name} {claim}, by its ends, peaks and limits; "
                f"at z = {float(tried[worst])!r} it is {float(values[worst])!r}."
            )


def _zoom(function: Function, low: Tensor, high: Tensor, sign: int) -> Tensor:
    """The largest or smallest value between each pair of ends, by refining a grid."""
    share = torch.linspace(0, 1, 33, dtype=torch.float64)
    for _ in range(8):
        grid = low.unsqueeze(1) + (high - low).unsqueeze(1) * share
        best = (sign * function(grid.flatten()).reshape(grid.shape)).argmax(1, keepdim=True)
        low, high = (grid.gather(1, (best + step).clamp(0, 32)).squeeze(1) for step in (-1, 1))
    return (low + high) / 2


def _check_joint(where: str, base: Scalar, points: Tensor) -> None:
    slope, curvature = base.slope(points), base.curvature(points)
    if base.joint is Joint.ARC:
        off, claim = torch.maximum(curvature - (1 - slope**2), -curvature), "0 ≤ σ'' ≤ 1 − σ'²"
    elif base.joint is Joint.LOGISTIC:
        off, claim = (curvature - slope * (1 - slope)).abs(), "σ'' = σ'(1 − σ')"
        off = torch.maximum(off, torch.maximum(-slope, slope - 1))
    else:
        return
    worst = _worst(off - 1e-12)
    if worst is not None:
        values = f"σ' is {float(slope[worst])!r} and σ'' is {float(curvature[worst])!r}"
        raise ClaimError(f"{where} is refuted: it claims {claim}; at z = {float(points[worst])!r} {values}.")


def _worst(off: Tensor) -> int | None:
    """Index of the largest entry, if it is positive; NaN counts as the largest."""
    clean = off.nan_to_num(math.inf)
    return int(clean.argmax()) if len(clean) and bool(clean.max() > 0) else None


_CLOSE = 1e-7
_UP = 1 + 1e-9
_ROWS = 16
_FINAL = (
    Pointwise,
    MaxPool,
    GroupSort,
    GroupLength,
    Dense,
    Diagonal,
    Reshape,
    Product,
    Convolution,
    AxisProduct,
)


def check_kind(where: str, primitive: object) -> None:
    """Raise if a primitive is a subclass of a final class, whose methods may be inconsistent."""
    kind = type(primitive).__name__
    parent = next((each for each in _FINAL if isinstance(primitive, each)), None)
    if parent is not None and type(primitive) not in _FINAL:
        name = parent.__name__
        raise ClaimError(
            f"{where} must return {name} itself, or a direct subclass of `Affine`; got {kind}, a subclass of "
            f"{name}."
        )


def check_layer_values(where: str, module: nn.Module, claimed: Function, shape: Shape) -> None:
    """Raise unless ``claimed`` gives the outputs of the module at (batch, *shape) points of all sizes."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 6, 28, dtype=torch.float64).reshape(-1, *([1] * len(shape)))
    points = sizes * torch.randn(28, *shape, dtype=torch.float64, generator=generator)
    points = torch.cat([torch.zeros_like(points[:1]), points])
    with torch.no_grad(), eval_mode(module):
        outputs, expected = _in_double(module, points), claimed(points.clone())
    if outputs.shape != expected.shape:
        shapes = f"{tuple(expected.shape[1:])}; the layer's outputs have {tuple(outputs.shape[1:])}"
        raise ClaimError(f"{where} is refuted: it claims outputs of shape {shapes}.")
    outputs, expected = outputs.flatten(1), expected.flatten(1)
    off = torch.where(outputs == expected, 0.0, (outputs - expected).abs()).nan_to_num(math.inf)
    wrong = off.amax(1) > _CLOSE * (1 + expected.abs().amax(1))
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        place = int(off[first].argmax())
        size = float(points[first].abs().max())
        raise ClaimError(
            f"{where} is refuted: it claims the output {float(expected[first, place])!r}, number {place}, at "
            f"an input of size {size:.6g} {format_point(points[first])}; the layer computes "
            f"{float(outputs[first, place])!r}."
        )


def _in_double(module: nn.Module, points: Tensor) -> Tensor:
    """The outputs of the module in float64, without changing it."""
    weights = [*module.parameters(), *module.buffers()]
    if any(weight.is_floating_point() and weight.dtype != points.dtype for weight in weights):
        module = copy.deepcopy(module).cpu().double()
    outputs = module(points.clone())  # a copy, which it may overwrite
    if not isinstance(outputs, Tensor):
        raise ClaimError(f"{type(module).__name__} must return a tensor to have a rule; got {type(outputs)}.")
    return outputs.cpu().double()


def check_operator(where: str, operator: Affine) -> None:
    """Raise unless transpose, |A| and norms of an operator are consistent with its action."""
    generator = torch.Generator().manual_seed(1)
    claim_norm(operator)

    def random(shape: Shape) -> Tensor:
        return torch.randn(_ROWS, *shape, dtype=torch.float64, generator=generator)

    inputs, rows = random(operator.in_shape), random(operator.out_shape)
    nothing = operator.apply(torch.zeros_like(inputs[:1]))
    images, pulled = operator.apply(inputs) - nothing, operator.transpose(rows)
    sizes = operator.absolute(inputs.abs())
    both = (images * rows).flatten(1).sum(1), (inputs * pulled).flatten(1).sum(1)
    scale = (sizes * rows.abs()).flatten(1).sum(1)
    _require(where, "a transpose with ⟨Ax, r⟩ − ⟨x, Aᵀr⟩", (both[0] - both[1]).abs(), 1e-9 * scale)
    _require(where, "sizes |A||x|", images.abs(), sizes)
    _require(where, "sizes |A|ᵀ|r|", pulled.abs(), operator.absolute_transpose(rows.abs()))
    chosen = _single(operator.out_shape, generator)
    lengths = operator.transpose(chosen).flatten(1).norm(dim=1)
    _require(where, "`row_norms`", lengths, (chosen * operator.row_norms).flatten(1).sum(1))
    chosen = _single(operator.in_shape, generator)
    lengths = (operator.apply(chosen) - nothing).flatten(1).norm(dim=1)
    _require(where, "`column_norms`", lengths, (chosen * operator.column_norms).flatten(1).sum(1))
    gains = _gains(operator.absolute, operator.absolute_transpose, inputs.abs())
    _require(where, "`absolute_norm`", gains, torch.full_like(gains, operator.absolute_norm))
    gains = _gains(lambda points: operator.apply(points) - nothing, operator.transpose, inputs)
    _require(where, "`norm`", gains, torch.full_like(gains, operator.norm))


def _gains(act: Function, pull: Function, vectors: Tensor) -> Tensor:
    """(batch,) norms of images of unit vectors near the largest singular value, by power iteration."""
    for _ in range(8):
        vectors = pull(act(vectors))
        vectors = vectors / per_sample(vectors.flatten(1).norm(dim=1).clamp_min(1e-300), vectors)
    gains: Tensor = act(vectors).flatten(1).norm(dim=1)
    return gains


def check_bounds(where: str, primitive: Primitive) -> None:
    """Raise unless the outputs of a user's primitive move, and curve, at most as it claims."""
    generator, shape = torch.Generator().manual_seed(3), primitive.in_shape
    points, moves = (
        torch.randn(4 * _ROWS, *shape, dtype=torch.float64, generator=generator) for _ in range(2)
    )
    sizes = torch.logspace(-2, 2, len(points), dtype=torch.float64)
    points = points * per_sample(sizes, points)
    moves = moves / per_sample(moves.flatten(1).norm(dim=1), moves)
    ones = torch.ones(1, dtype=torch.float64)
    behind, _ = primitive.forward(ForwardBound(ones, torch.ones_like(points[:1]), 0 * ones), None)
    low, middle, high = (primitive.apply(points + step * moves) for step in (-1e-4, 0.0, 1e-4))
    slopes, curvatures = (high - low) / 2e-4, (high + low - 2 * middle) / 1e-8
    room = 1e-11 * (1 + middle.abs().amax())  # error of difference quotients in float64
    lengths, bends = (each.flatten(1).norm(dim=1) for each in (slopes, curvatures))
    most = 1 + 1e-4
    _require(
        where, "a rate of change of the outputs, `lipschitz`,", lengths - room * 1e4, behind.lipschitz * most
    )
    _require(where, "a rate of change of each output, `unit`,", slopes.abs() - room * 1e4, behind.unit * most)
    _require(where, "a second derivative, `curvature`,", bends - room * 1e8, behind.curvature * (1 + 1e-2))


def _single(shape: Shape, generator: torch.Generator) -> Tensor:
    """Return some unit vectors, (rows, *shape)."""
    count = math.prod(shape)
    places = torch.randperm(count, generator=generator)[:_ROWS].unsqueeze(1)
    blank = torch.zeros(len(places), count, dtype=torch.float64)
    return blank.scatter_(1, places, 1.0).reshape(-1, *shape)


def _require(where: str, name: str, observed: Tensor, claimed: Tensor) -> None:
    """Raise if an observed value exceeds the claimed one, beyond rounding."""
    off = (observed - claimed * _UP - 1e-12).nan_to_num(math.inf)
    if bool((off > 0).any()):
        place = int(off.flatten().argmax())
        values = float(observed.flatten()[place]), float(claimed.expand_as(observed).flatten()[place])
        raise ClaimError(
            f"{where} is refuted: it claims {name} of at most {values[1]!r}; a tested vector has "
            f"{values[0]!r}."
        )
