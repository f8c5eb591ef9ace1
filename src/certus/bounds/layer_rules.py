"""Rules for the layers of torch.nn, their registry, and the validation of user-defined rules.

A rule takes a module and the shape of one input, and returns the layer as a primitive of the kernel: an
``Affine`` operator, a ``Pointwise`` activation, a ``MaxPool``, another ``Primitive``, or ``Branches`` (a sum
of modules). A layer without a rule is refused. ``@rule(Kind)`` registers a user's rule, which is tested and
then named among the assumptions; docs/smoothness.md has an example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from certus.bounds.claims import (
    check_activation,
    check_bounds,
    check_kind,
    check_layer_values,
    check_operator,
)
from certus.errors import ArgumentError, UnsupportedError, require
from certus.kernel.graph import Graph
from certus.kernel.groups import Grouped, GroupLength, GroupSort
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, AxisProduct, Convolution, Dense, Diagonal, Gather, Reshape
from certus.kernel.passes import Primitive, Shape
from certus.kernel.pointwise import Pointwise, scalar
from certus.layers import (
    Absolute,
    ChannelsLast,
    LengthPool,
    LogCosh,
    MaxMin,
    Normalize,
    Offset,
    Orthogonal,
    Residual,
    Scale,
    Shift,
    SmoothAbs,
    UnitRows,
    Unshuffle,
)


@dataclass(frozen=True, eq=False)
class Branches:
    """A sum of modules applied to the same input, by name."""

    modules: dict[str, nn.Module]

    def __post_init__(self) -> None:
        require(bool(self.modules), "modules", "hold at least one module", self.modules)


LayerRule = Callable[[Any, Shape], Primitive | Branches]
RULES: dict[type[nn.Module], LayerRule] = {}
_Function = TypeVar("_Function", bound=LayerRule)


def rule(*kinds: type[nn.Module]) -> Callable[[_Function], _Function]:
    """Register a function as the rule for these kinds of layers."""

    def register(function: _Function) -> _Function:
        RULES.update(dict.fromkeys(kinds, function))
        return function

    return register


def double(tensor: Tensor) -> Tensor:
    """Return weights in float64 on the CPU, checked to be finite."""
    require(tensor.is_floating_point(), "model", "have real weights, in floating point", tensor.dtype)
    weights = tensor.detach().cpu().double().clone()  # independent of later changes
    require(bool(torch.isfinite(weights).all()), "model", "have finite weights", "NaN or infinity")
    return weights


@rule(nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
def identity(module: nn.Module, shape: Shape) -> Primitive:
    """Identity; dropout does nothing in eval mode."""
    return Reshape(shape, shape)


@rule(nn.Flatten)
def flatten(module: nn.Flatten, shape: Shape) -> Primitive:
    axes = len(shape) + 1
    start, end = module.start_dim % axes, module.end_dim % axes
    require(start >= 1, "model", "keep the batch axis", f"Flatten(start_dim={module.start_dim})")
    merged = math.prod(shape[start - 1 : end])
    return Reshape(shape, (*shape[: start - 1], merged, *shape[end:]))


@rule(nn.Linear)
def linear(module: nn.Linear, shape: Shape) -> Primitive:
    return _along_last(module, module.weight, module.bias, shape)


@rule(Orthogonal)
def orthogonal(module: Orthogonal, shape: Shape) -> Primitive:
    return _along_last(module, module.weight, module.bias, shape)


@rule(UnitRows)
def unit_rows(module: UnitRows, shape: Shape) -> Primitive:
    return _along_last(module, module.rows, module.bias, shape)


def _along_last(module: nn.Module, matrix: Tensor, offset: Tensor | None, shape: Shape) -> Primitive:
    """A linear layer along the last axis."""
    rule = f"have shape {(matrix.shape[1],)} where they enter the layer {module}"
    require(shape[-1:] == (matrix.shape[1],), "inputs", rule, shape)
    weight, bias = double(matrix), None if offset is None else double(offset)
    return Dense(weight, bias) if len(shape) == 1 else AxisProduct((weight,), bias, shape)


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, shape: Shape) -> Primitive:
    if module.padding_mode != "zeros":
        raise UnsupportedError(f"padding_mode={module.padding_mode!r}; only zero padding has a rule")
    axes = module.weight.dim() - 2
    rule = f"have {module.in_channels} channels and {axes} axes where they enter {module}"
    require(len(shape) == axes + 1 and shape[0] == module.in_channels, "inputs", rule, shape)
    dilation = per_axis(module.dilation, axes)
    if module.padding == "same":  # torch pads the end by one more if the total is odd
        total = [step * (size - 1) for step, size in zip(dilation, module.kernel_size, strict=True)]
        padding = tuple((amount // 2, amount - amount // 2) for amount in total)
    else:
        amounts = per_axis(0 if module.padding == "valid" else module.padding, axes)
        padding = tuple((amount, amount) for amount in amounts)
    bias = None if module.bias is None else double(module.bias).reshape(-1, *([1] * axes))
    return Convolution(
        *(double(module.weight), bias, shape),
        stride=per_axis(module.stride, axes),
        padding=padding,
        dilation=dilation,
        groups=module.groups,
    )


@rule(nn.AvgPool1d, nn.AvgPool2d)
def average_pool(module: nn.AvgPool1d | nn.AvgPool2d, shape: Shape) -> Primitive:
    if getattr(module, "divisor_override", None) is not None:
        raise UnsupportedError("divisor_override, which has no rule; use Scale and a plain average")

    def pool(basis: Tensor, kernel: int, stride: int, padding: int) -> Tensor:
        options = module.ceil_mode, module.count_include_pad
        return functional.avg_pool1d(basis, kernel, stride, padding, *options)

    settings = module.kernel_size, module.stride or module.kernel_size, module.padding
    return AxisProduct(_along_axes(pool, shape, settings), None, shape)


@rule(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
def adaptive_average_pool(module: nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d, shape: Shape) -> Primitive:
    sizes: Any = module.output_size
    wanted = [sizes] * len(shape[1:]) if isinstance(sizes, int) else sizes
    sizes = tuple(size or full for size, full in zip(wanted, shape[1:], strict=False))
    return AxisProduct(_along_axes(functional.adaptive_avg_pool1d, shape, (sizes,)), None, shape)


def _along_axes(pool: Callable[..., Tensor], shape: Shape, settings: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """(outputs, inputs) matrices of a pooling along each axis: its results for unit vectors."""
    listed = zip(*(per_axis(setting, len(shape) - 1) for setting in settings), strict=False)
    bases = [torch.eye(size, dtype=torch.float64).unsqueeze(1) for size in shape[1:]]
    pooled = [pool(basis, *options) for basis, options in zip(bases, listed, strict=False)]
    return tuple(matrix.squeeze(1).T.contiguous() for matrix in pooled)


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm(module: nn.BatchNorm2d, shape: Shape) -> Primitive:
    """(x − mean)·w/√(var + ε) + b with the running statistics, whatever mode the module is in."""
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedError("track_running_stats=False, so that samples of a batch depend on each other")
    factors = 1 / (double(module.running_var) + module.eps).sqrt()
    if module.weight is not None:
        factors = factors * double(module.weight)
    moved = double(module.running_mean) * factors
    offset = torch.zeros_like(moved) if module.bias is None else double(module.bias)
    return _channelwise(factors, offset, moved, shape)


@rule(Normalize)
def normalize(module: Normalize, shape: Shape) -> Primitive:
    factors = 1 / double(module.std)
    moved = double(module.mean) * factors
    return _channelwise(factors, torch.zeros_like(moved), moved, shape)


def _channelwise(factors: Tensor, offset: Tensor, moved: Tensor, shape: Shape) -> Diagonal:
    """factors·x + offset − moved for each channel."""
    rule = f"have {len(factors)} channels where they enter the layer"
    require(len(factors) == shape[0], "inputs", rule, shape)
    form = (-1, *([1] * (len(shape) - 1)))
    operator = Diagonal(factors.reshape(form), (offset - moved).reshape(form), shape)
    operator.bias_size = (offset.abs() + moved.abs()).reshape(form)
    return operator


@rule(Scale)
def scale(module: Scale, shape: Shape) -> Primitive:
    return Diagonal(double(module.factor), None, shape)


@rule(nn.MaxPool1d, nn.MaxPool2d)
def max_pool(module: nn.MaxPool1d | nn.MaxPool2d, shape: Shape) -> Primitive:
    if module.return_indices:
        raise UnsupportedError("return_indices=True returns two tensors")

    def pool(basis: Tensor, kernel: int, stride: int, padding: int, dilation: int) -> Tensor:
        return functional.max_pool1d(basis, kernel, stride, padding, dilation, module.ceil_mode)

    def windows(matrix: Tensor) -> Tensor:
        """(outputs, entries) positions of one axis; −1 for none."""
        members = matrix > 0
        count = int(members.sum(1).max())
        places = torch.where(members, torch.arange(matrix.shape[1]), -1)
        return places.sort(1, descending=True).values[:, :count]

    settings = module.kernel_size, module.stride or module.kernel_size, module.padding, module.dilation
    return MaxPool(tuple(windows(matrix) for matrix in _along_axes(pool, shape, settings)), shape)


@rule(Offset)
def offset(module: Offset, shape: Shape) -> Primitive:
    return Diagonal(torch.ones(1, dtype=torch.float64), double(module.bias).expand(shape).contiguous(), shape)


def numbered(shape: Shape) -> Tensor:
    """(1, *shape) numbers 0, 1, 2, …, which reveal what a function does to places."""
    return torch.arange(math.prod(shape), dtype=torch.float64).reshape(1, *shape)


@rule(ChannelsLast, Unshuffle, Shift, nn.PixelUnshuffle, nn.PixelShuffle)
def rearrangement(module: nn.Module, shape: Shape) -> Primitive:
    """Read a layer whose outputs are a permutation or a selection of its inputs."""
    return in_order(module(numbered(shape))[0].long(), shape)


def in_order(index: Tensor, in_shape: Shape) -> Affine:
    """A gather by its index, or a reshape if it keeps the order."""
    plain = torch.equal(index.flatten(), torch.arange(math.prod(in_shape)))
    return Reshape(in_shape, tuple(index.shape)) if plain else Gather(index, in_shape)


@rule(MaxMin)
def max_min(module: MaxMin, shape: Shape) -> Primitive:
    require(shape[-1] % 2 == 0, "inputs", "have an even last axis where they enter MaxMin", shape)
    places = numbered(shape)[0].long().unflatten(-1, (2, -1))
    return GroupSort(places.movedim(-2, -1).flatten(0, -2), shape)


@rule(LengthPool)
def length_pool(module: LengthPool, shape: Shape) -> Primitive:
    require(len(shape) == 3, "inputs", "be (height, width, channels) where they enter LengthPool", shape)
    return GroupLength(numbered(shape)[0].long().flatten(0, 1).T.contiguous(), shape, shape[-1:])


def is_smooth(primitive: Primitive) -> bool:
    """Whether the derivative of a primitive is continuous; of a user's own, unless ``smooth`` is False."""
    match primitive:
        case Pointwise():
            return not primitive.scalar.kinks
        case MaxPool() | Grouped():
            return False
    return bool(getattr(primitive, "smooth", True))


class LogSoftmax(Primitive):
    """Log-softmax as the last layer, F ↦ F − log Σ exp F over the only axis of a sample.

    It subtracts one number from all outputs, and classification losses depend on differences of outputs only.
    So the loss is the same without it, and the graph omits it. Anywhere else it has no rule.
    """

    def __init__(self, axis: int | None, shape: Shape) -> None:
        if len(shape) != 1 or axis not in (1, -1):
            given = f"dim={axis} for inputs of shape {shape}"
            raise UnsupportedError(f"{given}; it must be the axis of the classes")
        self.in_shape = self.out_shape = shape

    def apply(self, points: Tensor) -> Tensor:
        return torch.log_softmax(points, 1)

    def _refuse(self, *args: Any, **options: Any) -> NoReturn:
        refuse_log_softmax()

    forward = backward = rounded = backward_error = amplify = _refuse


def refuse_log_softmax() -> NoReturn:
    """Raise ``UnsupportedError``: no bound passes through a log-softmax."""
    raise UnsupportedError(
        "log_softmax has a rule as the last layer only, before CrossEntropy or SmoothMargin."
    )


@rule(nn.LogSoftmax)
def log_softmax(module: nn.LogSoftmax, shape: Shape) -> Primitive:
    return LogSoftmax(module.dim, shape)


@rule(Residual)
def residual(module: Residual, shape: Shape) -> Branches:
    return Branches({"branch": module.branch, "shortcut": module.shortcut})


def per_axis(setting: Any, axes: int) -> tuple[int, ...]:
    """A setting for every axis; torch accepts one number for all."""
    listed = [int(value) for value in setting] if isinstance(setting, list | tuple) else [int(setting)]
    return tuple(listed * axes if len(listed) == 1 else listed)


def _activation(name: str, *settings: str | float) -> LayerRule:
    """The rule of an activation of the kernel; settings are numbers, or names of the module's."""

    def activation(module: nn.Module, shape: Shape) -> Primitive:
        values = [float(getattr(module, each)) if isinstance(each, str) else each for each in settings]
        return Pointwise(scalar(name, *values), shape)

    return activation


RULES |= {
    nn.Sigmoid: _activation("sigmoid"),
    nn.Tanh: _activation("tanh"),
    nn.SiLU: _activation("silu"),
    nn.Mish: _activation("mish"),
    nn.ReLU: _activation("piecewise_linear", 0.0, 1.0),
    Absolute: _activation("piecewise_linear", -1.0, 1.0),
    nn.LeakyReLU: _activation("piecewise_linear", "negative_slope", 1.0),
    nn.ReLU6: _activation("clamp", 0.0, 6.0),
    nn.Hardtanh: _activation("clamp", "min_val", "max_val"),
    nn.SELU: _activation("kinked_elu", 1.6732632423543772, 1.0507009873554805),
}


def _sharpened(name: str, sharpness: float | Tensor, shape: Shape, *settings: float) -> Pointwise:
    values = torch.as_tensor(sharpness, dtype=torch.float64)
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise UnsupportedError(f"a sharpness of {sharpness}; it must be positive and finite")
    return Pointwise(scalar(name, *settings), shape, sharpness)


@rule(nn.Softplus)
def softplus(module: nn.Softplus, shape: Shape) -> Primitive:
    """The true softplus. torch replaces it by z where bz exceeds the threshold t, with a jump of
    ln(1 + e⁻ᵗ)/b, which is 2·10⁻⁹/b for the default t = 20.
    """
    if not module.threshold >= 20:
        jump = f"threshold={module.threshold}, at which softplus jumps"
        raise UnsupportedError(f"{jump}; it must be at least 20")
    return _sharpened("softplus_threshold", float(module.beta), shape, float(module.threshold))


@rule(nn.ELU)
def elu(module: nn.ELU, shape: Shape) -> Primitive:
    smooth = module.alpha == 1
    return Pointwise(scalar("elu") if smooth else scalar("kinked_elu", float(module.alpha), 1.0), shape)


@rule(nn.CELU)
def celu(module: nn.CELU, shape: Shape) -> Primitive:
    if module.alpha <= 0:
        raise UnsupportedError(f"alpha={module.alpha}; it must be positive")
    return _sharpened("elu", 1 / module.alpha, shape)


@rule(nn.GELU)
def gelu(module: nn.GELU, shape: Shape) -> Primitive:
    return Pointwise(scalar("gelu" if module.approximate == "none" else "gelu_tanh"), shape)


def _with_sharpness(name: str, module: LogCosh | SmoothAbs, shape: Shape) -> Primitive:
    values = double(module.sharpness)
    if values.dim() > len(shape) or torch.broadcast_shapes(values.shape, shape) != torch.Size(shape):
        raise ArgumentError(f"`sharpness` must fit units of shape {shape}; got shape {tuple(values.shape)}.")
    return _sharpened(name, float(values) if values.dim() == 0 else values, shape)


RULES |= {LogCosh: partial(_with_sharpness, "log_cosh"), SmoothAbs: partial(_with_sharpness, "smooth_abs")}

_SHARING_MEMORY = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)
"""Layers whose outputs may share memory with their inputs."""

BUILTIN_RULES = dict(RULES)
"""The rules of certus itself."""


def _kind_of(module: nn.Module) -> type[nn.Module] | None:
    """The module's class, or the parent class whose ``forward`` it uses unchanged, if that has a rule."""
    kinds = [kind for kind in type(module).__mro__ if kind in RULES and type(module).forward is kind.forward]
    return kinds[0] if kinds else None


def find_rule(module: nn.Module) -> LayerRule | None:
    kind = _kind_of(module)
    return None if kind is None else RULES[kind]


def has_builtin_rule(module: nn.Module) -> bool:
    kind = _kind_of(module)
    return kind is not None and BUILTIN_RULES.get(kind) is RULES[kind]


def is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Child modules, once for every use: ``named_children`` would list a shared one only once."""
    return [(name, child) for name, child in model._modules.items() if child is not None]


def is_graph_leaf(module: nn.Module) -> bool:
    """Whether a module becomes a single call in an exported graph, by its rule.

    Branches are traced. So are torch layers that overwrite their inputs or share memory with them, which a
    graph represents correctly.
    """
    if find_rule(module) is None or isinstance(module, Residual):
        return False
    shares = isinstance(module, _SHARING_MEMORY) or getattr(module, "inplace", False)
    return not (has_builtin_rule(module) and shares)


def check_user_rule(rule: str, module: nn.Module, graph: Graph) -> None:
    """Raise ``ClaimError`` if points refute a user's rule: its primitives, or their outputs."""
    where = rule[0].upper() + rule[1:]
    for node in graph.nodes[1:]:
        check_kind(where, node.primitive)
        match node.primitive:
            case Pointwise():
                check_activation(where, node.primitive)
            case Affine():
                check_operator(where, node.primitive)
            case Primitive() if not isinstance(node.primitive, MaxPool | Grouped | LogSoftmax):
                check_bounds(where, node.primitive)
    check_layer_values(where, module, graph.apply, graph.shape)
