"""The layer table of a network, and the bound as the paper prints it."""

from __future__ import annotations

import math

import torch

from certus.bounds.layer_rules import is_smooth
from certus.bounds.smoothness import LayerBound
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, AxisProduct, Product
from certus.kernel.passes import Primitive
from certus.kernel.pointwise import Pointwise
from certus.kernel.rounding import up
from certus.kernel.smoothness import Bounds, Smoothness

_PRINTED = {"sigmoid": 0.1}  # sup|σ''| as the paper has it, where that is larger


def layer_table(smoothness: Smoothness, bounds: Bounds) -> list[LayerBound]:
    """A row for each layer, and one for the loss; ``bounds`` are those over the whole space."""
    nodes = smoothness.graph.nodes
    _, trace = smoothness.graph.forward(smoothness.start())
    parts, rows = curvature_parts(bounds), []
    for number, node in enumerate(nodes):
        if node.primitive is not None:
            behind, own = up(float(trace.lipschitz[number][0])), parts.get(number, 0.0)
            rows.append(LayerBound(node.name, node.kind, *_constants(node.action), behind, own))
    rest = float(bounds.curvature["sum"][0]) - sum(row.curvature for row in rows)
    slope = float(bounds.lipschitz[0])
    return [*rows, LayerBound("", "loss", math.nan, math.nan, slope, max(rest, 0.0) if rest == rest else 0.0)]


def curvature_parts(bounds: Bounds) -> dict[int, float]:
    """Return the contribution of each node, by the sum rule, to the curvature of the margin with the
    largest one; ``bounds`` are those over the whole space."""
    totals = bounds.totals
    if totals is None:
        return {}
    total = torch.cat(totals.sums(), 1)[0]
    nodes = {
        node: torch.cat([part, totals.concave.get(node, part)], 1)[0] for node, part in totals.convex.items()
    }
    return {node: float(part[total.argmax()]) for node, part in nodes.items()}


def _constants(primitive: Primitive) -> tuple[float, float]:
    """Return the norm of a layer, or its largest |σ'|; and its largest |σ''|."""
    match primitive:
        case Affine():
            return primitive.norm, 0.0
        case Pointwise():
            return _steepest_and_sharpest(primitive)
        case MaxPool():
            return math.sqrt(primitive.overlap), math.inf
    return primitive.amplify(1.0), 0.0 if is_smooth(primitive) else math.inf


def _steepest_and_sharpest(activation: Pointwise) -> tuple[float, float]:
    """sup|σ'| and sup|σ''|."""
    least, most, flattest, sharpest = activation.extremes
    return max(-least, most), max(-flattest, sharpest)


def paper_bound(graph: Graph, softmax: Softmax, length: float) -> float:
    """√2·β_L + α_L² with the constants that the paper prints (corollary:softmax-smooth).

    α ← L⁰‖θ‖α and β ← L⁰‖θ‖β + L¹(‖θ‖α)², β starting at 0 (eq:lipschitzconsts).
    """
    ends = [(length, 0.0)]
    for node in graph.nodes[1:]:
        alpha, beta = (_joined(node, [ends[index][part] for index in node.inputs]) for part in (0, 1))
        match node.primitive and node.action:
            case Affine() as operator:
                norm = _printed_norm(operator)
                alpha, beta = norm * alpha, norm * beta if norm else 0.0
            case Pointwise() as activation:
                slope, sharpest = _steepest_and_sharpest(activation)
                curved = max(_PRINTED.get(activation.scalar.name, 0.0), sharpest)
                alpha, beta = slope * alpha, slope * beta + (curved * alpha * alpha if alpha else 0.0)
            case Primitive() as primitive:
                alpha, beta = primitive.amplify(alpha), math.inf
        ends.append((alpha, beta))
    alpha, beta = ends[-1]
    return up(math.sqrt(2) * softmax.slope * beta + softmax.spread * alpha * alpha)


def _joined(node: Node, numbers: list[float]) -> float:
    return sum(numbers) if node.axis is None else math.hypot(*numbers)


def _printed_norm(operator: Affine) -> float:
    """‖A‖ by the paper's formula.

    For average pooling √(N·m_u)/m_l: windows of m_l to m_u entries, N of which share one.
    """
    match operator:
        case Product():
            return math.prod(_printed_norm(part) for part in operator.parts)
        case AxisProduct(bias=None) if all(bool((matrix >= 0).all()) for matrix in operator.weights):
            members = [(matrix > 0).sum(1) for matrix in operator.weights]
            shared = math.prod(int((matrix > 0).sum(0).max()) for matrix in operator.weights)
            largest = math.prod(int(count.max()) for count in members)
            smallest = math.prod(int(count.min()) for count in members)
            return max(math.sqrt(shared * largest) / smallest, operator.norm)
    return operator.norm
