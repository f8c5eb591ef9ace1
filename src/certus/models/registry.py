"""Networks by name, or from a user's file.

    toy | toy-relu | mnist-cnn | mlp:WIDTHS[:ACTIVATION] | resnet:CHANNELS | FILE.py:FACTORY
    certified-mlp[:WIDTHS[:UNITS[:COMPONENTS]]] | certified-cnn[:CHANNELS[:UNITS]]

such as ``mlp:128,64:softplus`` or ``certified-mlp:2048:logcosh:256``. A factory is a function, or a class,
that returns a module. It is given what it asks for by name: ``shape``, that of one input, and ``classes``,
the number of outputs.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from certus.datasets import SplitDataset
from certus.errors import ArgumentError, require
from certus.models.networks import build_certified, check_weights, mnist_cnn, parse_resnet, toy_mlp
from certus.models.own_code import OwnCode, Sources, is_own_file

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "relu": nn.ReLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


def mlp(inputs: int, widths: list[int], outputs: int, activation: str = "elu") -> nn.Sequential:
    """Return a fully connected network on flattened inputs.

    >>> [type(layer).__name__ for layer in mlp(4, [8], 2)]
    ['Flatten', 'Linear', 'ELU', 'Linear']
    """
    legal = ", ".join(ACTIVATIONS)
    require(activation in ACTIVATIONS, "activation", f"be one of {legal}", repr(activation))
    require(all(width >= 1 for width in widths), "widths", "be at least 1", widths)
    check_weights([inputs, *widths, outputs])
    layers: list[nn.Module] = [nn.Flatten()]
    for width in widths:
        layers += [nn.Linear(inputs, width), ACTIVATIONS[activation]()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


@dataclass(frozen=True)
class BuiltModel:
    """Network with the user's source files that were executed to build it, if any."""

    network: nn.Module
    sources: Sources | None


def build_model(spec: str, data: SplitDataset, seed: int = 0) -> nn.Module:
    """Build the network that ``spec`` names, for the shapes of ``data``, with weights drawn from ``seed``.

    The caller's random state is left alone.
    """
    return build_from(spec, data, seed).network


def build_from(
    spec: str, data: SplitDataset, seed: int = 0, *, known: Mapping[str, str] | None = None
) -> BuiltModel:
    """Build a network, and record the user's code that was executed.

    Args:
        known: sha256 by file name; of the user's own code, nothing else is executed.
    """
    outputs = data.classes or math.prod(data.train.targets.shape[1:])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if not is_own_file(spec):
            network = _by_name(spec, data, outputs)
            _check_outputs(network, data, outputs)
            return BuiltModel(network, None)
        code = OwnCode(spec, known)
        with code.imports():
            network = _from_file(spec, code, tuple(data.train.inputs.shape[1:]), outputs)
            _check_outputs(network, data, outputs)
    return BuiltModel(network, code.sources)


def _by_name(spec: str, data: SplitDataset, outputs: int) -> nn.Module:
    shape = tuple(data.train.inputs.shape[1:])
    if spec == "mnist-cnn":
        require(shape == (1, 28, 28), "model", "have inputs of shape (1, 28, 28) for mnist-cnn", shape)
        require(outputs == 10, "model", "have 10 classes for mnist-cnn", outputs)
        return mnist_cnn()
    if spec in ("toy", "toy-relu"):
        require(shape == (2,) and outputs == 2, "model", "have 2 inputs and 2 classes for toy", shape)
        return toy_mlp(nn.ELU if spec == "toy" else nn.ReLU)
    if spec.startswith("mlp:"):
        return _parse_mlp(spec, math.prod(shape), outputs)
    if spec.startswith("resnet:"):
        return parse_resnet(spec, shape, outputs)
    if spec.split(":")[0] in ("certified-mlp", "certified-cnn"):
        return build_certified(spec, data.train.inputs, outputs)
    raise ArgumentError(
        "`model` must be toy, toy-relu, mnist-cnn, mlp:WIDTHS[:ACTIVATION], resnet:CHANNELS, "
        f"certified-mlp, certified-cnn or FILE.py:FACTORY; got {spec!r}."
    )


def default_model(data: SplitDataset, certified: bool = False) -> str:
    """Return the default network for a data set: small and smooth."""
    if certified:
        return "certified-mlp"
    if tuple(data.train.inputs.shape[1:]) == (1, 28, 28):
        return "mnist-cnn"
    return "toy" if data.name == "rings" else "mlp:128,128:elu"


def _parse_mlp(spec: str, inputs: int, outputs: int) -> nn.Module:
    _, widths, *activation = spec.split(":")
    try:
        sizes = [int(width) for width in widths.split(",")]
        if len(activation) > 1 or max(sizes) > 1_000_000:
            raise ValueError
    except ValueError:
        raise ArgumentError(f"`model` must be like mlp:128,64:elu; got {spec!r}.") from None
    return mlp(inputs, sizes, outputs, *activation)


def _from_file(spec: str, code: OwnCode, shape: tuple[int, ...], outputs: int) -> nn.Module:
    try:
        factory = code.factory()
        model = factory(**_arguments_of(spec, factory, {"shape": shape, "classes": outputs}))
    except ArgumentError:
        raise
    except (Exception, SystemExit) as reason:
        raise ArgumentError(f"`model` {spec} failed with {type(reason).__name__}: {reason}") from reason
    rule = f"be a torch.nn.Module that {spec.rpartition(':')[2]}() returns"
    require(isinstance(model, nn.Module), "model", rule, type(model))
    assert isinstance(model, nn.Module)
    return model


def _arguments_of(spec: str, factory: Callable[..., object], offered: dict[str, object]) -> dict[str, object]:
    """Return the arguments of a factory by the names of its parameters."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # none that Python knows
        return {}
    taken = {}
    for each in parameters:
        plain = each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        if plain and each.name in offered:
            taken[each.name] = offered[each.name]
        elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise ArgumentError(
                f"`model` {spec} must take no parameters but `shape`, that of one input, and `classes`, the "
                f"number of outputs, unless they have defaults; got `{each.name}`."
            )
    return taken


def _check_outputs(model: nn.Module, data: SplitDataset, outputs: int) -> None:
    """Check the output shape by one forward pass in eval mode, before a long training."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            returned = model(data.train.inputs[:1].clone())
    except Exception as reason:
        given = tuple(data.train.inputs.shape[1:])
        first = f"{type(reason).__name__}: {reason}".splitlines()[0]
        raise ArgumentError(f"`model` must accept inputs of shape {given}; it fails with {first}") from None
    model.train(training)
    require(isinstance(returned, torch.Tensor), "model", "return a tensor", type(returned))
    shape = tuple(returned.shape)
    expected = (1, outputs)
    fits = shape == expected or (data.classes is None and math.prod(shape) == outputs)
    require(fits, "model", f"return outputs of shape (batch, {outputs})", f"shape {shape} for one sample")
