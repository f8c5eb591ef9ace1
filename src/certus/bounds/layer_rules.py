"""Rules for the layers of torch.nn, their registry, and the validation of user-defined rules.

A rule takes a module and the shape of one input, and returns the layer as the bounds see it: an ``Operator``
(affine), an ``Activation``, a ``MaxPool``, ``Branches`` (a sum), or another ``Stage``. A layer without a rule
is refused. ``@rule(Kind)`` registers a user's rule, which is tested and then named among the assumptions;
docs/smoothness.md has an example.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from certus.bounds import activations
from certus.bounds.activations import Activation, MaxPool, log_softmax_over
from certus.bounds.claims import (
    check_activation,
    check_kind,
    check_layer_values,
    check_max_pool,
    check_operator,
    check_reach,
)
from certus.bounds.graph import Sum
from certus.bounds.operators import AxisProduct, Convolution, Dense, Diagonal, LastAxis, Operator, Reshape
from certus.bounds.passes import Shape, Stage, Step
from certus.errors import ArgumentError, UnsupportedError, require
from certus.layers import LogCosh, Normalize, Residual, Scale, SmoothAbs


@dataclass(frozen=True, eq=False)
class Branches:
    """A sum of modules applied to the same input, by name."""

    modules: dict[str, nn.Module]


LayerRule = Callable[[Any, Shape], Stage | Branches]
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
def identity(module: nn.Module, shape: Shape) -> Stage:
    """Identity; dropout does nothing in eval mode."""
    return Reshape(shape, shape)


@rule(nn.Flatten)
def flatten(module: nn.Flatten, shape: Shape) -> Stage:
    axes = len(shape) + 1
    start, end = module.start_dim % axes, module.end_dim % axes
    require(start >= 1, "model", "keep the batch axis", f"Flatten(start_dim={module.start_dim})")
    merged = math.prod(shape[start - 1 : end])
    return Reshape(shape, (*shape[: start - 1], merged, *shape[end:]))


@rule(nn.Linear)
def linear(module: nn.Linear, shape: Shape) -> Stage:
    """A linear layer along the last axis."""
    expected = (module.in_features,)
    fits = shape[-1:] == expected
    require(fits, "inputs", f"have shape {expected} where they enter the layer {module}", shape)
    weight, bias = double(module.weight), None if module.bias is None else double(module.bias)
    return Dense(weight, bias) if len(shape) == 1 else LastAxis(weight, bias, shape)


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, shape: Shape) -> Stage:
    if module.padding_mode != "zeros":
        raise UnsupportedError(f"padding_mode={module.padding_mode!r}; only zero padding has a rule")
    axes = module.weight.dim() - 2
    fits = len(shape) == axes + 1 and shape[0] == module.in_channels
    require(
        fits, "inputs", f"have {module.in_channels} channels and {axes} axes where they enter {module}", shape
    )
    if module.padding == "same":  # torch pads the end by one more if the total is odd
        total = [module.dilation[i] * (module.kernel_size[i] - 1) for i in range(axes)]
        padding = tuple((amount // 2, amount - amount // 2) for amount in total)
    elif module.padding == "valid":
        padding = ((0, 0),) * axes
    else:
        padding = tuple((int(amount), int(amount)) for amount in module.padding)
    bias = None if module.bias is None else double(module.bias).reshape(-1, *([1] * axes))
    return Convolution(
        *(double(module.weight), bias, shape),
        stride=tuple(module.stride),
        padding=padding,
        dilation=tuple(module.dilation),
        groups=module.groups,
    )


@rule(nn.AvgPool1d, nn.AvgPool2d)
def average_pool(module: nn.AvgPool1d | nn.AvgPool2d, shape: Shape) -> Stage:
    if getattr(module, "divisor_override", None) is not None:
        raise UnsupportedError("divisor_override, which has no rule; use Scale and a plain average")
    axes = len(shape) - 1

    def pool(axis: int) -> Tensor:
        options = [_on_axis(option, axis) for option in (module.kernel_size, module.stride, module.padding)]
        basis = torch.eye(shape[1 + axis], dtype=torch.float64).unsqueeze(1)
        pooled = functional.avg_pool1d(basis, *options, module.ceil_mode, module.count_include_pad)  # type: ignore[call-arg, arg-type]  # of unknown number
        return pooled.squeeze(1).T.contiguous()

    return AxisProduct(tuple(pool(axis) for axis in range(axes)), shape)


@rule(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)
def adaptive_average_pool(module: nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d, shape: Shape) -> Stage:
    def pool(axis: int) -> Tensor:
        size = shape[1 + axis]
        sizes: Any = module.output_size
        wanted = sizes if isinstance(sizes, int) else sizes[axis]
        basis = torch.eye(size, dtype=torch.float64).unsqueeze(1)
        return functional.adaptive_avg_pool1d(basis, wanted or size).squeeze(1).T.contiguous()

    return AxisProduct(tuple(pool(axis) for axis in range(len(shape) - 1)), shape)


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm(module: nn.BatchNorm2d, shape: Shape) -> Stage:
    """(x − mean)·w/√(var + ε) + b with the running statistics, whatever mode the module is in."""
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedError("track_running_stats=False, so that samples of a batch depend on each other")
    factors = 1 / (double(module.running_var) + module.eps).sqrt()
    if module.weight is not None:
        factors = factors * double(module.weight)
    moved = double(module.running_mean) * factors
    offset = torch.zeros_like(moved) if module.bias is None else double(module.bias)
    return _channelwise(factors, offset - moved, offset.abs() + moved.abs(), shape)


@rule(Normalize)
def normalize(module: Normalize, shape: Shape) -> Stage:
    factors = 1 / double(module.std)
    moved = double(module.mean) * factors
    return _channelwise(factors, -moved, moved.abs(), shape)


@rule(Scale)
def scale(module: Scale, shape: Shape) -> Stage:
    return Diagonal(double(module.factor), None, shape)


@rule(nn.MaxPool1d, nn.MaxPool2d)
def max_pool(module: nn.MaxPool1d | nn.MaxPool2d, shape: Shape) -> Stage:
    if module.return_indices:
        raise UnsupportedError("return_indices=True returns two tensors")
    function = functional.max_pool1d if len(shape) == 2 else functional.max_pool2d
    settings = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)

    def maximum(points: Tensor) -> Tensor:
        return function(points, *settings)

    def members(axis: int) -> Tensor:
        """(out, in) which positions of one axis belong to which window."""
        options = [_on_axis(option, axis) for option in settings[:4]]
        basis = torch.eye(shape[1 + axis], dtype=torch.float64).unsqueeze(1)
        kernel, stride, padding, dilation = options
        pooled = functional.max_pool1d(basis, kernel, stride, padding, dilation, ceil_mode=module.ceil_mode)
        return (pooled.squeeze(1).T > 0).double()

    sums = AxisProduct(tuple(members(axis) for axis in range(len(shape) - 1)), shape)
    overlap = math.prod(int(matrix.sum(0).max()) for matrix in sums.weights)
    return MaxPool(shape, sums.out_shape, maximum, sums.transpose, overlap)


@rule(nn.LogSoftmax)
def log_softmax(module: nn.LogSoftmax, shape: Shape) -> Stage:
    return log_softmax_over(module.dim, shape)


@rule(Residual)
def residual(module: Residual, shape: Shape) -> Branches:
    return Branches({"branch": module.branch, "shortcut": module.shortcut})


def _channelwise(factors: Tensor, bias: Tensor, size: Tensor, shape: Shape) -> Diagonal:
    rule = f"have {len(factors)} channels where they enter the layer"
    require(len(factors) == shape[0], "inputs", rule, shape)
    form = (-1, *([1] * (len(shape) - 1)))
    operator = Diagonal(factors.reshape(form), bias.reshape(form), shape)
    operator.bias_size = size.reshape(form)
    return operator


def _on_axis(option: Any, axis: int) -> int:
    """The value of a pooling option along one axis."""
    return int(option[axis if len(option) > 1 else 0] if isinstance(option, tuple | list) else option)


def _always(activation: Activation) -> LayerRule:
    return lambda module, shape: activation


PLAIN_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Sigmoid: activations.SIGMOID,
    nn.Tanh: activations.TANH,
    nn.SiLU: activations.SILU,
    nn.Mish: activations.MISH,
    nn.ReLU: activations.piecewise_linear("ReLU", 0.0, 1.0, torch.relu),
    nn.ReLU6: activations.clamp("ReLU6", 0.0, 6.0),
    nn.SELU: activations.kinked_elu("SELU", 1.6732632423543772, 1.0507009873554805),
}
"""Activations without settings."""

for _kind, _activation in PLAIN_ACTIVATIONS.items():
    RULES[_kind] = _always(_activation)


def _sharpened(activation: Activation, sharpness: float | Tensor) -> Activation:
    values = torch.as_tensor(sharpness, dtype=torch.float64)
    if not bool((torch.isfinite(values) & (values > 0)).all()):
        raise UnsupportedError(f"a sharpness of {sharpness}; it must be positive and finite")
    return replace(activation, sharpness=sharpness)


@rule(nn.Softplus)
def softplus(module: nn.Softplus, shape: Shape) -> Stage:
    """The true softplus. torch replaces it by z where bz exceeds the threshold t, with a jump of ln(1 +
    e⁻ᵗ)/b,
    which is 2·10⁻⁹/b for the default t = 20.
    """
    if not module.threshold >= 20:
        raise UnsupportedError(
            f"threshold={module.threshold}, at which softplus jumps; it must be at least 20"
        )
    jumping = replace(activations.SOFTPLUS, jump=math.exp(-float(module.threshold)))
    return _sharpened(jumping, float(module.beta))


@rule(nn.ELU)
def elu(module: nn.ELU, shape: Shape) -> Stage:
    return (
        activations.ELU
        if module.alpha == 1
        else activations.kinked_elu(f"ELU({module.alpha:g})", module.alpha)
    )


@rule(nn.CELU)
def celu(module: nn.CELU, shape: Shape) -> Stage:
    if module.alpha <= 0:
        raise UnsupportedError(f"alpha={module.alpha}; it must be positive")
    return _sharpened(activations.ELU, 1 / module.alpha)


@rule(nn.GELU)
def gelu(module: nn.GELU, shape: Shape) -> Stage:
    return activations.GELU if module.approximate == "none" else activations.GELU_TANH


@rule(nn.LeakyReLU)
def leaky_relu(module: nn.LeakyReLU, shape: Shape) -> Stage:
    slope = module.negative_slope
    return activations.piecewise_linear("LeakyReLU", slope, 1.0, lambda z: functional.leaky_relu(z, slope))


@rule(nn.Hardtanh)
def hardtanh(module: nn.Hardtanh, shape: Shape) -> Stage:
    return activations.clamp("Hardtanh", module.min_val, module.max_val)


@rule(LogCosh)
def log_cosh(module: LogCosh, shape: Shape) -> Stage:
    return _sharpened(activations.LOG_COSH, _per_unit(module.sharpness, shape))


@rule(SmoothAbs)
def smooth_abs(module: SmoothAbs, shape: Shape) -> Stage:
    return _sharpened(activations.SMOOTH_ABS, _per_unit(module.sharpness, shape))


def _per_unit(sharpness: Tensor, shape: Shape) -> float | Tensor:
    values = double(sharpness)
    if values.dim() > len(shape) or torch.broadcast_shapes(values.shape, shape) != torch.Size(shape):
        raise ArgumentError(f"`sharpness` must fit units of shape {shape}; got shape {tuple(values.shape)}.")
    return float(values) if values.dim() == 0 else values


_SHARING_MEMORY = (nn.Identity, nn.Flatten, nn.modules.dropout._DropoutNd)
"""Layers whose outputs may share memory with their inputs."""

_BUILTIN = dict(RULES)
"""The rules of certus itself, before a user registers any."""


def find_rule(module: nn.Module) -> LayerRule | None:
    """The rule of the module's class, or of the parent class whose ``forward`` it uses unchanged."""
    kind = _kind_of(module)
    return None if kind is None else RULES[kind]


def has_builtin_rule(module: nn.Module) -> bool:
    """Whether the rule of a module is the one of certus for its class."""
    kind = _kind_of(module)
    return kind is not None and _BUILTIN.get(kind) is RULES[kind]


def _kind_of(module: nn.Module) -> type[nn.Module] | None:
    for parent in type(module).__mro__:
        if parent in RULES and type(module).forward is parent.forward:
            return parent
    return None


def is_sequential(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward


def children(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Child modules, once for every use: ``named_children`` would list a shared one only once."""
    return [(name, child) for name, child in model._modules.items() if child is not None]


def is_graph_leaf(module: nn.Module) -> bool:
    """Whether a module becomes a single call in an exported graph, by its rule.

    Branches are traced. So are torch layers that overwrite their inputs or share memory with them, which a
    graph
    represents correctly.
    """
    if find_rule(module) is None or isinstance(module, Residual):
        return False
    shares = isinstance(module, _SHARING_MEMORY) or getattr(module, "inplace", False)
    return not (has_builtin_rule(module) and shares)


def validated_step(module: nn.Module, step: Step, name: str) -> Step:
    """Test a step given by a user-defined rule; name the rule among the assumptions."""
    where = name[0].upper() + name[1:]
    _validate_stage(where, step)
    check_layer_values(where, module, step.stage.apply, step.in_shape)
    return replace(step, assumptions=(name,))


def _validate_stage(where: str, step: Step) -> None:
    check_kind(where, step.stage)
    match step.stage:
        case Activation():
            check_activation(where, step.stage)
        case Operator():
            check_operator(where, step.stage)
        case MaxPool():
            check_max_pool(where, step.stage)
        case Sum():
            for part in step.stage.inner_steps:
                _validate_stage(where, part)
        case _:
            check_reach(where, step.stage, step.in_shape)
