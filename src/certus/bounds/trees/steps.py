"""Steps of a pipeline before a tree model, column by column.

Each column that the model sees is computed from one raw column: a nondecreasing map of its numbers with the
arithmetic of the scaler in float64, or a table of its categories, filled by the encoder's own ``transform``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from certus.bounds.sklearn_models import column_places, is_exactly, reader_of
from certus.bounds.trees.folding import Array, Derived
from certus.bounds.trees.model import is_gap, unknown_label
from certus.bounds.trees.parsed import refused
from certus.data import fitted_names, named_rows
from certus.errors import UnreadableModelError


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns between two steps; ``sparse`` if they are passed on as a sparse matrix."""

    derived: list[Derived]
    sparse: bool = False


_Step = Callable[[Any, Columns], Columns]


def follow(step: Any, columns: Columns) -> Columns:
    """Return the columns after a fitted step; raise ``UnreadableModelError`` if it has no rule."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return columns
    rule = "is a step before the trees that is not read exactly; `certify_smoothed` certifies any model"
    after: Columns = reader_of(step, _STEPS, f"{rule} without reading it")(step, columns)
    return after


def _scaler(maps: Callable[[Any, int], Callable[[Array], Array]]) -> _Step:
    """The rule of a step that maps each column: ``maps(step, place)`` is the map of one."""

    def rule(step: Any, columns: Columns) -> Columns:
        if columns.sparse:
            # It would multiply by reciprocals.
            raise refused(f"{type(step).__name__} of a sparse matrix", "set sparse_output=False before it")
        return Columns([column.then(maps(step, place)) for place, column in enumerate(columns.derived)])

    return rule


def _standard(step: Any, place: int) -> Callable[[Array], Array]:
    def scaled(numbers: Array) -> Array:
        centred = numbers - step.mean_[place] if step.with_mean else numbers
        return np.asarray(centred / step.scale_[place] if step.with_std else centred)

    return scaled


def _min_max(step: Any, place: int) -> Callable[[Array], Array]:
    return lambda numbers: numbers * step.scale_[place] + step.min_[place]


def _max_abs(step: Any, place: int) -> Callable[[Array], Array]:
    return lambda numbers: numbers / step.scale_[place]


def _robust(step: Any, place: int) -> Callable[[Array], Array]:
    def scaled(numbers: Array) -> Array:
        centred = numbers - step.center_[place] if step.with_centering else numbers
        return np.asarray(centred / step.scale_[place] if step.with_scaling else centred)

    return scaled


def _imputed(step: Any, columns: Columns) -> Columns:
    if not (isinstance(step.missing_values, float) and np.isnan(step.missing_values)):
        raise refused(f"SimpleImputer(missing_values={step.missing_values!r})")
    if columns.sparse:
        raise refused("SimpleImputer of a sparse matrix", "set sparse_output=False before it")
    filled = []
    for column, value in zip(columns.derived, step.statistics_, strict=True):
        if is_gap(value):
            continue  # a column without any number, which the step drops
        missing = value if is_gap(column.missing) and column.missing is not None else column.missing
        values = column.values
        if values is not None:
            values = np.where(np.isnan(values), value, values)
        filled.append(replace(column, missing=missing, values=values))
    if step.indicator_ is not None:
        filled += [_indicator(columns.derived[place]) for place in step.indicator_.features_]
    return Columns(filled)


def _indicator(column: Derived) -> Derived:
    """1 for a gap, 0 for a number."""
    gap = column.missing is not None and is_gap(column.missing)
    missing = None if column.missing is None else float(gap)
    if column.values is not None:
        return replace(column, missing=missing, values=np.isnan(column.values).astype(np.float64))
    return replace(column, missing=missing, apply=np.zeros_like)


def encoder_images(encoder: Any, place: int, cells: list[Any]) -> Array:
    """(cells, outputs) images of cells of one column of an encoder, with known labels in the others."""
    rows = np.empty((len(cells), len(encoder.categories_)), dtype=object)
    for other, labels in enumerate(encoder.categories_):
        rows[:, other] = labels[0]
    rows[:, place] = cells
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unknown labels
        encoded = encoder.transform(_typed(encoder, rows))
    if type(encoded).__name__ == "DataFrame":
        encoded = encoded.to_numpy()
    dense = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded)
    return np.asarray(dense, dtype=np.float64)


def _typed(encoder: Any, rows: Array) -> Any:
    """Rows in the types of the encoder's categories."""
    if all(labels.dtype.kind in "iufb" for labels in encoder.categories_):
        rows = rows.astype(np.float64)
    if fitted_names(encoder) is None:
        return rows
    frame = named_rows(encoder, rows)
    for place, name in enumerate(frame.columns):
        if encoder.categories_[place].dtype.kind in "iufb":
            frame[name] = frame[name].astype(np.float64)
    return frame


def _tables(encoder: Any, columns: list[Derived], outputs: list[int], tolerant: bool) -> list[Derived]:
    """The columns that an encoder writes, ``outputs`` for each column that it reads.

    Args:
        tolerant: whether it accepts labels that it was not fitted on.
    """
    derived: list[Derived] = []
    ends = np.cumsum([0, *outputs])
    for place, column in enumerate(columns):
        categories = encoder.categories_[place].tolist()
        labels = tuple(label for label in categories if not is_gap(label))
        gaps = [label for label in categories if is_gap(label)]
        if column.values is None and not column.raw:
            raise refused(f"{type(encoder).__name__} of scaled numbers")
        cells: list[Any] = list(labels)
        if column.values is not None:
            listed = [value for value in column.values.tolist() if value in labels or np.isnan(value)]
            if not tolerant and len(listed) < len(column.values):
                raise refused(f"{type(encoder).__name__} of codes that it may refuse")
            cells = column.values.tolist()
        elif tolerant:
            cells.append(unknown_label(labels))
        # The image of a gap, last: as a category of its own, or as an unknown label.
        filled = column.missing
        if filled is None or (is_gap(filled) and not gaps and not tolerant):
            refuses, last = True, cells[:1]
        else:
            refuses, last = False, [(gaps[0] if gaps else np.nan) if is_gap(filled) else filled]
        if column.values is not None and gaps:
            cells = [gaps[0] if is_gap(cell) else cell for cell in cells]
        images = encoder_images(encoder, place, cells + last)[:, ends[place] : ends[place + 1]]
        changes: dict[str, Any] = {}
        if column.values is None:
            changes = {"labels": labels, "unknown": "code" if tolerant else "refused"}
        derived += [
            replace(column, values=images[:-1, own], missing=None if refuses else images[-1, own], **changes)
            for own in range(images.shape[1])
        ]
    return derived


def encode_ordinal(step: Any, columns: list[Derived]) -> list[Derived]:
    """Return columns of codes after a fitted ``OrdinalEncoder``."""
    return _tables(step, columns, [1] * len(columns), step.handle_unknown == "use_encoded_value")


def _ordinal(step: Any, columns: Columns) -> Columns:
    return Columns(encode_ordinal(step, columns.derived))


def _one_hot(step: Any, columns: Columns) -> Columns:
    outputs = [int(count) for count in step._n_features_outs]
    return Columns(
        _tables(step, columns.derived, outputs, step.handle_unknown != "error"), step.sparse_output
    )


def _selected(step: Any, columns: Columns) -> Columns:
    selected = [columns.derived[place] for place in step.get_support(indices=True)]
    if not step.__sklearn_tags__().input_tags.allow_nan:
        selected = [
            replace(column, missing=None) if is_gap(column.missing) else column for column in selected
        ]
    return replace(columns, derived=selected)


def _pipeline(step: Any, columns: Columns) -> Columns:
    for _, part in step.steps:
        columns = follow(part, columns)
    return columns


def _column_transformer(step: Any, columns: Columns) -> Columns:
    names = getattr(step, "feature_names_in_", None)
    derived: list[Derived] = []
    for _, part, chosen in step.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        places = column_places(chosen, len(columns.derived), names)
        if places:
            own = replace(columns, derived=[columns.derived[place] for place in places])
            derived += follow(part, own).derived
    if not derived:
        raise UnreadableModelError("ColumnTransformer drops all columns")
    return Columns(derived, bool(step.sparse_output_))


_STEPS: dict[str, _Step] = {
    "StandardScaler": _scaler(_standard),
    "MinMaxScaler": _scaler(_min_max),
    "MaxAbsScaler": _scaler(_max_abs),
    "RobustScaler": _scaler(_robust),
    "SimpleImputer": _imputed,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "SelectKBest": _selected,
    "SelectPercentile": _selected,
    "VarianceThreshold": _selected,
    "FunctionTransformer": lambda step, columns: columns,
    "ColumnTransformer": _column_transformer,
    "Pipeline": _pipeline,
}


def split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return the steps before the model, and the model."""
    if not is_exactly(model, "Pipeline"):
        return [], model
    reader_of(model, _STEPS, "is not read")
    steps = [step for _, step in model.steps[:-1] if step is not None and not isinstance(step, str)]
    for step in steps:
        if not hasattr(step, "n_features_in_"):
            raise UnreadableModelError(f"{type(step).__name__} of the pipeline is not fitted")
    return steps, model.steps[-1][1]
