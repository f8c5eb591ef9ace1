"""Losses ℓ(θ; z), one number per sample; the parameters θ are part of the loss.

A *loss* is any callable ``loss(inputs, targets) -> (batch,)``, or ``loss(inputs) -> (batch,)`` without
targets. ``ModelLoss`` combines a network and a criterion. Nothing here reduces over the batch: the surrogate
of one sample must not depend on the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from certus.errors import ArgumentError, CertusError, LossError, format_samples, require

__all__ = [
    "AnyLoss",
    "Criterion",
    "CrossEntropy",
    "Logistic",
    "Loss",
    "MissProbability",
    "ModelLoss",
    "OutputLoss",
    "SmoothMargin",
    "SquaredError",
]


_HALVES = (torch.bfloat16, torch.float16)
_OF_SHAPES = re.compile(r"\b(shapes?|sizes?|dim|dimensions?|channels?|elements|[1-5]D)\b")  # in torch's words


Loss = Callable[[Tensor, Tensor], Tensor]
"""ℓ(θ; (x, y)): inputs and targets → (batch,), one value per sample."""

AnyLoss = Loss | Callable[[Tensor], Tensor]
"""A loss of inputs and targets, or of inputs alone."""

Criterion = Callable[[Tensor, Tensor], Tensor]
"""A function of a model's outputs and the targets: (batch, …) and (batch, …) → (batch,)."""


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ_k t_k log p_k, p the softmax of the outputs (eqn:softmax).

    Args:
        label_smoothing: ε; the targets become t = (1 − ε)·e_y + ε/K. The training step must use the same ε
            as the surrogate, or ∇φ = ∇ℓ(T) no longer holds.
        temperature: the outputs are divided by it.

    >>> CrossEntropy()(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """

    label_smoothing: float = 0.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require(0 <= self.label_smoothing < 1, "label_smoothing", "lie in [0, 1)", self.label_smoothing)
        require(0 < self.temperature < math.inf, "temperature", "be positive and finite", self.temperature)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_labels("CrossEntropy", outputs, targets)
        if self.temperature != 1:
            outputs = outputs / self.temperature
        smoothing = self.label_smoothing
        return functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)


@dataclass(frozen=True)
class SmoothMargin:
    """(1/b) log(1 + Σ_{k≠y} exp b(F_k − F_y + margin)): a multi-class hinge with a rounded corner.

    As b grows it tends to max(0, margin − (F_y − max_{k≠y} F_k)); b = 1 with margin 0 is the cross-entropy.

    >>> outputs = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
    >>> SmoothMargin(margin=1.0, sharpness=100.0)(outputs, torch.tensor([0, 0])).abs()
    tensor([0., 4.])
    """

    margin: float = 1.0
    sharpness: float = 10.0

    def __post_init__(self) -> None:
        require(math.isfinite(self.margin), "margin", "be finite", self.margin)
        require(0 < self.sharpness < math.inf, "sharpness", "be positive and finite", self.sharpness)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_labels("SmoothMargin", outputs, targets)
        own = functional.one_hot(targets, outputs.shape[1]).to(torch.bool)
        lifted = torch.where(own, outputs, outputs + self.margin) * self.sharpness
        return functional.cross_entropy(lifted, targets, reduction="none") / self.sharpness


@dataclass(frozen=True)
class MissProbability:
    """1 − p_y, p the softmax of the outputs: bounded between 0 and 1, for randomised smoothing.

    >>> MissProbability()(torch.zeros(1, 4), torch.tensor([2]))
    tensor([0.7500])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_labels("MissProbability", outputs, targets)
        own = functional.one_hot(targets, outputs.shape[1]).to(torch.bool)
        # The sum over the others keeps its digits where 1 − p_y would lose them.
        return torch.where(own, 0, outputs.softmax(1)).sum(1)


@dataclass(frozen=True)
class OutputLoss:
    """ℓ(θ; z) = F(z): the model's own output, (batch,) or (batch, 1), is the loss; targets are ignored.

    For losses without labels, such as a negative log-density or the reconstruction error of an autoencoder;
    ``Samples.unlabelled`` makes the data. ``fit`` trains them by any method. Of certificates they have the
    *attained* sides only: no upper bound is proven for a loss without a rule.

    >>> OutputLoss()(torch.tensor([[2.0], [3.0]]), torch.zeros(2))
    tensor([2., 3.])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.shape not in ((len(targets),), (len(targets), 1)):
            raise LossError(
                "OutputLoss needs a model that returns one loss per sample, of shape "
                f"({len(targets)},) or ({len(targets)}, 1); got {tuple(outputs.shape)}."
            )
        return outputs.reshape(len(targets))


@dataclass(frozen=True)
class Logistic:
    """log(1 + exp(−sF)) for one output F and s = ±1 as the label is 1 or 0.

    >>> Logistic()(torch.zeros(2, 1), torch.tensor([0, 1]))
    tensor([0.6931, 0.6931])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.softplus(_negative_margins("Logistic", outputs, targets), threshold=40.0)


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 − sF) for one output F and s = ±1 as the label is 1 or 0; or its square.

    >>> Hinge()(torch.tensor([[0.5], [0.5]]), torch.tensor([0, 1]))
    tensor([1.5000, 0.5000])
    """

    squared: bool = False

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values = (1 + _negative_margins("Hinge", outputs, targets)).clamp_min(0)
        return values**2 if self.squared else values


def _negative_margins(name: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) −sF; raises ``LossError`` unless there is one output per sample, with labels 0 or 1."""
    if outputs.numel() != len(outputs) or targets.shape != outputs.shape[:1]:
        raise LossError(
            f"{name} needs one output per sample and as many targets; got {tuple(outputs.shape)} and "
            f"{tuple(targets.shape)}."
        )
    if not bool(((targets == 0) | (targets == 1)).all()):
        raise LossError(f"{name} needs `targets` that are 0 or 1; got other values.")
    return (1 - 2 * targets.to(outputs)) * outputs.flatten()


def predicted(outputs: Tensor) -> Tensor:
    """The labels of outputs: the largest of several, or 1 where a single one is positive.

    >>> predicted(torch.tensor([[0.0, 2.0]])), predicted(torch.tensor([[-1.0], [3.0]]))
    (tensor([1]), tensor([0, 1]))
    """
    if outputs.dim() == 2 and outputs.shape[1] > 1:
        return outputs.argmax(1)
    if outputs.numel() != len(outputs):
        raise LossError(f"A classifier needs outputs of shape (batch, classes); got {tuple(outputs.shape)}.")
    return (outputs.flatten() > 0).long()


_VALID_LABELS: MutableMapping[Tensor, tuple[int, int]] = WeakTensorKeyDictionary()
"""Labels that were checked → their version at the time, and the number of classes."""


def selected_targets(targets: Tensor, index: Tensor) -> Tensor:
    """Return some of the targets; labels among those that were checked are not checked again."""
    selected = targets[index]
    state = _VALID_LABELS.get(targets)
    if state is not None and state[0] == targets._version:
        _VALID_LABELS[selected] = (selected._version, state[1])
    return selected


def check_labels(name: str, outputs: Tensor, targets: Tensor) -> None:
    """Raise ``LossError`` unless ``targets`` are labels of the (batch, classes) outputs."""
    if outputs.dim() != 2:
        raise LossError(f"{name} needs outputs of shape (batch, classes); got {tuple(outputs.shape)}.")
    if targets.shape != outputs.shape[:1] or targets.dtype != torch.long:
        raise LossError(
            f"{name} needs `targets` of shape ({len(outputs)},) and dtype torch.int64; "
            f"got shape {tuple(targets.shape)} and dtype {targets.dtype}."
        )
    # To read a result waits for the device. An ascent asks again about the same tensor, at every step.
    counted = not targets.is_inference()
    state = (targets._version, outputs.shape[1]) if counted else None
    if counted and _VALID_LABELS.get(targets) == state:
        return
    wrong = (targets < 0) | (targets >= outputs.shape[1])
    if bool(wrong.any()):
        raise LossError(
            f"`targets` must be labels from 0 to {outputs.shape[1] - 1}; got "
            f"{targets[wrong][0].item()} at {format_samples(wrong.nonzero().flatten().tolist())}."
        )
    if state is not None:
        _VALID_LABELS[targets] = state


@dataclass(frozen=True)
class SquaredError:
    """‖F(x) − y‖₂², summed over the outputs of a sample; no factor ½.

    Outputs of shape (batch, 1) and targets of shape (batch,) are compared elementwise.

    >>> SquaredError()(torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 0.0]))
    tensor([1., 4.])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values, goals = _paired(outputs, targets)
        return ((values - goals) ** 2).sum(1)


def _paired(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return both as (batch, outputs): (batch, 1) − (batch,) would broadcast to a square."""
    count = len(outputs)
    if outputs.numel() != targets.numel() or count != len(targets):
        raise LossError(
            f"SquaredError needs as many targets as outputs, {tuple(outputs.shape)}; got "
            f"{tuple(targets.shape)}."
        )
    return outputs.reshape(count, -1), targets.reshape(count, -1)


@dataclass(frozen=True)
class MeanSquaredError:
    """‖F(x) − y‖₂²/K, the mean over the K outputs of a sample: ``torch.nn.MSELoss`` sample by sample.

    >>> MeanSquaredError()(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
    tensor([2.5000])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return SquaredError()(outputs, targets) / (outputs.numel() / max(1, len(outputs)))


@dataclass(frozen=True)
class Huber:
    """The mean over the outputs of r²/2 for |r| ≤ δ, else δ(|r| − δ/2), r = F − y: ``torch.nn.HuberLoss``.

    >>> Huber()(torch.tensor([[0.5], [3.0]]), torch.zeros(2))
    tensor([0.1250, 2.5000])
    """

    delta: float = 1.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values, goals = _paired(outputs, targets)
        return functional.huber_loss(values, goals.to(values), reduction="none", delta=self.delta).mean(1)


@dataclass(frozen=True, eq=False)
class WeightedCrossEntropy:
    """w_y times the cross-entropy, w the (classes,) weights; with label smoothing ε, −Σ_k t_k w_k log p_k, t
    = (1 − ε)e_y + ε/K."""

    weights: Tensor
    label_smoothing: float = 0.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_labels("CrossEntropyLoss", outputs, targets)
        if len(self.weights) != outputs.shape[1]:
            raise LossError(
                f"CrossEntropyLoss needs one `weight` for each of the {outputs.shape[1]} classes; got "
                f"{len(self.weights)}."
            )
        weights, smoothing = self.weights.to(outputs), self.label_smoothing
        return functional.cross_entropy(
            outputs, targets, weights, reduction="none", label_smoothing=smoothing
        )


@dataclass(frozen=True)
class BinaryCrossEntropy:
    """``Logistic``, times p where the label is 1; labels may be floats and have a second axis of length 1.

    >>> BinaryCrossEntropy(2.0)(torch.zeros(2, 1), torch.tensor([[0.0], [1.0]]))
    tensor([0.6931, 1.3863])
    """

    positive_weight: float = 1.0

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        labels = targets.flatten() if targets.numel() == len(targets) else targets
        return Logistic()(outputs, labels) * torch.where(labels == 1, self.positive_weight, 1.0).to(outputs)


@dataclass(frozen=True)
class InferredCriterion:
    """Cross-entropy for labels and squared error for numbers, depending on the targets.

    >>> InferredCriterion()(torch.tensor([[3.0]]), torch.tensor([1.0]))
    tensor([4.])
    """

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return inferred_criterion(targets)(outputs, targets)


def inferred_criterion(targets: Tensor | None) -> Criterion:
    """Cross-entropy for int64 labels and predicted labels (None); squared error for floats."""
    if targets is None or targets.dtype == torch.long:
        return CrossEntropy()
    if targets.is_floating_point():
        return SquaredError()
    raise ArgumentError(f"`targets` must be int64 labels or floating-point numbers; got {targets.dtype}.")


def is_labelled(criterion: Criterion, targets: Tensor) -> bool:
    """Whether targets are labels, so that errors can be counted: floats only for one logistic output."""
    return not targets.is_floating_point() or isinstance(criterion, BinaryCrossEntropy | Logistic | Hinge)


def as_criterion(criterion: Any, targets: Tensor | None = None) -> Criterion:
    """The per-sample criterion of certus for None (see ``InferredCriterion``), any callable of outputs and
    targets, or a criterion of torch with reduction "mean" or "none".

    A ``CrossEntropyLoss`` with weights and reduction "mean" divides by the weights of all ``targets``.

    >>> as_criterion(nn.CrossEntropyLoss(label_smoothing=0.1))
    CrossEntropy(label_smoothing=0.1, temperature=1.0)
    """
    if criterion is None:
        return InferredCriterion()
    usable = callable(criterion) and not isinstance(criterion, type)
    rule = "be a criterion, such as certus.CrossEntropy() or torch.nn.MSELoss()"
    require(usable, "criterion", rule, repr(criterion))
    reduction = getattr(criterion, "reduction", "none")
    supported = type(criterion) in (nn.CrossEntropyLoss, nn.MSELoss, nn.HuberLoss, nn.BCEWithLogitsLoss)
    if reduction != "none" and not (supported and reduction == "mean"):
        raise LossError(
            f"`criterion` must return one number per sample; got reduction={reduction!r}. Use "
            f'reduction="none", and take the mean yourself.'
        )
    match criterion if supported else None:
        case nn.CrossEntropyLoss():
            rule = "have a negative `ignore_index`; remove the ignored samples from the data"
            require(criterion.ignore_index < 0, "criterion", rule, criterion.ignore_index)
            if criterion.weight is None:
                return CrossEntropy(criterion.label_smoothing)
            weights = criterion.weight.detach()
            if reduction == "mean":
                weights = weights * _share_of(weights, targets)
            return WeightedCrossEntropy(weights, criterion.label_smoothing)
        case nn.MSELoss():
            return MeanSquaredError()
        case nn.HuberLoss():
            return Huber(criterion.delta)
        case nn.BCEWithLogitsLoss(pos_weight=positive):
            rule = "have no `weight`: give the samples weights, in `Samples`"
            require(criterion.weight is None, "criterion", rule, criterion.weight)
            single = positive is None or positive.numel() == 1
            require(single, "criterion", "have a `pos_weight` of one number", positive)
            return BinaryCrossEntropy() if positive is None else BinaryCrossEntropy(float(positive))
    loss: Criterion = criterion
    return loss


def _share_of(weights: Tensor, targets: Tensor | None) -> float:
    """n/Σ w_y: with this factor the mean over the samples equals torch's."""
    if targets is None or targets.is_floating_point() or targets.dim() != 1 or len(targets) == 0:
        raise LossError(
            "`criterion` divides by the weights of each batch, so that it has no loss per sample; use "
            'reduction="none", which gives w_y times the loss of each sample.'
        )
    inside = (targets >= 0) & (targets < len(weights))
    require(bool(inside.all()), "targets", f"be labels from 0 to {len(weights) - 1}", "others")
    return len(targets) / float(weights.cpu().double()[targets.cpu()].sum())


def require_tensor(outputs: object) -> Tensor:
    """Return the outputs of a model if they are a tensor; otherwise raise ``LossError`` with a remedy.

    >>> require_tensor({"logits": torch.zeros(2, 3)})
    Traceback (most recent call last):
    certus.errors.LossError: The model must return one tensor, (batch, outputs); got a dict of 'logits'. ...
    """
    if isinstance(outputs, Tensor):
        return outputs
    kind, remedy = f"a {type(outputs).__name__}", "its outputs"
    if isinstance(outputs, Mapping):
        names = [repr(name) for name in outputs] or ["…"]
        kind, remedy = f"{kind} of {', '.join(names)}", f"model(x)[{names[0]}]"
    elif isinstance(outputs, tuple | list):
        kind, remedy = f"{kind} of {len(outputs)}", "model(x)[0]"
    raise LossError(
        f"The model must return one tensor, (batch, outputs); got {kind}. Wrap it in a module whose forward "
        f"returns {remedy}."
    )


def autocast_type(device: str) -> torch.dtype | None:
    """Return the type of the autocast in force for a kind of device; None where there is none.

    >>> with torch.autocast("cpu", torch.bfloat16):
    ...     autocast_type("cpu"), autocast_type("meta")
    (torch.bfloat16, None)
    """
    if not torch.amp.autocast_mode.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


@dataclass(frozen=True, eq=False)
class ModelLoss:
    """ℓ(θ; (x, y)) = criterion(model(x), y).

    Args:
        model: any module; its parameters are θ. It runs in the mode it is in; inside an ascent, in eval mode.
        criterion: ``CrossEntropy()`` for labels and ``SquaredError()`` for numbers when None; any other
            criterion of certus, or of torch, sample by sample (``as_criterion``).
        autocast: ``torch.bfloat16`` or ``torch.float16``, in which the model runs (``torch.autocast``); the
            criterion gets float32. None for the precision of the model, or of the caller's autocast.

    >>> loss = ModelLoss(nn.Linear(3, 2), CrossEntropy(label_smoothing=0.1))
    >>> loss(torch.zeros(5, 3), torch.zeros(5, dtype=torch.long)).shape
    torch.Size([5])
    """

    model: nn.Module
    criterion: Criterion = InferredCriterion()
    autocast: torch.dtype | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        rule = "be torch.bfloat16, torch.float16 or None"
        require(self.autocast in (None, *_HALVES), "autocast", rule, self.autocast)
        require(isinstance(self.model, nn.Module), "model", "be a torch.nn.Module", type(self.model))
        object.__setattr__(self, "criterion", as_criterion(self.criterion))

    def outputs(self, inputs: Tensor) -> Tensor:
        """The outputs of the model for a copy of the inputs, which it may overwrite."""
        half = self.autocast is not None
        try:
            with torch.autocast(inputs.device.type, self.autocast) if half else nullcontext():
                outputs = self.model(inputs.clone())
        except (RuntimeError, TypeError, ValueError) as reason:
            if (explanation := self._explanation(inputs, reason)) is None:
                raise
            raise LossError(f"`inputs` must have {explanation}") from reason
        outputs = require_tensor(outputs)
        return outputs.to(inputs.dtype) if half else outputs

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return self.criterion(self.outputs(inputs), targets)

    def _explanation(self, inputs: Tensor, reason: Exception) -> str | None:
        """The device, dtype or shape of the inputs for which the model failed, if it is one of them."""
        parameter = next(self.model.parameters(), None)
        if parameter is not None and autocast_type(inputs.device.type) is None:
            for what in ("device", "dtype"):
                has, needs = getattr(inputs, what), getattr(parameter, what)
                if has != needs:
                    return f"the model's {what} {needs}; got {has}."
        if _OF_SHAPES.search(str(reason)) and not isinstance(reason, CertusError | torch.OutOfMemoryError):
            shape = ", ".join(["batch", *map(str, inputs.shape[1:])])
            return f"a shape that the model takes; it fails at ({shape}): {reason}"
        return None


def evaluate_loss(loss: AnyLoss, inputs: Tensor, targets: Tensor | None) -> Tensor:
    """ℓ at each sample, (batch,), checked to be one floating-point number per sample."""
    values: Tensor = loss(inputs) if targets is None else loss(inputs, targets)  # type: ignore[call-arg]  # either kind
    if not isinstance(values, Tensor):
        raise LossError(f"The loss must return a tensor of shape (batch,); got {type(values)}.")
    if values.dim() == 0:
        raise LossError(
            "The loss must return one number per sample; it returned a single number. Use "
            'reduction="none", and take the mean yourself.'
        )
    if values.shape != (len(inputs),):
        raise LossError(
            f"The loss must return one number per sample, shape ({len(inputs)},); "
            f"got shape {tuple(values.shape)}."
        )
    if not values.is_floating_point():
        raise LossError(f"The loss must return real floating-point numbers; got {values.dtype}.")
    return values


def loss_and_slope(
    loss: AnyLoss, inputs: Tensor, targets: Tensor | None, *, keep_graph: bool = False
) -> tuple[Tensor, Tensor]:
    """ℓ and ∇_x ℓ at each sample: one forward pass, and one backward pass of the summed losses to the inputs
    only. ``keep_graph`` makes the slope differentiable in ``inputs``."""
    with torch.enable_grad():
        values = evaluate_loss(loss, inputs, targets)
        slope = None
        if values.requires_grad:
            with fast_image_gradients(getattr(loss, "model", None), inputs):
                (slope,) = torch.autograd.grad(
                    values.sum(), inputs, create_graph=keep_graph, allow_unused=True
                )
    if slope is None:
        raise LossError(
            "The loss must be differentiable in its inputs; it is detached from them, or not differentiable."
        )
    return values, slope


_FEW = 4  # channels; with more, padding is cheaper than windows
_MANY = 2**15  # least number of entries of all images
_WIDE = 25  # least number of entries of a window


def fast_image_gradients(model: object, inputs: Tensor) -> AbstractContextManager[Any]:
    """Context in which gradients with respect to images avoid the channels that oneDNN pads to 16.

    The input gradient of a first convolution has one channel, or three. As a matrix product and a sum over
    windows it needs no padding (``benchmarks.image_slopes`` compares the two):

        ∂ℓ/∂x = fold(Wᵀ ∂ℓ/∂y),    fold: the sum of overlapping windows, the adjoint of F.unfold

    Small windows, and float64, which oneDNN does not support, gain nothing: the context is empty there.
    """
    images = inputs.dim() == 4 and inputs.shape[1] <= _FEW and inputs.numel() >= _MANY
    padded = images and inputs.dtype == torch.float32 and inputs.device.type == "cpu"
    gains = padded and isinstance(model, nn.Module) and any(map(_gains, model.modules()))
    return _FoldedBackward() if gains else nullcontext()  # type: ignore[no-untyped-call]  # torch's own


def _gains(part: nn.Module) -> bool:
    return isinstance(part, nn.Conv2d) and part.in_channels <= _FEW and math.prod(part.kernel_size) >= _WIDE


class _FoldedBackward(TorchDispatchMode):
    """Computes input gradients of convolutions with few channels by ``fold``, if no other one is needed."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.convolution_backward.default and not kwargs:
            slope, inputs, weight, _, stride, padding, dilation, transposed, _, groups, wanted = args
            alone = list(wanted) == [True, False, False]
            plain = groups == 1 and not transposed and inputs.dtype in (torch.float32, torch.bfloat16)
            few = inputs.dim() == 4 and inputs.shape[1] <= _FEW and weight[0, 0].numel() >= _WIDE
            if alone and plain and few:
                windows = weight.flatten(1).t() @ slope.flatten(2)
                sizes = (inputs.shape[2:], weight.shape[2:], dilation, padding, stride)
                return functional.fold(windows, *map(tuple, sizes)), None, None
        return func(*args, **(kwargs or {}))
