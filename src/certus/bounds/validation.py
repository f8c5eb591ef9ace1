"""Validation of models: layers that prevent a proof of smoothness, and their replacements."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import nn

from certus._eval_mode import eval_mode, unwrapped
from certus.bounds.export import has_hooks, is_modified
from certus.bounds.graph_reader import inspect_graph
from certus.bounds.layer_rules import children, find_rule, is_graph_leaf, is_sequential
from certus.bounds.network import infer_shape, read_layers
from certus.bounds.passes import Shape, Stage, Step
from certus.errors import ArgumentError, UnsupportedError, require
from certus.layers import Residual

_JUMPS = "it is not smooth: its derivative jumps"
_ANY = "a smooth activation, or average pooling"
_FUNCTIONS = {
    "relu": "torch.nn.functional.elu or softplus",
    "relu6": "torch.nn.functional.elu or softplus",
    "leaky_relu": "torch.nn.functional.elu or softplus",
    "selu": "torch.nn.functional.elu",
    "hardtanh": "torch.tanh",
    "clamp": "torch.nn.functional.softplus, or torch.tanh",
    "abs": "certus.models.SmoothAbs",
    "max_pool1d": "torch.nn.functional.avg_pool1d",
    "max_pool2d": "torch.nn.functional.avg_pool2d",
}
_SOME_SHAPE = (1, 64, 64)  # for rules that hardly look at it


@dataclass(frozen=True)
class UnsupportedLayer:
    """A layer without a finite bound on its curvature, or without any rule.

    Attributes:
        path, kind: location in the model, and type.
        reason: why nothing, or no smoothness, is proven.
        replacement: description of a replacement.
        repairable: whether ``smooth`` replaces it.
        line: of the user, as FILE:LINE: `code`, where a function was called or a layer used.
    """

    path: str
    kind: str
    reason: str
    replacement: str
    repairable: bool
    line: str = ""


def validate(model: nn.Module, input_shape: Shape | None = None) -> list[UnsupportedLayer]:
    """List every layer, and every call of a function, that prevents a proof of smoothness.

    Args:
        input_shape: of one input; needed for a model with its own forward, unless it begins with a linear
            layer.

    >>> [(layer.path, layer.replacement) for layer in validate(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
    [('1', 'ELU(alpha=1.0)')]
    """
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
    model = unwrapped(model)
    with eval_mode(model):
        places = list(_places(model))
        if all(_plain(module) for _, module in places):
            return [layer for path, module in places if (layer := _inspect(path, module)) is not None]
        shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        return _inspect_graph(model, shape)


def _plain(module: nn.Module) -> bool:
    """Whether a layer can be judged on its own: it has a rule, or hooks."""
    return (
        find_rule(module) is not None or has_hooks(module) or (is_sequential(module) and is_modified(module))
    )


def _inspect_graph(model: nn.Module, shape: Shape) -> list[UnsupportedLayer]:
    """Validate a model by its exported graph."""
    try:
        unknown, steps = inspect_graph(model, shape, is_graph_leaf, read_layers)
    except UnsupportedError as reason:
        return [
            UnsupportedLayer("", type(model).__name__, str(reason).rstrip("."), "a forward without it", False)
        ]
    layers = [
        UnsupportedLayer(each.path, each.kind, each.reason, each.advice, False, each.line) for each in unknown
    ]
    return layers + [_kinked(model, step) for step in steps if not step.stage.smooth]


def _kinked(model: nn.Module, step: Step) -> UnsupportedLayer:
    module = dict(model.named_modules(remove_duplicate=False)).get(step.path.split("@")[0])
    smoother = None if module is None else _replacement(module)
    words = str(smoother) if smoother is not None else _FUNCTIONS.get(step.kind, _ANY)
    return UnsupportedLayer(step.path, step.kind, _JUMPS, words, smoother is not None, step.line)


def smooth(model: nn.Module, input_shape: Shape | None = None) -> nn.Module:
    """Return a copy of the model with smooth layers: ELU for ReLU, average pooling for max pooling.

    The weights are kept, but the function changes: train it further. A layer without a replacement raises
    ``UnsupportedError`` with its path, and a function that a ``forward`` calls with its line.

    >>> smooth(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))[1]
    ELU(alpha=1.0)
    """
    model = unwrapped(model)
    blocking = [layer for layer in validate(model, input_shape) if not layer.repairable]
    if blocking:
        listed = "; ".join(
            f"{layer.path or 'the model itself'} ({layer.kind}){f' in {layer.line}' if layer.line else ''}: "
            f"{layer.reason}; replace it by {layer.replacement}"
            for layer in blocking
        )
        raise UnsupportedError(f"No replacement is known for {listed}.")
    copied = copy.deepcopy(model)
    for path in dict.fromkeys(layer.path.split("@")[0] for layer in validate(copied, input_shape)):
        if not path:
            whole = _replacement(copied)
            assert whole is not None  # it is repairable
            return whole
        parent, _, name = path.rpartition(".")
        holder = copied.get_submodule(parent)
        setattr(holder, name, _replacement(getattr(holder, name)))
    return copied


def smoothing_hint(model: nn.Module, input_shape: Shape) -> str:
    """Return advice for making a model smooth; empty if it is smooth."""
    layers = validate(model, input_shape)
    blocking = [layer for layer in layers if not layer.repairable]
    if not layers:
        return ""
    if not blocking:
        return "certus.bounds.smooth(model) makes it smooth."
    places = "; ".join(f"{layer.line or layer.path or layer.kind}: {layer.replacement}" for layer in blocking)
    return f"To make it smooth, replace {places}."


def _places(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """All layers, those of branches included, with their paths."""
    if (is_sequential(model) or isinstance(model, Residual)) and not is_modified(model):
        for name, child in children(model):
            yield from _places(child, f"{path}.{name}" if path else name)
    else:
        yield path, model


def _inspect(path: str, module: nn.Module) -> UnsupportedLayer | None:
    kind, layer_rule = type(module).__name__, find_rule(module)
    if layer_rule is None or is_modified(module):
        return UnsupportedLayer(
            path, kind, "its forward hooks have no rule", "the same layer without hooks", False
        )
    try:
        stage = layer_rule(module, _SOME_SHAPE)
    except UnsupportedError as reason:
        return UnsupportedLayer(path, kind, str(reason), "the same layer without it", False)
    except (ArgumentError, RuntimeError):  # another shape is needed: an affine layer
        return None
    if not isinstance(stage, Stage) or stage.smooth:
        return None
    smoother = _replacement(module)
    return UnsupportedLayer(
        path, kind, _JUMPS, _ANY if smoother is None else str(smoother), smoother is not None
    )


def _replacement(module: nn.Module) -> nn.Module | None:
    for kind, make in _REPLACEMENTS.items():
        if isinstance(module, kind):
            return make(module)
    return None


def _celu(module: nn.Module) -> nn.Module:
    assert isinstance(module, nn.ELU)
    usable = math.isfinite(module.alpha) and module.alpha > 0
    return nn.CELU(module.alpha) if usable else nn.ELU()


def _average(module: nn.Module) -> nn.Module | None:
    assert isinstance(module, nn.MaxPool1d | nn.MaxPool2d)
    if module.dilation not in (1, (1, 1), (1,)):
        return None
    kind = nn.AvgPool1d if isinstance(module, nn.MaxPool1d) else nn.AvgPool2d
    return kind(module.kernel_size, module.stride, module.padding, module.ceil_mode)  # type: ignore[arg-type]  # both kinds take both


_REPLACEMENTS: dict[type[nn.Module], Callable[[nn.Module], nn.Module | None]] = {
    nn.ELU: _celu,
    nn.Hardtanh: lambda module: nn.ELU() if isinstance(module, nn.ReLU6) else nn.Tanh(),
    nn.ReLU: lambda module: nn.ELU(),
    nn.LeakyReLU: lambda module: nn.ELU(),
    nn.SELU: lambda module: nn.ELU(),
    nn.MaxPool1d: _average,
    nn.MaxPool2d: _average,
}
