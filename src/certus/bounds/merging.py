"""Adjacent affine layers made one, so that their norm is that of the product and not a product of norms.

Batch norm (eval mode) is folded into the convolution or matrix beside it, and so are an input normalisation,
a scaling, and the weights or the mask of a cost in front of the first layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.bounds.composition import Step, assumptions_of
from certus.bounds.operators import Chain, Convolution, Dense, Diagonal, Operator, Reshape


def merge(run: list[Operator]) -> Operator:
    """One operator for a run of at least one; those that change nothing are left out."""
    merged: list[Operator] = []
    moving = [part for part in run if not isinstance(part, Reshape) or part.in_shape != part.out_shape]
    for operator in moving or run[:1]:
        merged.append(operator)
        while len(merged) > 1 and (joined := _join(*merged[-2:])) is not None:
            joined.folds = merged[-2].folds + merged[-1].folds + 1
            if joined.bias is not None:
                start = torch.zeros(1, *joined.in_shape, dtype=torch.float64)
                joined.bias_size = merged[-1].sizes(merged[-2].sizes(start))[0]
            merged[-2:] = [joined]
    return merged[0] if len(merged) == 1 else Chain(merged)


def merge_steps(steps: list[Step]) -> list[Step]:
    """Runs of affine layers made one step each; those that only reshape are not named."""
    merged: list[Step] = []
    run: list[Step] = []
    for step in [*steps, None]:
        if step is not None and isinstance(step.stage, Operator):
            run.append(step)
            continue
        if run:
            operator = merge([part.stage for part in run if isinstance(part.stage, Operator)])
            named = [part for part in run if not isinstance(part.stage, Reshape)] or run[-1:]
            path, kind = "+".join(part.path for part in named), "+".join(part.kind for part in named)
            shapes, assumed = (run[0].in_shape, run[-1].out_shape), assumptions_of(run)
            merged.append(Step(path, kind, operator, *shapes, assumptions=assumed))
            run = []
        if step is not None:
            merged.append(step)
    return merged


def _join(first: Operator, second: Operator) -> Operator | None:
    """The product, where its weights are exact up to one rounding each; None elsewhere."""
    bias = _bias(first, second)
    if isinstance(second, Reshape) and isinstance(first, Reshape):
        return Reshape(first.in_shape, second.out_shape)
    if isinstance(second, Reshape) and isinstance(first, Dense):
        return Dense(first.weights[0], bias, first.in_shape, second.out_shape)
    if isinstance(first, Reshape) and isinstance(second, Dense):
        return Dense(second.weights[0], bias, first.in_shape, second.out_shape)
    return _fold(first, second, bias)


def _fold(first: Operator, second: Operator, bias: Tensor | None) -> Operator | None:
    """Factors folded into what stands beside them."""
    if isinstance(first, Diagonal):
        factors = first.weights[0]
        if isinstance(second, Diagonal):
            return Diagonal(factors * second.weights[0], bias, second.out_shape)
        if isinstance(second, Dense):
            return Dense(second.weights[0] * factors.flatten(), bias, second.in_shape, second.out_shape)
        if isinstance(second, Convolution) and (channels := _per_channel(factors)) is not None:
            return second.scaled(channels, None, bias)
    if isinstance(second, Diagonal):
        factors = second.weights[0]
        if isinstance(first, Dense):
            return Dense(first.weights[0] * factors.reshape(-1, 1), bias, first.in_shape, first.out_shape)
        if isinstance(first, Convolution) and (channels := _per_channel(factors)) is not None:
            return first.scaled(None, channels, bias)
    return None


def _per_channel(factors: Tensor) -> Tensor | None:
    """One factor for each channel, if all positions share it."""
    flat = factors.flatten(1)
    return flat[:, 0].clone() if bool((flat == flat[:, :1]).all()) else None


def _bias(first: Operator, second: Operator) -> Tensor | None:
    """b of the product, (*out_shape); None if there is none."""
    if first.bias is None and second.bias is None:
        return None
    start = torch.zeros(1, *first.in_shape, dtype=torch.float64)
    return second.apply(first.apply(start))[0]
