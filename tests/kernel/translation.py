"""Networks as ``bounds`` reads them, as graphs of the kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus.bounds import Analysis, activations
from certus.bounds import operators as read
from certus.bounds.graph import Subgraph, Sum
from certus.bounds.passes import Stage, Step
from certus.kernel import operators as kernel
from certus.kernel.curvature import Joint
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.max_pool import MaxPool
from certus.kernel.norms import circulant_blocks
from certus.kernel.pointwise import Pointwise, Scalar
from certus.kernel.primitive import Primitive
from certus.kernel.smoothness import Smoothness

_ROOM = 1 + 1e-11


def smoothness_of(analysis: Analysis) -> Smoothness:
    """The kernel's bounds for the same network, loss and cost."""
    softmax = analysis.softmax
    loss = None if softmax is None else Softmax(**vars(softmax))
    geometry = analysis.geometry
    return Smoothness(graph_of(analysis), loss, length=geometry.length, unit=geometry.unit)


def graph_of(analysis: Analysis) -> Graph:
    """All steps as nodes."""
    nodes = [Node((), analysis.shape)]
    _add(nodes, analysis.steps if analysis.head is None else [*analysis.steps, analysis.head], 0)
    return Graph(tuple(nodes))


def _add(nodes: list[Node], steps: list[Step], last: int) -> int:
    for step in steps:
        last = _add_step(nodes, step, last)
    return last


def _add_step(nodes: list[Node], step: Step, last: int) -> int:
    if isinstance(step.stage, Sum):
        ends = tuple(_add(nodes, branch, last) for branch in step.stage.branches)
        nodes.append(Node(ends, step.out_shape))
    elif isinstance(step.stage, Subgraph):
        places = [last]
        for segment in step.stage.segments:
            inputs = tuple(places[index] for index in segment.inputs)
            end = inputs[0]
            if len(inputs) > 1:
                nodes.append(Node(inputs, segment.shape, axis=segment.axis))
                end = len(nodes) - 1
            places.append(_add(nodes, segment.steps, end))
        return places[-1]
    else:
        primitive = _primitive(step.stage, step.in_shape)
        moves = None if step.whitened is None else _primitive(step.whitened, step.in_shape)
        assert moves is None or isinstance(moves, kernel.Affine)
        nodes.append(Node((last,), primitive.out_shape, primitive, moves=moves))
    return len(nodes) - 1


def _primitive(stage: Stage, shape: tuple[int, ...]) -> Primitive:
    match stage:
        case activations.Activation():
            scalar = Scalar(
                *(stage.name, stage.value, stage.slope, stage.curvature),
                *(stage.slope_peaks, stage.curvature_peaks, stage.slope_limits, stage.kinks),
                *(Joint[stage.joint.name], stage.jump),
            )
            return Pointwise(scalar, shape, stage.sharpness)
        case activations.MaxPool():
            sums = [matrix > 0 for matrix in stage.spread.__self__.weights]  # type: ignore[attr-defined]
            return MaxPool(tuple(map(_windows, sums)), shape)
        case read.Operator():
            return _with_claim(_operator(stage), written=stage.small)
    raise AssertionError(stage)


def _windows(members: Tensor) -> Tensor:
    """(outputs, entries) positions of a bool (outputs, inputs) matrix."""
    width = int(members.sum(1).max())
    rows = [row.nonzero().flatten() for row in members]
    return torch.stack([torch.cat([row, row.new_full((width - len(row),), -1)]) for row in rows])


def _operator(stage: read.Operator) -> kernel.Affine:
    match stage:
        case read.Dense():
            return kernel.Dense(stage.weights[0], stage.bias, stage.in_shape, stage.out_shape)
        case read.Diagonal():
            return kernel.Diagonal(stage.weights[0], stage.bias, stage.in_shape)
        case read.Reshape():
            return kernel.Reshape(stage.in_shape, stage.out_shape)
        case read.Convolution():
            return kernel.Convolution(
                *(stage.weights[0], stage.bias, stage.in_shape),
                stride=stage.stride,
                padding=stage.padding,
                dilation=stage.dilation,
                groups=stage.groups,
            )
        case read.AxisProduct():
            return kernel.AxisProduct(stage.weights, stage.in_shape)
        case read.Gather():
            index, size = stage._index, math.prod(stage.in_shape)
            return kernel.Gather(
                torch.where(index == size, -1, index).reshape(stage.out_shape), stage.in_shape
            )
        case read.LastAxis():
            return kernel.LastAxis(stage.weights[0], stage.bias, stage.in_shape)
        case read.Transposed():
            return kernel.Transposed(_operator(stage._turned), stage.bias)
        case read.Chain():
            parts = (_with_claim(_operator(part), written=part.small) for part in stage.parts)
            return kernel.Product(tuple(parts))
    raise AssertionError(stage)


def _with_claim(operator: kernel.Affine, *, written: bool) -> kernel.Affine:
    """Claim the norm that LAPACK finds, and a little more."""
    match operator:
        case kernel.AxisProduct():
            operator.claim = tuple(map(_norm, operator.weights))
        case kernel.Convolution() if not written:
            blocks, _ = circulant_blocks(
                operator.weights[0], operator.padded, operator.stride, operator.dilation, operator.groups
            )
            operator.claim = (_norm(blocks),)
        case kernel.LastAxis():
            operator.claim = (_norm(operator.weights[0]),)
        case kernel.Transposed():
            _with_claim(operator.original, written=written)
            operator.claim = operator.original.claim
        case _ if written:
            operator.written = True
            operator.claim = (_norm(operator.matrix()),)
    return operator


def _norm(matrices: Tensor) -> float:
    return max(float(torch.linalg.matrix_norm(matrices, 2).max()) * _ROOM, 1e-300)
