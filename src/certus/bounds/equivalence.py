"""Comparison of a model with its graph: both are run at the same points of many sizes.

In float64, on a copy of the model if its own precision differs. A model that runs only in its own precision
is compared in that, on smaller points; it must be float32 at least, since a coarser one would hide errors. A
model whose outputs differ between two calls, or between a batch and single points, is refused.

These points are few. So a certificate also evaluates the model at each of its samples and at every attained
point (``OriginalModel``), and counts the samples whose predictions differ in the model's own precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus.errors import ContradictionError, UnsupportedError, format_samples, require
from certus.kernel.passes import Shape
from certus.losses import predicted, require_tensor

_FAR = (0.0, 1e-3, 1.0, 1.0, 30.0, 1e3, 1e6)
_NEAR = (0.0, 1e-3, 1.0, 1.0, 30.0)
_CLOSE = 1e-7
_OTHERWISE = 1e-3


def check_equivalence(model: nn.Module, apply: Callable[[Tensor], Tensor], shape: Shape) -> None:
    """Raise ``UnsupportedError`` unless ``apply`` computes the outputs of the model, up to its precision."""
    points = random_points(_NEAR, shape)
    first, second = _outputs(model, points), _outputs(model, points)
    if not _same(first, second, 10 * math.sqrt(torch.finfo(first.dtype).eps), lost=True):
        raise UnsupportedError(
            "The outputs of the model differ between two calls: it is random, or changes its state, so "
            "nothing can be proven about it."
        )
    doubled = _in_float64(model, points)
    tried, sizes = (model, _NEAR) if doubled is None else (doubled, _FAR)
    points = random_points(sizes, shape)
    outputs = _outputs(tried, points)
    close = _CLOSE if doubled is not None else 10 * math.sqrt(torch.finfo(outputs.dtype).eps)
    if torch.finfo(outputs.dtype).bits < 32:
        raise UnsupportedError(
            f"The model runs only in {outputs.dtype}, which is too coarse to verify its layers. Remove "
            "conversions to that precision from its forward, so that `model.double()` runs."
        )
    expected = apply(points)
    single = _one_by_one(tried, points)
    if not _same(outputs, single, close, lost=True):
        if not all(bool(torch.isfinite(each).all()) for each in (outputs, single)):
            raise UnsupportedError(
                f"The outputs of the model overflow {outputs.dtype}, and differ for a batch of one, so "
                "nothing can be proven about it."
            )
        raise UnsupportedError(
            "The outputs of the model differ for a batch of one: samples depend on each other, or on the "
            "batch size, so nothing can be proven about it."
        )
    if not _same(outputs, expected, close):
        raise UnsupportedError(
            "The outputs of the model differ from those of its layers as read: a hook, changing state or a "
            "custom operation has no rule, so nothing can be proven about it."
        )


class OriginalModel:
    """The caller's own model, for comparison with its graph.

    Args:
        normalized: whether the model ends in a log-softmax that the graph omits.
    """

    def __init__(self, model: nn.Module, shape: Shape, *, normalized: bool) -> None:
        with eval_mode(model):
            precise = _in_float64(model, random_points(_NEAR, shape))
        self._models: tuple[nn.Module, nn.Module] | None = (model, model if precise is None else precise)
        self._normalized = normalized

    def check(self, points: Tensor, expected: Tensor, error: Tensor) -> None:
        """Raise ``ContradictionError`` unless the model computes the expected outputs, in float64 if it can.

        Args:
            expected, error: (n, …) outputs of the graph, and (n,) bounds on their rounding.
        """
        if self._models is None:
            return
        outputs = _eval_outputs(self._models[1], points)
        coarse = torch.finfo(outputs.dtype).eps / torch.finfo(torch.float64).eps
        close = _CLOSE if coarse == 1 else 10 * math.sqrt(torch.finfo(outputs.dtype).eps)
        if outputs.shape != expected.shape:
            raise _disagreement(list(range(len(points))), math.inf)
        expected = expected.log_softmax(1) if self._normalized else expected
        off = (outputs.cpu().double() - expected).flatten(1).abs().amax(1)
        room = close * (1 + expected.flatten(1).abs().amax(1)) + 4 * coarse * error
        wrong = ~(off <= room) & torch.isfinite(room)  # overflows are not compared
        if bool(wrong.any()):
            raise _disagreement(wrong.nonzero().flatten().tolist(), float(off[wrong].max()))

    def differing(self, points: Tensor, expected: Tensor, *, labels: bool) -> Tensor:
        """(n,) whether the predictions of the model, in its own precision, differ from the expected ones.

        Args:
            labels: whether predictions are labels; otherwise they are numbers, which differ if they are
                apart by at least 10⁻³·(1 + size).
        """
        if self._models is None:
            return torch.zeros(len(points), dtype=torch.bool)
        outputs = _eval_outputs(self._models[0], points).cpu().double().flatten(1)
        expected = expected.flatten(1)
        if labels:
            return predicted(outputs) != predicted(expected)
        return ~((outputs - expected).abs().amax(1) <= _OTHERWISE * (1 + expected.abs().amax(1)))

    def release(self) -> None:
        """Drop the model; later changes to it do not matter."""
        self._models = None


def check_wrapper(wrapper: nn.Module, inner: nn.Module, points: Tensor) -> None:
    """Raise ``ContradictionError`` unless a wrapper computes the outputs of the module inside it."""
    if wrapper is inner:
        return
    outputs, expected = _eval_outputs(wrapper, points), _eval_outputs(inner, points)
    close = 10 * math.sqrt(torch.finfo(expected.dtype).eps)
    if not _same(outputs.cpu(), expected.cpu(), close, lost=True):
        raise ContradictionError(
            f"The outputs of {type(wrapper).__name__} differ from those of the module that it wraps: certify "
            "that module instead."
        )


def _eval_outputs(model: nn.Module, points: Tensor) -> Tensor:
    with eval_mode(model):
        return _outputs(model, points)


def _disagreement(samples: list[int], off: float) -> ContradictionError:
    return ContradictionError(
        f"The outputs of the model differ from those of its layers as read by up to {off:.6g}, at "
        f"{format_samples(samples)} of a batch or at the points they were moved to. The model may have state "
        "that changes, or a forward that behaves differently during export. Nothing is shown or written."
    )


def _same(outputs: Tensor, expected: Tensor, close: float, *, lost: bool = False) -> bool:
    """Whether (batch, …) values have the same shape and agree.

    Args:
        lost: whether values that overflow on both sides count as equal at all points; another check refuses
            them.
    """
    if outputs.shape != expected.shape:
        return False
    left, right = (each.cpu().double().flatten(1) for each in (outputs, expected))
    overflow = ~torch.isfinite(left).all(1) & ~torch.isfinite(right).all(1)
    if not lost:
        overflow[: len(_NEAR) - 1] = False  # far points may overflow
    room = close * (1 + right.abs().amax(1))
    off = (left - right).abs().nan_to_num(math.inf).amax(1)
    return bool(((off <= room) & torch.isfinite(room) | overflow).all())


def random_points(sizes: tuple[float, ...], shape: Shape) -> Tensor:
    """Random points from a fixed seed, with coordinates of about the given sizes."""
    directions = torch.randn(
        len(sizes), *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    return directions * torch.tensor(sizes, dtype=torch.float64).reshape(-1, *([1] * len(shape)))


def _outputs(model: nn.Module, points: Tensor) -> Tensor:
    parameter = next(model.parameters(), torch.zeros((), dtype=torch.float64))
    with torch.no_grad():
        outputs = require_tensor(model(points.clone().to(parameter)))  # a copy, which it may overwrite
    require(outputs.is_floating_point(), "model", "return floating-point numbers", outputs.dtype)
    return outputs


def _one_by_one(model: nn.Module, points: Tensor) -> Tensor:
    """The outputs for batches of one sample; empty if the model fails on them."""
    try:
        return torch.cat([_outputs(model, point[None]) for point in points])
    except Exception:  # a user's model may raise anything
        return torch.empty(0)


def _in_float64(model: nn.Module, points: Tensor) -> nn.Module | None:
    """The model, or a copy of it, in float64 on the CPU; None if that does not run."""
    weights = [*model.parameters(), *model.buffers()]
    single = [each for each in weights if each.is_floating_point() and each.dtype != torch.float64]
    if not single and all(each.device.type == "cpu" for each in weights):
        return model
    try:
        copied = copy.deepcopy(model).cpu().double()
        outputs = _outputs(copied, points)
    except Exception:  # a user's model may raise anything
        return None
    return copied if outputs.dtype == torch.float64 else None
