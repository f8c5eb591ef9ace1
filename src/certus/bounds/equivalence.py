"""A model beside its steps: both are run on the same points, near and far.

In float64, on a copy of the model if it is not in float64 itself. One that runs in its own precision alone is
run in that, and not so far out; it must be float32 at least, since a coarser one would hide what was read
wrongly. A model that answers differently when asked again is refused too, and so is one that answers
differently when it is asked about one point at a time.

These points are few. So a certificate asks the model again at each of its samples and at every point that is
attained (``OriginalModel``), and counts the samples that the model, in its own precision, predicts otherwise.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from certus._eval_mode import eval_mode
from certus.bounds.passes import Shape, Step, run_steps
from certus.errors import ContradictionError, UnsupportedError, format_samples, require
from certus.losses import predicted, require_tensor

_FAR = (0.0, 1e-3, 1.0, 1.0, 30.0, 1e3, 1e6)
_NEAR = (0.0, 1e-3, 1.0, 1.0, 30.0)
_CLOSE = 1e-7
_OTHERWISE = 1e-3


def check_equivalence(model: nn.Module, steps: list[Step], shape: Shape) -> None:
    """Raise unless the steps compute what the model, at rest, does, up to its precision."""
    _check_repetition(model, shape)
    doubled = _in_float64(model, random_points(_NEAR, shape))
    tried, sizes = (model, _NEAR) if doubled is None else (doubled, _FAR)
    points = random_points(sizes, shape)
    outputs = _outputs(tried, points)
    close = _CLOSE if doubled is not None else 10 * math.sqrt(torch.finfo(outputs.dtype).eps)
    if torch.finfo(outputs.dtype).bits < 32:
        raise UnsupportedError(
            f"The model runs in {outputs.dtype} alone, too coarse to see whether it computes what was read "
            "of it. Let `model.double()` run: no numbers of that precision in its forward."
        )
    expected = run_steps(steps, points)
    if not _same(outputs, _one_by_one(tried, points), close, lost=True):
        raise UnsupportedError(
            "The model answers differently for a batch of one: its samples depend on each other, or on how "
            "many there are. Nothing can be proven about it."
        )
    if not _same(outputs, expected, close):
        raise UnsupportedError(
            "The model does not compute what was read of it: something in it, such as a hook, a state that "
            "changes, or an operation of its own, has no rule. Nothing can be proven about it."
        )


class OriginalModel:
    """The model that a certificate is about, as its caller has it, beside what was read of it.

    Args:
        normalized: whether the model ends in a log-softmax that was left out of what was read.
    """

    def __init__(self, model: nn.Module, shape: Shape, *, normalized: bool) -> None:
        with eval_mode(model):
            precise = _in_float64(model, random_points(_NEAR, shape))
        self._models: tuple[nn.Module, nn.Module] | None = (model, model if precise is None else precise)
        self._normalized = normalized

    def check(self, points: Tensor, expected: Tensor, error: Tensor) -> None:
        """Raise ``ContradictionError`` unless the model computes what was read of it, in float64 if it can.

        Args:
            expected, error: (n, …) outputs as read, and (n,) bounds on their rounding.
        """
        if self._models is None:
            return
        outputs = _at_rest(self._models[1], points)
        coarse = torch.finfo(outputs.dtype).eps / torch.finfo(torch.float64).eps
        close = _CLOSE if coarse == 1 else 10 * math.sqrt(torch.finfo(outputs.dtype).eps)
        if outputs.shape != expected.shape:
            raise _disagreement(list(range(len(points))), math.inf)
        expected = self._behind(expected)
        off = (outputs.cpu().double() - expected).flatten(1).abs().amax(1)
        room = close * (1 + expected.flatten(1).abs().amax(1)) + 4 * coarse * error
        wrong = ~(off <= room) & torch.isfinite(room)  # nothing is said of what overflows
        if bool(wrong.any()):
            raise _disagreement(wrong.nonzero().flatten().tolist(), float(off[wrong].max()))

    def differing(self, points: Tensor, expected: Tensor, *, labels: bool) -> Tensor:
        """(n,) whether the model as it is, in its own precision, predicts otherwise than was read of it.

        Args:
            labels: whether predictions are labels; else numbers, which differ by a thousandth of 1 + their
                size, or more.
        """
        if self._models is None:
            return torch.zeros(len(points), dtype=torch.bool)
        outputs = _at_rest(self._models[0], points).cpu().double().flatten(1)
        expected = expected.flatten(1)
        if labels:
            return predicted(outputs) != predicted(expected)
        return ~((outputs - expected).abs().amax(1) <= _OTHERWISE * (1 + expected.abs().amax(1)))

    def release(self) -> None:
        """Ask the model no more: what becomes of it later is the caller's business."""
        self._models = None

    def _behind(self, expected: Tensor) -> Tensor:
        return expected.log_softmax(1) if self._normalized else expected


def check_wrapper(wrapper: nn.Module, inner: nn.Module, points: Tensor) -> None:
    """Raise ``ContradictionError`` unless a wrapper computes what the module inside of it does."""
    if wrapper is inner:
        return
    outputs, expected = _at_rest(wrapper, points), _at_rest(inner, points)
    close = 10 * math.sqrt(torch.finfo(expected.dtype).eps)
    if not _same(outputs.cpu(), expected.cpu(), close, lost=True):
        raise ContradictionError(
            f"{type(wrapper).__name__} does not compute what the module inside of it computes: certify that "
            "module, or a model that is not wrapped."
        )


def _at_rest(model: nn.Module, points: Tensor) -> Tensor:
    with eval_mode(model):
        return _outputs(model, points)


def _disagreement(samples: list[int], off: float) -> ContradictionError:
    return ContradictionError(
        f"The outputs of the model differ from those of its layers as read by up to {off:.6g}, at "
        f"{format_samples(samples)} of a batch or at the points they were moved to. The model may have state "
        "that changes, or a forward that behaves differently during export. Nothing is shown or written."
    )


def _same(outputs: Tensor, expected: Tensor, close: float, *, lost: bool = False) -> bool:
    """Whether (batch, …) values are of one shape, and agree.

    Args:
        lost: whether values that have overflowed on both sides count as equal; another check refuses them.
    """
    if outputs.shape != expected.shape:
        return False
    one, other = (each.cpu().double().flatten(1) for each in (outputs, expected))
    gone = ~torch.isfinite(one).all(1) & ~torch.isfinite(other).all(1)
    return bool((_agree(one, other, close) | (gone if lost else False)).all())


def _agree(outputs: Tensor, expected: Tensor, close: float) -> Tensor:
    """(batch,) whether values agree; far out, both may have overflowed."""
    room = close * (1 + expected.abs().amax(1))
    overflow = ~torch.isfinite(expected).all(1) & ~torch.isfinite(outputs).all(1)
    overflow[: len(_NEAR) - 1] = False
    off = (outputs - expected).abs().nan_to_num(math.inf).amax(1)
    return (off <= room) & torch.isfinite(room) | overflow


def random_points(sizes: tuple[float, ...], shape: Shape) -> Tensor:
    """Random points, always the same ones, whose coordinates are about as large as each of ``sizes``."""
    directions = torch.randn(
        len(sizes), *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    return directions * torch.tensor(sizes, dtype=torch.float64).reshape(-1, *([1] * len(shape)))


def _outputs(model: nn.Module, points: Tensor) -> Tensor:
    parameter = next(model.parameters(), torch.zeros((), dtype=torch.float64))
    with torch.no_grad():
        outputs = require_tensor(model(points.clone().to(parameter)))  # which it may overwrite
    require(outputs.is_floating_point(), "model", "return floating-point numbers", outputs.dtype)
    return outputs


def _one_by_one(model: nn.Module, points: Tensor) -> Tensor:
    """The outputs of batches of one; none if the model knows no such batch."""
    try:
        return torch.cat([_outputs(model, point[None]) for point in points])
    except Exception:  # whatever a model of the user's may raise
        return torch.empty(0)


def _check_repetition(model: nn.Module, shape: Shape) -> None:
    points = random_points(_NEAR, shape)
    first, second = _outputs(model, points), _outputs(model, points)
    close = 10 * math.sqrt(torch.finfo(first.dtype).eps)
    if not _same(first, second, close, lost=True):
        raise UnsupportedError(
            "The model gives other outputs when it is asked again: it is random, or changes as it runs. "
            "Nothing can be proven about it."
        )


def _in_float64(model: nn.Module, points: Tensor) -> nn.Module | None:
    """The model, or a copy of it, in float64 on the CPU; None if there is none that runs."""
    weights = [*model.parameters(), *model.buffers()]
    single = [each for each in weights if each.is_floating_point() and each.dtype != torch.float64]
    if not single and all(each.device.type == "cpu" for each in weights):
        return model
    try:
        copied = copy.deepcopy(model).cpu().double()
        outputs = _outputs(copied, points)
    except Exception:  # whatever a model of the user's may raise
        return None
    return copied if outputs.dtype == torch.float64 else None
