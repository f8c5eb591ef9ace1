"""Networks: those of the paper, residual networks, networks for certified training, and networks by name.

    toy | toy-relu | mnist-cnn | mlp:WIDTHS[:ACTIVATION] | resnet:CHANNELS | FILE.py:FACTORY
    certified-mlp[:WIDTHS[:UNITS[:COMPONENTS]]] | certified-cnn[:CHANNELS[:UNITS]]
    lipschitz:WIDTHxDEPTH[:dense]

such as ``mlp:128,64:softplus`` or ``certified-mlp:2048:logcosh:256``. A factory is a function, or a class,
that returns a module. It is given the arguments that it names: ``shape``, that of one input, and
``classes``, the number of outputs.

In networks for certified training, affine layers of norm at most 1 stand between log cosh units. Every unit
has its own sharpness, which certified training (``certus.training.certified``) ties to 2γ/e_n. Wide layers
are best: the slope D of the margins is distributed over the units, and a smaller e_n allows a sharper unit.

The networks ``lipschitz:WIDTHxDEPTH`` are 1-Lipschitz by construction, whatever their depth (in the manner of
LipNeXt): orthogonal products within a pixel, shifts between pixels, MaxMin, and a head with rows of norm 1.
With ``:dense``, and for inputs that are no images, the products are of all features at once.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from certus.datasets import SplitDataset
from certus.errors import ArgumentError, require
from certus.layers import (
    ChannelsLast,
    LengthPool,
    LogCosh,
    MaxMin,
    Offset,
    Orthogonal,
    Residual,
    Shift,
    SmoothAbs,
    UnitRows,
    Unshuffle,
)
from certus.models.own_code import OwnCode, Sources, is_own_file


def toy_mlp(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """Return the toy network 2 → 4 → 2 → 2, with hidden layers of 4 and 2 units (sec:toy)."""
    return nn.Sequential(nn.Linear(2, 4), activation(), nn.Linear(4, 2), activation(), nn.Linear(2, 2))


def mnist_cnn(activation: type[nn.Module] = nn.ELU) -> nn.Sequential:
    """Return the MNIST network (sec:mnist-real): three convolutions and a linear layer, 710,218 weights.

    Takes (batch, 1, 28, 28) images. The first convolution has stride 2 and keeps the image's size before
    striding (3 pixels of zeros on each side); the others are unpadded.
    """
    return nn.Sequential(
        nn.Conv2d(1, 64, kernel_size=8, stride=2, padding=3),
        activation(),
        nn.Conv2d(64, 128, kernel_size=6, stride=2),
        activation(),
        nn.Conv2d(128, 128, kernel_size=5),
        activation(),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


MOST_CHANNELS = 4096


def resnet(shape: tuple[int, ...], channels: Sequence[int], outputs: int) -> nn.Sequential:
    """Return a residual network for images of ``shape``, (channels, height, width), one block per stage.

    >>> network = resnet((3, 32, 32), [16, 32, 64], 10)
    >>> network(torch.zeros(2, 3, 32, 32)).shape, sum(weights.numel() for weights in network.parameters())
    (torch.Size([2, 10]), 78042)
    """
    require(len(shape) == 3, "model", "have images, (channels, height, width), for resnet", shape)
    rule = f"have between 1 and {MOST_CHANNELS} channels in each stage"
    require(all(1 <= width <= MOST_CHANNELS for width in channels), "model", rule, list(channels))
    halvings = len(channels) - 1
    fits = min(shape[1:]) >= 2**halvings
    require(fits, "model", f"have images of at least {2**halvings} pixels for {len(channels)} stages", shape)
    width = channels[0]
    layers: list[nn.Module] = [_convolution(shape[0], width), nn.BatchNorm2d(width), nn.ReLU()]
    for stage, wider in enumerate(channels):
        layers += [_block(width, wider, stride=1 if stage == 0 else 2), nn.ReLU()]
        width = wider
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, outputs)]
    return nn.Sequential(*layers)


def _block(inputs: int, outputs: int, stride: int) -> Residual:
    branch = nn.Sequential(
        _convolution(inputs, outputs, stride),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        _convolution(outputs, outputs),
        nn.BatchNorm2d(outputs),
    )
    if stride == 1 and inputs == outputs:
        return Residual(branch)
    shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
    return Residual(branch, nn.Sequential(shortcut, nn.BatchNorm2d(outputs)))


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    # Without a bias: the normalisation behind it would take it away again.
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    # Convolutions on processors are quicker with the channels innermost; what follows takes it over.
    convolution.weight.data = convolution.weight.data.contiguous(memory_format=torch.channels_last)
    return convolution


_ACTIVATIONS = (nn.ELU, nn.ReLU, nn.Softplus, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU)
ACTIVATIONS: dict[str, type[nn.Module]] = {kind.__name__.lower(): kind for kind in _ACTIVATIONS}
UNITS: dict[str, type[LogCosh | SmoothAbs]] = {"logcosh": LogCosh, "smoothabs": SmoothAbs}
MOST_WEIGHTS = 10**8


def mlp(inputs: int, widths: Sequence[int], outputs: int, activation: str = "elu") -> nn.Sequential:
    """Return a fully connected network on flattened inputs.

    >>> [type(layer).__name__ for layer in mlp(4, [8], 2)]
    ['Flatten', 'Linear', 'ELU', 'Linear']
    """
    legal = ", ".join(ACTIVATIONS)
    require(activation in ACTIVATIONS, "activation", f"be one of {legal}", repr(activation))
    require(all(width >= 1 for width in widths), "widths", "be at least 1", list(widths))
    return _dense([inputs, *widths, outputs], lambda width: ACTIVATIONS[activation]())


def certified_mlp(
    inputs: int, widths: Sequence[int], outputs: int, units: str = "logcosh", *, basis: Tensor | None = None
) -> nn.Sequential:
    """Return a fully connected network on flattened inputs, for certified training.

    Args:
        units: "logcosh" or "smoothabs".
        basis: (components, inputs) with orthonormal rows, in front of the first layer, not trained: such as
            the principal components of the data. Moves orthogonal to them have no effect on the network.

    >>> [type(layer).__name__ for layer in certified_mlp(4, [8], 2)]
    ['Flatten', 'Linear', 'LogCosh', 'Linear']
    """
    _check_units(widths, units)
    front: list[nn.Module] = []
    if basis is not None:
        require(basis.shape[1:] == (inputs,), "basis", f"have {inputs} columns", tuple(basis.shape))
        projection = nn.Linear(inputs, len(basis), bias=False).requires_grad_(False)
        projection.weight.copy_(basis)
        front, inputs = [projection], len(basis)
    return _dense([inputs, *widths, outputs], lambda width: UNITS[units](torch.ones(width)), front)


def _dense(
    sizes: Sequence[int], activation: Callable[[int], nn.Module], front: Sequence[nn.Module] = ()
) -> nn.Sequential:
    """Return linear layers of ``sizes`` with activations between them, behind the layers of ``front``."""
    check_weights(sizes)
    layers: list[nn.Module] = [nn.Flatten(), *front]
    for inputs, width in itertools.pairwise(sizes[:-1]):
        layers += [nn.Linear(inputs, width), activation(width)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def certified_cnn(
    shape: Sequence[int], channels: Sequence[int], outputs: int, units: str = "logcosh"
) -> nn.Sequential:
    """Return convolutions of 5 × 5 with stride 2, log cosh units, and a linear layer, for certified training.

    >>> [type(layer).__name__ for layer in certified_cnn((1, 8, 8), [16], 10)]
    ['Conv2d', 'LogCosh', 'Flatten', 'Linear']
    """
    _check_units(channels, units)
    require(len(shape) == 3, "shape", "be (channels, height, width)", tuple(shape))
    layers: list[nn.Module] = []
    count, height, width = shape
    check_weights([count, *channels], window=25)
    for out in channels:
        height, width = (height + 1) // 2, (width + 1) // 2
        check_weights([out * height * width, outputs])  # as many units, and at the end as many inputs
        convolution = nn.Conv2d(count, out, 5, stride=2, padding=2)
        layers += [convolution, UNITS[units](torch.ones(out, height, width))]
        count = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(count * height * width, outputs))


def lipschitz(
    shape: Sequence[int], width: int, depth: int, outputs: int, *, dense: bool = False
) -> nn.Sequential:
    """Return a 1-Lipschitz network of ``depth`` blocks.

    Inputs that are no images, and all of them if ``dense``, get blocks of an orthogonal layer and MaxMin. An
    image first becomes pixels of more channels, of 4 × 4 pixels if it has 16 or more in each direction, of
    2 × 2 otherwise; before an orthogonal layer its blocks shift channels to neighbouring pixels. If the
    picture then still has sides that 2 divides, the last two fifths of the blocks have a quarter of the
    pixels and twice the width.

    >>> network = lipschitz((3, 32, 32), 128, 10, 10)
    >>> sum(weights.numel() for weights in network.parameters())
    505482
    """
    rule = f"be even, from 2 to {MOST_CHANNELS}"
    require(2 <= width <= MOST_CHANNELS and width % 2 == 0, "model", f"have a width that must {rule}", width)
    require(1 <= depth <= 1000, "model", "have between 1 and 1000 blocks", depth)
    check_weights([width] * (depth + 1), window=4 if len(shape) == 3 else 1)
    if dense or len(shape) != 3:
        features = math.prod(shape)
        layers: list[nn.Module] = [nn.Flatten(), Orthogonal(features, width), MaxMin()]
        layers += [layer for _ in range(depth - 1) for layer in (Orthogonal(width, width), MaxMin())]
        return nn.Sequential(*layers, UnitRows(width, outputs))
    channels, *sides = shape
    size = next(size for size in (4 if min(sides) >= 16 else 2, 2, 1) if all(n % size == 0 for n in sides))
    sides = [side // size for side in sides]
    halved = depth * 2 // 5 if all(side % 2 == 0 for side in sides) else 0
    layers = [ChannelsLast(), Unshuffle(size), Offset(*sides, channels * size**2)]
    layers += [Orthogonal(channels * size**2, width), MaxMin()]
    for block in range(depth):
        if block == depth - halved:
            layers += [Unshuffle(2), Orthogonal(4 * width, 2 * width), MaxMin()]
            width = 2 * width
        layers += [Shift(), Orthogonal(width, width), MaxMin()]
    return nn.Sequential(*layers, LengthPool(), UnitRows(width, outputs))


def principal_components(inputs: Tensor, count: int) -> Tensor:
    """Return (count, features) principal components of the first 10,000 of (n, …) inputs."""
    points = inputs[:10_000].flatten(1).double()
    require(1 <= count <= points.shape[1], "components", f"lie between 1 and {points.shape[1]}", count)
    centred = points - points.mean(0)
    vectors: Tensor = torch.linalg.eigh(centred.T @ centred).eigenvectors
    return vectors[:, -count:].T.flip(0).to(inputs.dtype)


def _check_units(widths: Sequence[int], units: str) -> None:
    require(units in UNITS, "units", f"be one of {', '.join(UNITS)}", repr(units))
    sizes = all(isinstance(width, int) and 1 <= width <= 1_000_000 for width in widths)
    require(sizes and len(widths) > 0, "widths", "be whole numbers from 1 to a million", list(widths))


def check_weights(widths: Sequence[int], window: int = 1) -> None:
    """Raise ``ArgumentError`` for layers too large for memory, before any is allocated: their widths from
    inputs to outputs, or channels with ``window`` weights each."""
    count = window * sum(inputs * outputs for inputs, outputs in itertools.pairwise(widths))
    rule = f"have at most {MOST_WEIGHTS} weights (FILE.py:FACTORY may have more)"
    require(count <= MOST_WEIGHTS, "model", rule, count)


COMPONENTS = 256
"""Number of principal components of larger inputs that a certified-mlp keeps: few enough for its first layer
to be clipped quickly after every step."""

_EXAMPLES = {
    "mlp": "mlp:128,64:elu",
    "resnet": "resnet:16,32,64",
    "certified-mlp": "certified-mlp:1024,256:logcosh:256",
    "certified-cnn": "certified-cnn:32:logcosh",
    "lipschitz": "lipschitz:128x10:dense",
}
_WIDTHS = {"certified-mlp": "1024", "certified-cnn": "32"}
"""Default widths; other networks have none."""


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
    spec: str, data: SplitDataset, seed: int = 0, *, expected: Mapping[str, str] | None = None
) -> BuiltModel:
    """Build a network, and record the user's code that was executed. With ``expected`` checksums, by file
    name, other files are refused."""
    outputs = data.classes or math.prod(data.train.targets.shape[1:])
    code = OwnCode(spec, expected) if is_own_file(spec) else None
    with torch.random.fork_rng(), nullcontext() if code is None else code.imports():
        torch.manual_seed(seed)
        if code is None:
            network = _by_name(spec, data.train.inputs, outputs)
        else:
            network = _from_file(spec, code, tuple(data.train.inputs.shape[1:]), outputs)
        _check_outputs(network, data, outputs)
    return BuiltModel(network, None if code is None else code.sources)


def default_model(data: SplitDataset, certified: bool = False) -> str:
    """Return the default network for a data set: small and smooth."""
    if certified:
        return "certified-mlp"
    if tuple(data.train.inputs.shape[1:]) == (1, 28, 28):
        return "mnist-cnn"
    return "toy" if data.name == "rings" else "mlp:128,128:elu"


def _by_name(spec: str, inputs: Tensor, outputs: int) -> nn.Module:
    """Build a network by its name, or by KIND:WIDTHS and options. More than 256 inputs of a certified-mlp
    meet 256 principal components first, unless COMPONENTS says otherwise; 0 means none."""
    shape = tuple(inputs.shape[1:])
    if spec == "mnist-cnn":
        require(shape == (1, 28, 28), "model", "have inputs of shape (1, 28, 28) for mnist-cnn", shape)
        require(outputs == 10, "model", "have 10 classes for mnist-cnn", outputs)
        return mnist_cnn()
    if spec in ("toy", "toy-relu"):
        require(shape == (2,) and outputs == 2, "model", "have 2 inputs and 2 classes for toy", shape)
        return toy_mlp(nn.ELU if spec == "toy" else nn.ReLU)
    kind, *options = spec.split(":")
    widths = options[0] if options else _WIDTHS.get(kind)
    if kind not in _EXAMPLES or widths is None:
        raise ArgumentError(
            "`model` must be toy, toy-relu, mnist-cnn, mlp:WIDTHS[:ACTIVATION], resnet:CHANNELS, "
            f"certified-mlp, certified-cnn, lipschitz:WIDTHxDEPTH[:dense] or FILE.py:FACTORY; got {spec!r}."
        )
    features = math.prod(shape)
    try:
        sizes = [int(width) for width in widths.split("x" if kind == "lipschitz" else ",")]
        components = int("".join(options[2:]) or (COMPONENTS if features > COMPONENTS else 0))
        if len(options) > _EXAMPLES[kind].count(":") or (kind == "mlp" and max(sizes) > 1_000_000):
            raise ValueError
        if kind == "lipschitz" and (len(sizes) != 2 or options[1:] not in ([], ["dense"])):
            raise ValueError
    except ValueError:
        raise ArgumentError(f"`model` must be like {_EXAMPLES[kind]}; got {spec!r}.") from None
    if kind == "mlp":
        return mlp(features, sizes, outputs, *options[1:])
    if kind == "lipschitz":
        width, depth = sizes
        return lipschitz(shape, width, depth, outputs, dense=len(options) > 1)
    if kind == "resnet":
        return resnet(shape, sizes, outputs)
    if kind == "certified-cnn":
        return certified_cnn(shape, sizes, outputs, *options[1:])
    basis = principal_components(inputs, components) if components else None
    return certified_mlp(features, sizes, outputs, *options[1:2], basis=basis)


def _from_file(spec: str, code: OwnCode, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Call the factory of a user's file with the arguments that its parameters name."""
    offered: dict[str, Any] = {"shape": shape, "classes": outputs}
    arguments: dict[str, Any] = {}
    try:
        factory = code.factory()
        try:
            parameters = list(inspect.signature(factory).parameters.values())
        except (TypeError, ValueError):  # a callable without a signature
            parameters = []
        for each in parameters:
            if each.name in offered and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                arguments[each.name] = offered[each.name]
            elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
                raise ArgumentError(
                    f"`model` {spec} must have a default for every parameter but `shape` (of one input) and "
                    f"`classes` (the number of outputs); `{each.name}` has none."
                )
        model = factory(**arguments)
    except ArgumentError:
        raise
    except (Exception, SystemExit) as reason:
        raise ArgumentError(f"`model` {spec} failed with {type(reason).__name__}: {reason}") from reason
    rule = f"be a torch.nn.Module that {spec.rpartition(':')[2]}() returns"
    require(isinstance(model, nn.Module), "model", rule, type(model))
    assert isinstance(model, nn.Module)
    return model


def _check_outputs(model: nn.Module, data: SplitDataset, outputs: int) -> None:
    """Check the output shape by one forward pass in eval mode, before a long training."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            returned = model(data.train.inputs[:1].clone())
    except Exception as reason:
        shape = tuple(data.train.inputs.shape[1:])
        first = f"{type(reason).__name__}: {reason}".splitlines()[0]
        raise ArgumentError(f"`model` must accept inputs of shape {shape}; it fails with {first}") from None
    model.train(training)
    require(isinstance(returned, torch.Tensor), "model", "return a tensor", type(returned))
    shape = tuple(returned.shape)
    fits = shape == (1, outputs) or (data.classes is None and math.prod(shape) == outputs)
    require(fits, "model", f"return outputs of shape (batch, {outputs})", f"shape {shape} for one sample")


_REAL = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def load_weights(network: nn.Module, state: dict[str, Tensor]) -> None:
    """Load a state dict from elsewhere, checked: real and finite numbers that fit the network."""
    own = network.state_dict()
    state = _without_wrappers(state, set(own))
    for name, tensor in state.items():
        counter = name in own and not own[name].is_floating_point()  # such as a number of batches
        real = tensor.dtype in _REAL or (counter and tensor.dtype == own[name].dtype)
        require(real, "weights", "be floating-point tensors of real numbers", f"{tensor.dtype} in {name}")
        finite = bool(torch.isfinite(tensor).all())
        require(finite, "weights", "be finite", f"NaN or infinity in {name}")
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:3]]
        raise ArgumentError(f"`weights` must fit the model; {' '.join(lines)}") from None


def _without_wrappers(state: dict[str, Tensor], own: set[str]) -> dict[str, Tensor]:
    """Remove the prefixes that ``DistributedDataParallel`` and ``torch.compile`` put before names."""
    for prefix in ("module.", "_orig_mod."):
        if state and not state.keys() & own and all(name.startswith(prefix) for name in state):
            return _without_wrappers({name.removeprefix(prefix): state[name] for name in state}, own)
    return state
