"""Slopes in images cost more than they should: oneDNN pads the channels of a convolution to a multiple of 16.

The input gradient of a first convolution has one channel, or three, and 16 are computed. It can be written
as a product and a sum over windows, which pads nothing:

    ∂ℓ/∂x = fold(Wᵀ ∂ℓ/∂y),    fold: the sum of windows where they lie,    the adjoint of F.unfold

``benchmarks.image_slopes`` compares the two. Small windows keep PyTorch's own way, and so does float64, which
oneDNN does not have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

_FEW = 4  # channels; with more, the padding costs less than the windows do
_MANY = 2**15  # numbers in all images
_WIDE = 25  # places of a window
_BACKWARD = torch.ops.aten.convolution_backward.default


def image_slopes(model: object, inputs: Tensor) -> AbstractContextManager[Any]:
    """Inside, gradients in such ``inputs`` take the short way through the convolutions of ``model``.

    Watching every step of a gradient costs a tenth of a millisecond: where nothing is gained, nothing is
    watched.
    """
    images = inputs.dim() == 4 and inputs.shape[1] <= _FEW and inputs.numel() >= _MANY
    padded = images and inputs.dtype == torch.float32 and inputs.device.type == "cpu"
    gains = padded and isinstance(model, nn.Module) and any(map(_gains, model.modules()))
    return _ShortWay() if gains else nullcontext()  # type: ignore[no-untyped-call]  # torch's own


def _gains(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv2d) and part.in_channels <= _FEW and math.prod(part.kernel_size) >= _WIDE


class _ShortWay(TorchDispatchMode):
    """Computes the gradients of convolutions of few channels itself, if only the input's is asked for."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is _BACKWARD and not kwargs:
            slope, inputs, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args
            alone = list(wanted) == [True, False, False]
            plain = groups == 1 and not transposed and inputs.dtype == torch.float32
            few = inputs.dim() == 4 and inputs.shape[1] <= _FEW and weight[0, 0].numel() >= _WIDE
            if alone and plain and few:
                return _folded(slope, inputs, weight, stride, padding, dilation), None, None
        return func(*args, **(kwargs or {}))


def _folded(
    slope: Tensor,
    inputs: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    windows = weight.flatten(1).t() @ slope.flatten(2)
    size, kernel = tuple(inputs.shape[2:]), tuple(weight.shape[2:])
    return functional.fold(windows, size, kernel, tuple(dilation), tuple(padding), tuple(stride))
