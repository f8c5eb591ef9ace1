"""A network as certified training sees it: affine layers of norm 1, units, and a last linear layer.

x → affine, …, affine → units → affine, … → units → … → last linear layer → loss
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from certus.batches import widened
from certus.errors import UnsupportedError
from certus.layers import LogCosh, SmoothAbs
from certus.modes import at_rest
from certus.smoothness.log_softmax import LogSoftmax
from certus.smoothness.network import read_layers
from certus.smoothness.operators import Operator, Reshape
from certus.smoothness.stage import Shape
from certus.smoothness.steps import Step
from certus.smoothness.validation import validate
from certus.training.certified.clipping import CONVOLUTIONS, clip_convolution, clip_matrix

Units = LogCosh | SmoothAbs


@dataclass(frozen=True, eq=False)
class AffineLayer:
    """One affine layer.

    Attributes:
        norm: 1 where it is trained, and then clipped; its own where it is not.
        metric: (inputs,) factors of the cost in front of it, which the clipping counts in.
    """

    module: nn.Module
    in_shape: Shape
    reshapes: bool
    trained: bool
    norm: float
    metric: Tensor | None = None

    def clip(self) -> None:
        """Bring the weights to norm at most 1."""
        if not self.trained:
            return
        weight = self.module.weight
        assert isinstance(weight, Tensor)
        if isinstance(self.module, nn.Linear):
            clip_matrix(weight, None if self.metric is None else self.metric.to(weight))
        else:
            clip_convolution(self.module, self.in_shape)

    def slopes(self, slopes: Tensor, length: float) -> Tensor:
        """Bounds e_n on the slopes in its inputs from those in its outputs, and from the gradient's length.

        e_n = min(Σ_j e_j|W_jn|, ‖W[:, n]‖·length). Shapes (1, *out) → (1, *in).
        """
        if self.reshapes:
            return slopes.reshape(1, *self.in_shape)
        pulled = self._pull(slopes, 1)
        if not self.trained:
            return pulled.abs()  # a diagonal layer may change signs
        return torch.minimum(pulled, self._pull(torch.ones_like(slopes), 2).sqrt() * length)

    def _pull(self, rows: Tensor, power: int) -> Tensor:
        """Σ_j |W_jn|^power r_j."""
        weights = {
            name: widened(parameter.detach()).abs() ** power if name == "weight" else 0 * widened(parameter)
            for name, parameter in self.module.named_parameters()
        } | {name: values.cpu() for name, values in self.module.named_buffers()}
        start = torch.zeros(1, *self.in_shape, dtype=rows.dtype, device=rows.device, requires_grad=True)
        with torch.enable_grad():
            image: Tensor = functional_call(self.module, weights, (start,))
            (pulled,) = torch.autograd.grad(image, start, rows.reshape(image.shape))
        return pulled


@dataclass(frozen=True, eq=False)
class Layer:
    """Affine layers, and the units behind them."""

    affine: list[AffineLayer]
    units: Units

    @property
    def norm(self) -> float:
        return math.prod(part.norm for part in self.affine)


@dataclass(frozen=True, eq=False)
class Structure:
    """What is clipped, what is scaled, and the layers between.

    Attributes:
        clipped: the trained affine layers that are kept at norm 1: all but the last.
        head: the last layer.
        behind: what stands between the last units and the head, such as pooling.
        layers: from the inputs on; None if the network has other parts than affine layers and units of log
            cosh or smooth |z|, or if the cost's metric does not meet a linear layer first.
    """

    clipped: list[AffineLayer]
    head: nn.Linear
    behind: list[AffineLayer]
    layers: list[Layer] | None


def read_structure(model: nn.Module, shape: Shape, metric: Tensor | None) -> Structure:
    """The structure of a model for inputs of one shape; refuses what cannot be proven, by its path.

    Args:
        metric: (inputs,) factors in front of the first layer, of a weighted cost; None if all are 1.
    """
    for found in validate(model, shape):
        raise UnsupportedError(
            f"The layer {found.path or 'the model itself'} ({found.kind})"
            f"{f' in {found.line}' if found.line else ''} cannot be certified: "
            f"{found.reason}. Put in its place: {found.replacement}."
        )
    for path, module in model.named_modules():
        if is_parametrized(module):
            raise UnsupportedError(
                f"The layer {path or 'the model itself'} ({type(module).__name__}) cannot be certified: its "
                "weight is computed by a parametrization, so it cannot be projected. Remove it first, with "
                "torch.nn.utils.parametrize.remove_parametrizations."
            )
    with at_rest(model):
        steps = read_layers(model, shape)
    if steps and isinstance(steps[-1].stage, LogSoftmax):  # which a loss of classes does not see
        steps = steps[:-1]
    modules = dict(model.named_modules(remove_duplicate=False))
    head = modules.get(steps[-1].path) if steps else model
    if not isinstance(head, nn.Linear) or not head.weight.requires_grad:
        where = f"{steps[-1].path} ({steps[-1].kind})" if steps else "nothing"
        raise UnsupportedError(f"A certified network must end in a trained Linear layer; it ends in {where}.")
    layers: list[Layer] = []
    run: list[AffineLayer] = []
    clipped: list[AffineLayer] = []
    plain = True
    for step in steps[:-1]:
        module = modules.get(step.path)
        if module is None or type(module).__name__ != step.kind:  # a function, or a layer used once more
            plain = False
        elif isinstance(step.stage, Operator):
            part = _affine(module, step, step.stage, metric)
            metric = metric if part.reshapes else None
            run.append(part)
            clipped += [part] if part.trained else []
            plain = plain and (part.trained or _is_fixed(module))
        elif isinstance(module, LogCosh | SmoothAbs):
            layers.append(Layer(run, module))
            run = []
        else:
            plain = False
    plain = plain and metric is None and not any(part.trained for part in run)
    return Structure(clipped, head, run, layers if plain else None)


def _affine(module: nn.Module, step: Step, stage: Operator, metric: Tensor | None) -> AffineLayer:
    trained = isinstance(module, (nn.Linear, *CONVOLUTIONS)) and module.weight.requires_grad
    matrix = isinstance(module, nn.Linear) and trained
    norm = 1.0 if trained else stage.norm
    if metric is not None and not matrix and not isinstance(stage, Reshape):
        norm *= float(metric.max())  # not counted in by the clipping
    return AffineLayer(
        module, step.in_shape, isinstance(stage, Reshape), trained, norm, metric if matrix else None
    )


def _is_fixed(module: nn.Module) -> bool:
    """Whether training leaves the layer alone."""
    return not isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters())
