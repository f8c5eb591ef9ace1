"""Merging of adjacent affine layers, so that their norm is that of the product and not a product of norms.

Batch norm (eval mode) is folded into the convolution or matrix beside it, and so are an input normalisation,
a scaling, and the weights or the mask of a cost in front of the first layer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch
from torch import Tensor

from certus.kernel.graph import Node
from certus.kernel.operators import Affine, Convolution, Dense, Diagonal, Product, Reshape


def merge_affine_nodes(nodes: list[Node]) -> list[Node]:
    """Merge each affine node into the affine node before it, if nothing else uses that one."""
    uses = Counter(index for node in nodes for index in node.inputs)
    runs: list[list[Node]] = []
    place: dict[int, int] = {}
    for number, node in enumerate(nodes):
        before = runs[place[node.inputs[0]]] if isinstance(node.primitive, Affine) else []
        if before and isinstance(before[-1].primitive, Affine) and uses[node.inputs[0]] == 1:
            before.append(node)
            place[number] = place[node.inputs[0]]
        else:
            place[number] = len(runs)
            runs.append([node])
    return [replace(_joined(run), inputs=tuple(place[index] for index in run[0].inputs)) for run in runs]


def _joined(run: list[Node]) -> Node:
    """One node for a run; the names of mere reshapes are dropped."""
    if not isinstance(run[0].primitive, Affine):
        return run[0]
    named = [node for node in run if not isinstance(node.primitive, Reshape)] or run[-1:]
    return replace(
        run[-1],
        primitive=merge([node.primitive for node in run if isinstance(node.primitive, Affine)]),
        name="+".join(node.name for node in named),
        kind="+".join(node.kind for node in named),
        assumptions=tuple(dict.fromkeys(name for node in run for name in node.assumptions)),
    )


def merge(run: list[Affine]) -> Affine:
    """Merge a non-empty run of operators into one; identities are dropped."""
    merged: list[Affine] = []
    moving = [part for part in run if not isinstance(part, Reshape) or part.in_shape != part.out_shape]
    for operator in moving or run[:1]:
        merged.append(operator)
        while len(merged) > 1 and (joined := _product(*merged[-2:])) is not None:
            joined.folds = merged[-2].folds + merged[-1].folds + 1
            if joined.bias is not None:
                start = torch.zeros(1, *joined.in_shape, dtype=torch.float64)
                joined.bias_size = merged[-1].sizes(merged[-2].sizes(start))[0]
            merged[-2:] = [joined]
    return merged[0] if len(merged) == 1 else Product(tuple(merged))


def _product(first: Affine, second: Affine) -> Affine | None:
    """The product, if its weights are exact up to one rounding each; otherwise None."""
    bias = None
    if first.bias is not None or second.bias is not None:
        bias = second.apply(first.apply(torch.zeros(1, *first.in_shape, dtype=torch.float64)))[0]
    shapes = first.in_shape, second.out_shape
    match first, second:
        case Reshape(), Reshape():
            return Reshape(*shapes)
        case Dense(), Reshape():
            return Dense(first.weights[0], bias, *shapes)
        case Reshape(), Dense():
            return Dense(second.weights[0], bias, *shapes)
        case Diagonal(), Diagonal():
            return Diagonal(first.weights[0] * second.weights[0], bias, second.out_shape)
        case Diagonal(), Dense():
            return Dense(second.weights[0] * first.weights[0].flatten(), bias, *shapes)
        case Dense(), Diagonal():
            return Dense(first.weights[0] * second.weights[0].reshape(-1, 1), bias, *shapes)
        case Diagonal(), Convolution() if (channels := _per_channel(first)) is not None:
            return _scaled(second, channels, None, bias)
        case Convolution(), Diagonal() if (channels := _per_channel(second)) is not None:
            return _scaled(first, None, channels, bias)
    return None


def _per_channel(operator: Diagonal) -> Tensor | None:
    """One factor for each channel, if all positions share it."""
    flat = operator.weights[0].flatten(1)
    return flat[:, 0].clone() if bool((flat == flat[:, :1]).all()) else None


def _scaled(
    operator: Convolution, before: Tensor | None, after: Tensor | None, bias: Tensor | None
) -> Convolution:
    """diag(after)·A·diag(before), for one factor per channel."""
    weight, axes = operator.weights[0], operator.axes
    if before is not None:
        parts = before.reshape(operator.groups, 1, -1).expand(-1, len(weight) // operator.groups, -1)
        weight = weight * parts.reshape(*weight.shape[:2], *([1] * axes))
    if after is not None:
        weight = weight * after.reshape(-1, *([1] * (axes + 1)))
    return operator.with_weight(weight, bias)
