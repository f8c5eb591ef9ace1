"""Validation of models: layers that prevent a proof of smoothness, and their replacements."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

from torch import nn

from certus._eval_mode import eval_mode, unwrapped
from certus.bounds.export import has_hooks, is_modified
from certus.bounds.graph_reader import GraphReader, UnsupportedLayer
from certus.bounds.layer_rules import children, find_rule, is_sequential, is_smooth
from certus.bounds.network import infer_shape, read_layers
from certus.errors import ArgumentError, UnsupportedError, require
from certus.kernel.graph import Node
from certus.kernel.passes import Primitive, Refused, Shape
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


def validate(model: nn.Module, input_shape: Shape | None = None) -> list[UnsupportedLayer]:
    """List every layer, and every call of a function, that prevents a proof of smoothness.

    Args:
        input_shape: shape of one input; needed for a model with its own forward, unless it begins with a
            linear layer.

    >>> [(layer.path, layer.replacement) for layer in validate(nn.Sequential(nn.Linear(2, 3), nn.ReLU()))]
    [('1', 'ELU(alpha=1.0)')]
    """
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
    model = unwrapped(model)
    with eval_mode(model):
        places = list(_places(model))
        # Layers can be judged on their own if all have a rule, or hooks, which have none.
        if all(
            find_rule(each) or has_hooks(each) or (is_sequential(each) and is_modified(each))
            for _, each in places
        ):
            return [layer for path, module in places if (layer := _inspect(path, module)) is not None]
        shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        return _inspect_graph(model, shape)


def _inspect_graph(model: nn.Module, shape: Shape) -> list[UnsupportedLayer]:
    """Validate a model by its exported graph."""
    try:
        reader = GraphReader(model, [Node((), shape)], 0, "", read_layers)
        reader.run(collect=True)
    except UnsupportedError as reason:
        return [UnsupportedLayer("", type(model).__name__, str(reason).rstrip("."), "a forward without it")]
    modules = dict(model.named_modules(remove_duplicate=False))
    return reader.unknown + [
        _kinked(node.name, node.kind, modules.get(node.name.split("@")[0]), node.line)
        for node in reader.nodes
        if node.primitive is not None and not is_smooth(node.primitive)
    ]


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
    if not blocking:
        return "certus.bounds.smooth(model) makes it smooth." if layers else ""
    places = "; ".join(f"{layer.line or layer.path or layer.kind}: {layer.replacement}" for layer in blocking)
    return f"To make it smooth, replace {places}."


def _places(model: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield all layers, including those of branches, with their paths."""
    if (is_sequential(model) or isinstance(model, Residual)) and not is_modified(model):
        for name, child in children(model):
            yield from _places(child, f"{path}.{name}" if path else name)
    else:
        yield path, model


def _inspect(path: str, module: nn.Module) -> UnsupportedLayer | None:
    kind, layer_rule = type(module).__name__, find_rule(module)
    if layer_rule is None or is_modified(module):
        return UnsupportedLayer(path, kind, "its forward hooks have no rule", "the same layer without hooks")
    try:
        primitive = layer_rule(module, _SOME_SHAPE)
    except (UnsupportedError, Refused) as reason:
        return UnsupportedLayer(path, kind, str(reason), "the same layer without it")
    except (ArgumentError, RuntimeError):  # another shape is needed: an affine layer
        return None
    smooth_layer = not isinstance(primitive, Primitive) or is_smooth(primitive)
    return None if smooth_layer else _kinked(path, kind, module)


def _kinked(path: str, kind: str, module: nn.Module | None, line: str = "") -> UnsupportedLayer:
    smoother = _replacement(module)
    words = _FUNCTIONS.get(kind, _ANY) if smoother is None else str(smoother)
    return UnsupportedLayer(path, kind, _JUMPS, words, smoother is not None, line)


def _replacement(module: nn.Module | None) -> nn.Module | None:
    match module:
        case nn.ELU(alpha=alpha) if math.isfinite(alpha) and alpha > 0:
            return nn.CELU(alpha)
        case nn.ELU() | nn.ReLU() | nn.ReLU6() | nn.LeakyReLU() | nn.SELU():
            return nn.ELU()
        case nn.Hardtanh():
            return nn.Tanh()
        case nn.MaxPool1d() | nn.MaxPool2d() if module.dilation in (1, (1, 1), (1,)):
            kind: Any = nn.AvgPool1d if isinstance(module, nn.MaxPool1d) else nn.AvgPool2d
            pooling: nn.Module = kind(module.kernel_size, module.stride, module.padding, module.ceil_mode)
            return pooling
    return None
