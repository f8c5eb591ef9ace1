"""Frames whose columns have names, beside estimators that were fitted on such frames.

Scikit-learn remembers the names as ``feature_names_in_``, and refuses other names and another order; a
``ColumnTransformer`` takes columns by name, in any order. Numbers alone would be taken by position.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from certus.errors import ArgumentError, UnsupportedError


def fitted_names(model: Any) -> list[str] | None:
    """The columns that an estimator, or the first step of a pipeline that knows, was fitted with."""
    steps = [step for _, step in getattr(model, "steps", [])]
    for part in (model, *steps[:1]):
        names = getattr(part, "feature_names_in_", None)
        if names is not None:
            return [str(name) for name in names]
    return None


def named_rows(model: Any, rows: np.ndarray[Any, Any]) -> Any:
    """(n, features) rows under the names that the model was fitted with, if it was fitted with names."""
    names = fitted_names(model)
    if names is None or len(names) != rows.shape[1]:
        return rows
    try:
        import pandas
    except ImportError:
        raise UnsupportedError(
            f"{type(model).__name__} was fitted on named columns; rows for it need pandas, which is not "
            "installed."
        ) from None
    return pandas.DataFrame(rows, columns=names)


def in_fitted_order(model: Any, rows: Any) -> Any:
    """Rows that the model itself accepts, columns of a frame in the order that it was fitted with.

    The model's own ``predict`` is asked, so that its rule for names holds, and its warnings are seen. Raises
    ``ArgumentError`` with its reason if it refuses.
    """
    try:
        model.predict(copy.deepcopy(rows))  # which a scaler with copy=False would overwrite
    except (ValueError, TypeError) as reason:
        raise ArgumentError(f"`data` must be rows that {type(model).__name__} accepts: {reason}") from None
    names, columns = fitted_names(model), getattr(rows, "columns", None)
    if names is None or columns is None or list(columns) == names:
        return rows
    missing = [name for name in names if name not in list(columns)]
    if missing:
        raise ArgumentError(
            f"`data` must have every column that {type(model).__name__} was fitted with, unused ones too; "
            f"missing are {', '.join(map(repr, missing[:5]))}."
        )
    return rows[names]
