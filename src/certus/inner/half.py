"""bfloat16 in the inner problem: the passes of an ascent, whose points need few digits.

The model runs under autocast with its parameters frozen; criterion, cost and steps stay in the precision of
the inputs, and f counts as risen up to the rounding error of the loss. The outer step of a training is not
changed. It pays on devices with bfloat16 instructions, for networks whose time goes into wide products.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TypeGuard

import torch
from torch import Tensor, nn

from certus._eval_mode import models_in
from certus.errors import ArgumentError
from certus.losses import AnyLoss, ModelLoss, autocast_type

PRECISIONS = ("auto", "float32", "bfloat16")
_WIDE = {nn.Linear: 2**17, nn.Conv1d: 2**13, nn.Conv2d: 2**13, nn.Conv3d: 2**13}
"""Least number of weights of a layer that pays; a convolution uses each of them many times."""
_SHARE = 0.5  # least share of the weights in layers that pay
_BATCH = 32  # least number of samples


def in_precision(loss: AnyLoss, inputs: Tensor, precision: str) -> AnyLoss:
    """Return the loss in bfloat16 where it is wanted: "bfloat16", or "auto" where it pays; else as it is."""
    if precision == "float32" or (precision == "auto" and not pays(loss, inputs)):
        return loss
    if not _supported(loss, inputs):
        raise ArgumentError(
            '`precision` must be "auto" or "float32", unless the loss is a ModelLoss of a float32 model and '
            'has float32 inputs; got "bfloat16".'
        )
    return replace(loss, autocast=torch.bfloat16)


def pays(loss: AnyLoss, inputs: Tensor) -> bool:
    """Whether bfloat16 saves time: by the device, the size of the batch and the layers, never by a clock."""
    if not _supported(loss, inputs) or len(inputs) < _BATCH or not has_bfloat16(inputs.device.type):
        return False
    wide = 0
    for part in loss.model.modules():
        weights = part.weight.numel() if type(part) in _WIDE and isinstance(part.weight, Tensor) else 0
        wide += weights if weights >= _WIDE.get(type(part), 0) else 0
    return wide > _SHARE * sum(weights.numel() for weights in loss.model.parameters())


def _supported(loss: AnyLoss, inputs: Tensor) -> TypeGuard[ModelLoss]:
    """Whether a loss runs in float32, and can run in bfloat16."""
    if not isinstance(loss, ModelLoss) or loss.autocast is not None or inputs.dtype != torch.float32:
        return False
    if autocast_type(inputs.device.type) is not None:  # the caller has chosen
        return False
    return all(each.dtype == torch.float32 for each in loss.model.parameters())


@cache
def has_bfloat16(device: str) -> bool:
    """Whether a device computes products of bfloat16 by instructions of its own.

    >>> has_bfloat16("meta")
    False
    """
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device == "cpu":
        names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        return any(bool(getattr(torch.cpu, name, bool)()) for name in names)
    return False


@contextmanager
def frozen(loss: AnyLoss) -> Iterator[None]:
    """Take the gradient away from all parameters of a loss for the time of a block."""
    parameters = [each for model in models_in(loss) for each in model.parameters() if each.requires_grad]
    for each in parameters:
        each.requires_grad_(False)
    try:
        yield
    finally:
        for each in parameters:
            each.requires_grad_(True)
