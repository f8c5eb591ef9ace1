"""Pipelines that begin with an encoder of columns, for data frames with words in them.

A ``Pipeline`` whose first step is a ``ColumnTransformer`` with one-hot columns is cut behind that step. What
follows is read as a network of the encoded rows (``sklearn_models``); the fitted encoder tells which inputs
encode which column. One-hot columns are discrete; imputed and scaled columns are numbers, in the units behind
the encoder. A missing number counts as what its imputer puts in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.bounds.sklearn_models import is_exactly
from certus.data import EncodedColumn, RowEncoding
from certus.domains import Box
from certus.errors import ArgumentError, UnreadableModelError

_NUMERIC = ("SimpleImputer", "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_ADVICE = "; give `certify_smoothed` the whole pipeline as a function of numbers, or encode words one-hot"


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """Rows behind the encoder of a pipeline.

    Attributes:
        model: the steps behind the encoder; rows: (n, inputs) float64.
        weights: (inputs,) of a cost in which another category costs 1; domain: 0/1 inputs stay in [0, 1].
    """

    model: Any
    rows: np.ndarray[Any, Any]
    encoding: RowEncoding
    weights: Tensor
    domain: Box


def encode_frame(model: Any, data: Any) -> EncodedFrame | None:
    """Cut a pipeline behind its encoder, and encode (frame, y); None without one, or without a frame."""
    framed = isinstance(data, tuple) and len(data) == 2 and hasattr(data[0], "columns")
    if not framed or not is_exactly(model, "Pipeline") or len(model.steps) < 2:
        return None
    encoder = model.steps[0][1]
    fitted = is_exactly(encoder, "ColumnTransformer") and hasattr(encoder, "transformers_")
    if not fitted or not any(
        is_exactly(_steps(part)[-1], "OneHotEncoder") for _, part, _ in encoder.transformers_
    ):
        return None
    rest = model.steps[1][1] if len(model.steps) == 2 else type(model)(model.steps[1:])
    try:
        encoded, expected = encoder.transform(data[0]), model.predict(data[0])
    except (ValueError, TypeError, KeyError) as reason:
        raise ArgumentError(f"`data` must be rows that the pipeline accepts: {reason}") from None
    rows = np.array(encoded.toarray() if hasattr(encoded, "toarray") else encoded, dtype=np.float64)
    if not np.isfinite(rows).all():
        rule = "have no missing values behind the encoder: put a SimpleImputer before its numbers"
        raise ArgumentError(f"`data` must {rule}; got some.")
    if not np.array_equal(rest.predict(rows), expected):
        raise UnreadableModelError("Pipeline predicts otherwise than its steps behind the encoder")
    columns, width = tuple(_columns(encoder)), rows.shape[1]
    weights, limited = torch.ones(width), torch.zeros(width, dtype=torch.bool)
    for column in columns:
        if column.kind == "category":
            places = list(column.inputs)
            weights[places], limited[places] = 0.5, True
    encoding = RowEncoding(columns, torch.zeros(width).double(), torch.ones(width).double())
    lower, upper = torch.where(limited, 0.0, -torch.inf), torch.where(limited, 1.0, torch.inf)
    return EncodedFrame(rest, rows, encoding, weights, Box(lower, upper))


def _steps(part: Any) -> list[Any]:
    """The transformers of a part of the encoder."""
    return [step for _, step in part.steps] if is_exactly(part, "Pipeline") else [part]


def _columns(encoder: Any) -> Iterator[EncodedColumn]:
    """The inputs of each column, in the order of the encoded rows."""
    for name, part, own in encoder.transformers_:
        places = encoder.output_indices_[name]
        if isinstance(part, str) and part == "drop":
            continue
        *before, last = _steps(part)
        unread = [
            step for step in before if not isinstance(step, str) and type(step).__name__ not in _NUMERIC
        ]
        if is_exactly(last, "OneHotEncoder"):
            plain = last.drop is None and last.min_frequency is None and last.max_categories is None
            if unread or not plain:
                raise UnreadableModelError(
                    "OneHotEncoder is read only without drop, min_frequency and max_categories, and behind "
                    f"imputers or scalers alone"
                    f"{_ADVICE}"
                )
            start = places.start
            for number, values in enumerate(last.categories_):
                label = list(own)[number] if len(list(own)) == len(last.categories_) else f"{name}.{number}"
                inputs = tuple(range(start, start + len(values)))
                yield EncodedColumn(str(label), "category", inputs)
                start += len(values)
            continue
        through = isinstance(last, str) or is_exactly(last, "FunctionTransformer")
        if unread or not (through or type(last).__name__ in _NUMERIC):
            kind = type(unread[0] if unread else last).__name__
            raise UnreadableModelError(f"{kind} beside one-hot columns has no rule{_ADVICE}")
        for place in range(places.start, places.stop):
            yield EncodedColumn(f"{name}.{place}", "number", (place,))
