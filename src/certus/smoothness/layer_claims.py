"""Rules of the user's, tried against the layers that they speak for: values, and the norms of operators.

A rule says what a layer computes, as an ``Operator``, an ``Activation``, ``Windows``, ``Branches`` or a
``Stage`` of its own. It is run beside the layer at points from 10⁻³ to 10⁶ in size, in float64. Of an
operator, whoever wrote its class, the transpose and every norm that a bound uses are tried too; of a kind of
stage that certus does not know, how far it says that its outputs move. What passes is still *assumed*.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from certus.batches import per_sample, shown
from certus.errors import ClaimError
from certus.modes import at_rest
from certus.smoothness.activation import Activation, Function
from certus.smoothness.chain import Chain
from certus.smoothness.convolution import AxisProduct, Convolution
from certus.smoothness.operators import Dense, Diagonal, Operator, Reshape
from certus.smoothness.passes import Reach
from certus.smoothness.stage import Shape, Stage
from certus.smoothness.sums import Sum
from certus.smoothness.windows import Windows

_CLOSE = 1e-7
_UP = 1 + 1e-9
_ROWS = 16


_FINAL = (Activation, Windows, Sum, Dense, Diagonal, Reshape, Chain, Convolution, AxisProduct)


def check_kind(where: str, stage: object) -> None:
    """Raise if a stage is of a subclass that may say one thing here and another there."""
    kind = type(stage)
    if isinstance(stage, _FINAL) and kind not in _FINAL:
        parent = next(each.__name__ for each in _FINAL if isinstance(stage, each))
        raise ClaimError(
            f"{where} returns {kind.__name__}, a subclass of {parent}: it must return {parent} itself, or an "
            "operator made from `Operator`."
        )


def check_layer_values(where: str, module: nn.Module, claimed: Function, shape: Shape) -> None:
    """Raise unless ``claimed`` computes what the module does at (batch, *shape) points, near and far."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(-3, 6, 28, dtype=torch.float64).reshape(-1, *([1] * len(shape)))
    points = sizes * torch.randn(28, *shape, dtype=torch.float64, generator=generator)
    points = torch.cat([torch.zeros_like(points[:1]), points])
    with torch.no_grad(), at_rest(module):
        found, expected = _in_double(module, points), claimed(points.clone())
    if found.shape != expected.shape:
        shapes = f"{tuple(expected.shape[1:])}; the layer's outputs have {tuple(found.shape[1:])}"
        raise ClaimError(f"{where} is refuted: it claims outputs of shape {shapes}.")
    room = _CLOSE * (1 + expected.flatten(1).abs().amax(1))
    apart = (found - expected).flatten(1).abs()
    off = torch.where(found.flatten(1) == expected.flatten(1), 0.0, apart).nan_to_num(math.inf)
    wrong = off.amax(1) > room
    if bool(wrong.any()):
        first = int(wrong.nonzero()[0])
        place = int(off[first].argmax())
        size = float(points[first].abs().max())
        raise ClaimError(
            f"{where} is refuted: it claims the output {float(expected[first].flatten()[place])!r}, number "
            f"{place}, at an input of size {size:.6g} {shown(points[first])}; the layer computes "
            f"{float(found[first].flatten()[place])!r}."
        )


def _in_double(module: nn.Module, points: Tensor) -> Tensor:
    """The module's outputs in float64, without changing it."""
    weights = [*module.parameters(), *module.buffers()]
    if any(weight.is_floating_point() and weight.dtype != points.dtype for weight in weights):
        module = copy.deepcopy(module).cpu().double()
    outputs = module(points.clone())  # which it may overwrite
    if not isinstance(outputs, Tensor):
        raise ClaimError(f"{type(module).__name__} must return a tensor to have a rule; got {type(outputs)}.")
    return outputs.cpu().double()


def check_operator(where: str, operator: Operator) -> None:
    """Raise unless transpose, |A| and norms of an operator agree with how it acts."""
    generator = torch.Generator().manual_seed(1)

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
    """(batch,) what a map makes of unit vectors near its largest singular value, by a power iteration."""
    for _ in range(8):
        vectors = pull(act(vectors))
        vectors = vectors / per_sample(vectors.flatten(1).norm(dim=1).clamp_min(1e-300), vectors)
    gains: Tensor = act(vectors).flatten(1).norm(dim=1)
    return gains


def check_windows(where: str, windows: Windows) -> None:
    """Raise unless windows spread what their maximum picks, and no entry is in more of them than claimed."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(_ROWS, *windows.in_shape, dtype=torch.float64, generator=generator)
    rows = torch.rand(_ROWS, *windows.out_shape, dtype=torch.float64, generator=generator)
    with torch.enable_grad():
        leaf = inputs.requires_grad_()
        (pulled,) = torch.autograd.grad((windows.maximum(leaf) * rows).sum(), leaf)
    _require(where, "`spread`, the transpose of the windows' sums,", pulled.abs(), windows.spread(rows))
    shared = windows.spread(torch.ones_like(rows[:1]))
    _require(where, "`overlap`", shared, torch.full_like(shared, float(windows.overlap)))


def check_reach(where: str, stage: Stage, shape: Shape) -> None:
    """Raise unless a stage of another kind moves its outputs, and bends, no more than it says."""
    generator = torch.Generator().manual_seed(3)
    points, moves = (
        torch.randn(4 * _ROWS, *shape, dtype=torch.float64, generator=generator) for _ in range(2)
    )
    sizes = torch.logspace(-2, 2, len(points), dtype=torch.float64)
    points = points * per_sample(sizes, points)
    moves = moves / per_sample(moves.flatten(1).norm(dim=1), moves)
    ones = torch.ones(1, dtype=torch.float64)
    behind, _ = stage.reach(Reach(ones, torch.ones_like(points[:1]), 0 * ones), None, stage)
    low, middle, high = (stage.apply(points + step * moves) for step in (-1e-4, 0.0, 1e-4))
    slopes, bends = (high - low) / 2e-4, (high + low - 2 * middle) / 1e-8
    # What quotients of differences in float64 may be off by.
    room = 1e-11 * (1 + middle.abs().amax())
    lengths = slopes.flatten(1).norm(dim=1) - room * 1e4
    _require(where, "outputs that move by a `length`", lengths, behind.length * (1 + 1e-4))
    _require(where, "outputs that move by a `unit`", slopes.abs() - room * 1e4, behind.unit * (1 + 1e-4))
    bent = bends.flatten(1).norm(dim=1) - room * 1e8
    _require(where, "a second derivative, `bend`,", bent, behind.bend * (1 + 1e-2))


def _single(shape: Shape, generator: torch.Generator) -> Tensor:
    """Some of the unit vectors, (rows, *shape)."""
    count = math.prod(shape)
    places = torch.randperm(count, generator=generator)[:_ROWS].unsqueeze(1)
    blank = torch.zeros(len(places), count, dtype=torch.float64)
    return blank.scatter_(1, places, 1.0).reshape(-1, *shape)


def _require(where: str, name: str, found: Tensor, claimed: Tensor) -> None:
    """Raise where something found exceeds what is claimed, beyond rounding."""
    off = (found - claimed * _UP - 1e-12).nan_to_num(math.inf)
    if bool((off > 0).any()):
        place = int(off.flatten().argmax())
        values = float(found.flatten()[place]), float(claimed.expand_as(found).flatten()[place])
        raise ClaimError(
            f"{where} is refuted: it claims {name} of at most {values[1]!r}; a vector that was tried "
            f"has {values[0]!r}."
        )
