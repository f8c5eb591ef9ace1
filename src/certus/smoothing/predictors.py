"""Models of any kind as functions from inputs to labels or scores.

A torch module is taken in eval mode: batch statistics would tie the copies of a sample together. An estimator
is given rows of numbers; its labels are those of ``predict``, its scores those of ``predict_proba``, and the
two may disagree. Any other callable is given an array of the inputs' own shape. Scores have one column for
each class; the largest is predicted. Models receive copies of the inputs, which they may overwrite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from certus._eval_mode import eval_mode
from certus.data import (
    DataLike,
    Samples,
    SampleStream,
    as_tensor,
    fitted_names,
    gather_samples,
    in_fitted_order,
    named_rows,
    require_real,
)
from certus.errors import ArgumentError, UnsupportedError, require
from certus.losses import predicted, require_tensor

TRIED, _PART = 64, 5  # inputs that a model is tried at, and those of them that are given together
_STRAY = 1e-3  # the share of labels that rounding may change on a boundary
UNKNOWN_TARGET = -3  # the code of a target that a model does not know, which no prediction has
ABSTAINED = -2  # the mark of a vote that abstains; no label has this code


@dataclass(frozen=True, eq=False)
class Predictor:
    """Labels or scores of a model for (n, …) inputs.

    Attributes:
        outputs: (n, …) → (n,) labels or (n, classes) scores, as a tensor or an array.
        module: the torch module; None for other models.
        classes: labels of the codes 0, 1, …; None if labels are codes already.
        predict: (n, …) → (n,) labels, of a model that does not derive them from its scores; None for others.
    """

    outputs: Callable[[Tensor], Any]
    module: nn.Module | None = None
    classes: Any = None
    predict: Callable[[Tensor], Any] | None = None

    @staticmethod
    def of(model: object) -> Predictor:
        """Return the predictor of a ``torch.nn.Module``, an object with ``predict``, or a callable."""
        if isinstance(model, nn.Module):
            return Predictor(partial(_module_outputs, model), model)
        if callable(getattr(model, "predict", None)):
            return _of_estimator(model)
        rule = "be a torch.nn.Module, an estimator with `predict`, or a callable of arrays"
        require(callable(model) and not isinstance(model, type), "model", rule, type(model))
        assert callable(model)
        return Predictor(lambda inputs: model(inputs.numpy().copy()))

    def scores(self, inputs: Tensor) -> Tensor:
        """Return (n, classes) scores, or (n, …) outputs, for a criterion."""
        scores = _tensor(self.outputs(inputs))
        if not scores.is_floating_point() or len(scores) != len(inputs):
            raise ArgumentError(
                "`model` must give one row of scores for each input where a loss is to be certified; got "
                f"{scores.dtype} of shape {tuple(scores.shape)} for {len(inputs)} inputs."
            )
        return scores

    def labels(self, inputs: Tensor) -> Tensor:
        """Return (n,) codes of the predicted labels; −1 for an unknown label."""
        return self.label_codes((self.predict or self.outputs)(inputs), len(inputs))

    def label_codes(self, outputs: Any, count: int) -> Tensor:
        """Return the labels of outputs as codes. If labels have names, outputs are labels, not scores."""
        array = outputs if isinstance(outputs, Tensor) else np.asarray(outputs)
        scores = self.module is not None or (len(array.shape) == 2 and array.shape[1] > 1)
        if len(array.shape) == 2 and scores and self.classes is None:
            return predicted(_tensor(array)).long().cpu()
        if tuple(array.shape) not in ((count,), (count, 1)):
            raise _misshapen(count, array.shape)
        flat = array.reshape(count)
        if self.module is not None:
            return predicted(_tensor(flat)).long().cpu()
        return self.encode(flat)

    def check_apart(self, inputs: Tensor, *, labelled: bool = True, scored: bool = False) -> int:
        """Raise ``UnsupportedError`` if a prediction depends on the other inputs of the batch or differs
        between calls, since noisy copies would not be independent. Returns the number of predictions used."""
        checks: list[tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], bool]]] = []
        if labelled:
            checks.append((self.labels, _same_labels))
        if scored or not labelled or self.module is not None:
            checks.append((self._rows, _same_scores))
        for ask, agree in checks:
            whole = ask(inputs)
            backwards = torch.cat([ask(part) for part in inputs.flip(0).split(TRIED)]).flip(0)
            parts = torch.cat([ask(part) for part in inputs[:TRIED].split(_PART)])
            if not (agree(whole, ask(inputs)) and agree(whole, backwards) and agree(whole[:TRIED], parts)):
                raise UnsupportedError(
                    "`model` must be deterministic and treat every input independently of its batch: "
                    "further calls, in other batches or another order, gave different outputs. Remove "
                    "operations over the batch, such as a mean, and random numbers."
                )
        return len(checks) * (3 * len(inputs) + len(inputs[:TRIED]))

    def _rows(self, inputs: Tensor) -> Tensor:
        """Return the outputs, one row for each input."""
        rows = _tensor(self.outputs(inputs))
        if rows.dim() == 0 or len(rows) != len(inputs):
            raise _misshapen(len(inputs), rows.shape)
        return rows

    def encode(self, labels: Any, name: str = "model", unknown: int = -1) -> Tensor:
        """Return (n,) labels as codes: their index in ``classes``, or the labels themselves.

        Labels outside ``classes`` get the code ``unknown``, which must differ between targets and
        predictions.
        """
        if self.classes is None:
            tensor = _tensor(labels, name)
            whole = tensor == tensor.long().int()
            rule = "have labels that are whole numbers of at most 32 bits"
            require(bool(whole.all()), name, rule, tensor[~whole][:3])
            rule = f"have labels other than {ABSTAINED}, the mark of an abstention: number them otherwise"
            require(not bool((tensor == ABSTAINED).any()), name, rule, ABSTAINED)
            return tensor.long().cpu()
        values, classes = np.asarray(labels), np.asarray(self.classes)
        order = np.argsort(classes)  # an estimator need not have its labels in order
        place = order[np.searchsorted(classes, values, sorter=order).clip(0, len(classes) - 1)]
        return torch.from_numpy(np.where(classes[place] == values, place, unknown).astype(np.int64))


def _misshapen(count: int, shape: Sequence[int]) -> ArgumentError:
    rule = f"give one label, or one row of scores, for each of {count} inputs"
    return ArgumentError(f"`model` must {rule}; got shape {tuple(shape)}.")


def _module_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    own = next(model.parameters(), None)
    with torch.no_grad(), eval_mode(model):
        predictions = model(inputs.clone() if own is None else inputs.to(own, copy=True))
    return require_tensor(predictions).cpu()


def _of_estimator(model: Any) -> Predictor:
    """Return the predictor of an estimator: labels by ``predict``, and scores as log-probabilities if it
    has ``predict_proba``."""

    def rows(inputs: Tensor) -> Any:
        return named_rows(model, inputs.flatten(1).numpy().copy())

    def predict(inputs: Tensor) -> Any:
        return model.predict(rows(inputs))

    def log_probabilities(inputs: Tensor) -> Any:
        probabilities = np.asarray(model.predict_proba(rows(inputs)), dtype=np.float64)
        return np.log(np.maximum(probabilities, 1e-300))

    classes = getattr(model, "classes_", None)
    if callable(getattr(model, "predict_proba", None)):
        return Predictor(log_probabilities, None, classes, predict)
    return Predictor(predict, None, classes)


def _same_labels(first: Tensor, second: Tensor) -> bool:
    """Whether labels agree, except for a few that rounding may change."""
    return first.shape == second.shape and int((first != second).sum()) <= _STRAY * len(first)


def _same_scores(first: Tensor, second: Tensor) -> bool:
    """Whether scores agree up to rounding, relative to their spread over the classes, or over the inputs
    of a regression; values that are not finite must be equal."""
    if first.shape != second.shape:
        return False
    close = 10 * math.sqrt(torch.finfo(first.dtype).eps if first.is_floating_point() else 0.0)
    first, second = (each.reshape(len(each), -1).double() for each in (first, second))
    finite = first.nan_to_num(0.0, 0.0, 0.0)
    along = 1 if first.shape[1] > 1 else 0
    spread = finite.amax(along, keepdim=True) - finite.amin(along, keepdim=True)
    same = (first == second) | (first.isnan() & second.isnan())
    return bool((same | ((first - second).abs() <= close * (1 + spread))).all())


def _tensor(values: Any, name: str = "model") -> Tensor:
    if isinstance(values, Tensor):
        return values
    array = np.array(values, order="C")  # a copy: arrays of pandas may be read-only
    rule = "have numbers: number the labels from 0 on, or give an estimator whose `classes_` name them"
    require(array.dtype.kind in "fiubc", name, rule, f"an array of {array.dtype}")
    return torch.from_numpy(array)


def _require_numbers(inputs: Any) -> None:
    """Raise ``ArgumentError`` for a frame or an array with words, which no Gaussian noise is added to."""
    kinds = getattr(inputs, "dtypes", None)
    columns = [("", inputs.dtype)] if isinstance(inputs, np.ndarray) else []
    if hasattr(inputs, "columns") and kinds is not None:
        columns = [(f" in column {name!r}", kind) for name, kind in zip(inputs.columns, kinds, strict=True)]
    words = [f"{kind}{place}" for place, kind in columns if getattr(kind, "kind", "f") not in "fiubc"]
    if words:
        raise ArgumentError(
            f"`data` must be numbers, which the noise is added to; got {words[0]}. certus.certify reads "
            "pipelines that encode words. To smooth the model behind the encoder, give it the encoded rows, "
            "and freeze the inputs that encode words by certus.costs.Masked: they get no noise, and stay."
        )


def read_samples(model: object, data: DataLike, predictor: Predictor) -> Samples:
    """Read any data, with labels as codes (int64) and numbers of a regression as they are. Columns of frames
    are put in the order in which an estimator was fitted."""
    if isinstance(data, Dataset | SampleStream):
        data = gather_samples(data)
    pair = isinstance(data, tuple) and len(data) == 2
    named = fitted_names(model) is not None
    estimator = named or callable(getattr(model, "get_params", None))

    def encoded(batch: Any) -> Samples:
        if isinstance(batch, Samples):
            require(batch.weights is None, "data", "have no weights", "weights")
            inputs, targets, encoding = batch.inputs, batch.targets, batch.encoding
        else:
            inputs, targets = batch[0], batch[1]
            if estimator and (hasattr(inputs, "columns") or (named and isinstance(inputs, np.ndarray))):
                inputs = in_fitted_order(model, inputs)
            _require_numbers(inputs)
            inputs, encoding = as_tensor(inputs, "inputs"), None
        rule = "have targets: smoothing certifies known labels"
        require(targets is not None, "data", rule, None)
        if not isinstance(targets, Tensor):
            to_array = getattr(targets, "to_numpy", None)
            targets = np.asarray(to_array() if callable(to_array) else targets)
        require_real(targets=targets)
        rule = f"have one entry for each of {len(inputs)} inputs"
        require(len(targets) == len(inputs), "targets", rule, len(targets))
        if isinstance(targets, Tensor) and targets.is_floating_point():
            codes = targets
        elif not isinstance(targets, Tensor) and targets.dtype.kind == "f" and predictor.classes is None:
            codes = torch.from_numpy(targets)
        else:
            codes = predictor.encode(targets, "targets", UNKNOWN_TARGET)
        inputs = inputs if inputs.is_floating_point() else inputs.double()
        return Samples(inputs.detach().cpu(), codes.cpu(), encoding=encoding)

    return Samples.concatenate(map(encoded, [data] if pair or isinstance(data, Samples) else data))
