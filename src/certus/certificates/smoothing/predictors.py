"""Any model at all, as a function from inputs to labels or scores.

A torch module is taken in eval mode: batch statistics would tie the copies of a sample together. An estimator
has ``predict``, and is given rows of numbers. Any other callable is given an array of the inputs' own shape.
Scores have one column for each class, and the largest wins. What models are given is theirs to write over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, UnsupportedError, require
from certus.losses import predicted, require_tensor
from certus.modes import at_rest
from certus.split import Split, require_real

TRIED, _PART = 64, 5
"""Inputs that a model is tried at, at once and in parts."""


@dataclass(frozen=True, eq=False)
class Predictor:
    """What a model says of (n, …) inputs.

    Attributes:
        outputs: (n, …) → (n,) labels or (n, classes) scores, as a tensor or an array.
        module: the torch module behind it; None for others.
        classes: the labels that codes 0, 1, … stand for; None if labels are their own codes.
    """

    outputs: Callable[[Tensor], Any]
    module: nn.Module | None = None
    classes: Any = None

    @staticmethod
    def of(model: object) -> Predictor:
        """
        Args:
            model: a ``torch.nn.Module``, an object with ``predict``, or a callable.
        """
        if isinstance(model, nn.Module):
            return Predictor(_of_module(model), model)
        if callable(getattr(model, "predict", None)):
            return Predictor(_of_estimator(model), None, getattr(model, "classes_", None))
        rule = "be a torch.nn.Module, an estimator with `predict`, or a callable of arrays"
        require(callable(model) and not isinstance(model, type), "model", rule, type(model))
        assert callable(model)
        return Predictor(lambda inputs: model(inputs.numpy().copy()))

    def scores(self, inputs: Tensor) -> Tensor:
        """(n, classes) or (n, …) outputs that a criterion can take."""
        found = _tensor(self.outputs(inputs))
        if not found.is_floating_point() or len(found) != len(inputs):
            raise ArgumentError(
                "`model` must give one row of scores for each input where a loss is to be certified; got "
                f"{found.dtype} of shape {tuple(found.shape)} for {len(inputs)} inputs."
            )
        return found

    def labels(self, inputs: Tensor) -> Tensor:
        """(n,) codes of the labels; −1 for one that no target has."""
        return self.label_codes(self.outputs(inputs), len(inputs))

    def label_codes(self, found: Any, count: int) -> Tensor:
        """The labels that outputs stand for, as codes."""
        told = found if isinstance(found, Tensor) else np.asarray(found)
        if len(told.shape) == 2 and (self.module is not None or told.shape[1] > 1):
            return predicted(_tensor(told)).long().cpu()
        shape = tuple(told.shape)
        if shape not in ((count,), (count, 1)):
            rule = f"give one label, or one row of scores, for each of {count} inputs"
            raise ArgumentError(f"`model` must {rule}; got shape {shape}.")
        flat = told.reshape(count)
        if self.module is not None:
            return predicted(_tensor(flat)).long().cpu()
        return self.encode(flat)

    def check_apart(self, inputs: Tensor, *, labelled: bool = True) -> None:
        """Raise if what the model says of an input depends on those beside it: then noisy copies would not be
        independent. A model that answers differently when asked again cannot be told."""

        def told(batch: Tensor) -> Tensor:
            """Scores of a module, or of a regression; labels of other models, which round as they like."""
            if self.module is None and labelled:
                return self.labels(batch).double()
            found = _tensor(self.outputs(batch))
            return found if found.is_floating_point() else found.double()

        some = inputs[:TRIED]
        whole = told(some)
        close = 10 * math.sqrt(torch.finfo(whole.dtype).eps) * (1 + float(whole.abs().max()))
        if not _within(whole, told(some), close):
            return
        parts = torch.cat([told(part) for part in some.split(_PART)])
        for other in (parts, told(some.flip(0)).flip(0)):
            if not _within(whole, other, close):
                raise UnsupportedError(
                    "`model` must answer for each input by itself: in another batch it says something else "
                    "of the same inputs. Take out what looks at the batch, such as its mean."
                )

    def encode(self, labels: Any) -> Tensor:
        """(n,) labels as codes: their place among ``classes``, or themselves."""
        if self.classes is None:
            tensor = _tensor(labels)
            whole = not tensor.is_floating_point() or bool((tensor == tensor.round()).all())
            require(whole, "model", "give labels that are whole numbers, as the targets are", tensor[:3])
            return tensor.long().cpu()
        told, known = np.asarray(labels), np.asarray(self.classes)
        place = np.searchsorted(known, told).clip(0, len(known) - 1)
        return torch.from_numpy(np.where(known[place] == told, place, -1).astype(np.int64))


def _of_module(model: nn.Module) -> Callable[[Tensor], Tensor]:
    own = next(model.parameters(), None)

    def outputs(inputs: Tensor) -> Tensor:
        with torch.no_grad(), at_rest(model):
            found = model(inputs.clone() if own is None else inputs.to(own, copy=True))
        return require_tensor(found).cpu()

    return outputs


def _of_estimator(model: Any) -> Callable[[Tensor], Any]:
    """Log-probabilities where the estimator has probabilities: their softmax is the probabilities."""

    def outputs(inputs: Tensor) -> Any:
        rows = inputs.flatten(1).numpy().copy()
        if callable(getattr(model, "predict_proba", None)):
            with np.errstate(divide="ignore"):
                return np.log(np.maximum(np.asarray(model.predict_proba(rows), dtype=np.float64), 1e-300))
        return model.predict(rows)

    return outputs


def _within(one: Tensor, other: Tensor, close: float) -> bool:
    """Whether two answers agree; numbers that are not finite must be the same."""
    if one.shape != other.shape:
        return False
    same = (one == other) | (one.isnan() & other.isnan())
    return bool((same | ((one - other).abs() <= close)).all())


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))


AnyData = Split | tuple[Any, Any] | Iterable[tuple[Any, Any]]
"""Inputs and targets as tensors or arrays; a ``Split``; or batches of both."""


def gather_any(data: AnyData, predictor: Predictor) -> Split:
    """The samples with targets as codes: labels as int64, numbers of a regression as they are."""
    inputs: Tensor
    targets: Any
    if isinstance(data, Split):
        inputs, targets = data.inputs, data.targets
    elif isinstance(data, tuple) and len(data) == 2:
        inputs, targets = _tensor(_plain(data[0])), data[1]
    else:
        parts = [_batch(one) for one in data]
        require(len(parts) > 0, "data", "not be empty", "no batches")
        inputs, targets = torch.cat([one for one, _ in parts]), torch.cat([two for _, two in parts])
    require_real(inputs=inputs, targets=_plain(targets))
    if not inputs.is_floating_point():
        inputs = inputs.double()
    rule = "be given with their targets: noise says nothing of labels that nobody knows"
    require(targets is not None, "data", rule, None)
    told = targets if isinstance(targets, Tensor) else np.asarray(_plain(targets))
    require(
        len(told) == len(inputs), "targets", f"have one entry for each of {len(inputs)} inputs", len(told)
    )
    codes = told if isinstance(told, Tensor) and told.is_floating_point() else predictor.encode(told)
    if not isinstance(told, Tensor) and told.dtype.kind == "f" and predictor.classes is None:
        codes = torch.from_numpy(told)
    return Split(inputs.detach().cpu(), codes.cpu())


def _batch(pair: Any) -> tuple[Tensor, Tensor]:
    """(inputs, targets) of one batch."""
    if not isinstance(pair, Split):
        one, two = pair
        return _tensor(_plain(one)), _tensor(_plain(two))
    require(pair.weights is None, "data", "have no weights", "them in batches")
    return pair.inputs, pair.targets


def _plain(values: Any) -> Any:
    """Tables with names, such as those of pandas, as arrays."""
    return values.to_numpy() if callable(getattr(values, "to_numpy", None)) else values
