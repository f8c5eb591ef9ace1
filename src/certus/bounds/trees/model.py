"""A tree ensemble with the meaning of its columns and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from certus.errors import ArgumentError, optional_import
from certus.kernel.trees import Ensemble

Array = np.ndarray[Any, Any]
Output = Literal["logistic", "softmax", "probability", "number"]


_CODED = ("code", "larger")


def _is_code(cell: Any) -> bool:
    """Whether a cell is a whole number, at least 0: libraries cut off fractions."""
    return isinstance(cell, int | float | np.number) and bool(cell >= 0) and float(cell).is_integer()


def is_gap(value: Any) -> bool:
    """Whether a cell is missing: None, NaN, pandas' NA or NaT."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def unknown_label(labels: tuple[Any, ...]) -> Any:
    """Return a label of the same kind that is not among the labels."""
    if all(isinstance(label, str) for label in labels):
        label = "unknown"
        while label in labels:
            label += "_"
        return label
    numbers = [label for label in labels if isinstance(label, int | float | np.number)]
    return max(numbers, default=-1) + 1


@dataclass(frozen=True)
class TreeColumn:
    """A raw column of a tree model.

    Attributes:
        name: as in the data that the model was fitted on; "column 3" without names.
        labels: labels of the codes 0, 1, …; None for a column of numbers. unknown: treatment of other labels:
        "refused", "missing" (a gap), "code" (the code after the last),
            "larger" (the same, and labels are whole numbers).
        missing: whether a gap is accepted.
        used: whether the prediction depends on the column.
        category_dtype: whether the library takes the column with the category type of pandas.
    """

    name: str
    labels: tuple[Any, ...] | None = None
    unknown: str = "refused"
    missing: bool = True
    used: bool = True
    category_dtype: bool = False

    @property
    def codes(self) -> int:
        """Number of codes; 0 for a column of numbers."""
        return 0 if self.labels is None else len(self.labels) + (self.unknown in _CODED)

    def encode(self, cells: Any) -> Array:
        """(n,) cells → (n,) float64: numbers or codes, NaN for gaps."""
        encoded = self._numbers(cells) if self.labels is None else self._codes(list(cells))
        if not self.missing and self.used and bool(np.isnan(encoded).any()):
            raise ArgumentError(f"`data` must have no gaps in {self.name}: the model refuses them; got NaN.")
        return encoded

    def _numbers(self, cells: Any) -> Array:
        try:
            if hasattr(cells, "to_numpy") and hasattr(cells, "isna"):
                numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                listed = [np.nan if is_gap(cell) else cell for cell in cells] if _objects(cells) else cells
                numbers = np.asarray(listed, dtype=np.float64)
        except (TypeError, ValueError) as reason:
            if not self.used:
                return np.zeros(len(cells))
            raise ArgumentError(f"`data` must have numbers in {self.name}: {reason}") from None
        if self.used and bool(np.isinf(numbers).any()):
            raise ArgumentError(f"`data` must have finite numbers in {self.name}; got inf.")
        return np.array(numbers, dtype=np.float64)

    def _codes(self, cells: list[Any]) -> Array:
        assert self.labels is not None
        codes = {label: code for code, label in enumerate(self.labels)}
        encoded = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            if is_gap(cell):
                continue
            code = codes.get(cell)
            if code is None and self.unknown == "refused":
                raise ArgumentError(f"`data` must have categories of the model in {self.name}; got {cell!r}.")
            if code is None and self.unknown == "larger" and not _is_code(cell):
                raise ArgumentError(f"`data` must have codes 0, 1, … in {self.name}; got {cell!r}.")
            if code is None and self.unknown in _CODED:
                code = len(self.labels)
            encoded[row] = np.nan if code is None else code
        return encoded

    def decode(self, encoded: Array) -> Any:
        """(n,) numbers or codes → cells that the model takes."""
        if self.labels is None:
            return encoded
        labels = self.labels + ((unknown_label(self.labels),) if self.unknown in _CODED else ())
        if self.category_dtype:
            pandas = optional_import("pandas", "Columns of categories need pandas.")
            return pandas.Categorical.from_codes(np.nan_to_num(encoded, nan=-1).astype(int), list(labels))
        cells = [np.nan if np.isnan(code) else labels[int(code)] for code in encoded]
        if all(isinstance(label, int | float | np.number) for label in labels):
            return np.array(cells, dtype=np.float64)
        return np.array(cells, dtype=object)


def _objects(cells: Any) -> bool:
    return np.asarray(cells).dtype == object


@dataclass(frozen=True, eq=False)
class TreeModel:
    """A tree ensemble as it was read.

    Attributes:
        ensemble: s(x) of encoded rows, with the rounding of the library's own arithmetic.
        columns: the columns of a row, in order.
        output: the meaning of s: "logistic" (one score, the second class if s > 0, with the probability
            1/(1 + exp(−s))), "softmax" (a score for each class, the largest decides), "probability" (the
            same, and s are probabilities), "number" (a regression). What happens in a tie differs between
            libraries: within ``ensemble.rounding`` either class may be predicted.
        classes: labels of the codes of targets; None for a regression.
        library: name and version, where known.
        model: the model itself; None if it was read from a file.
        framed: whether the model takes rows as a frame.
        raw: the model's own scores (n, outputs) of rows in its own form, comparable to s.
    """

    ensemble: Ensemble
    columns: tuple[TreeColumn, ...]
    output: Output
    classes: Array | None
    library: str
    model: Any = None
    framed: bool = False
    raw: Callable[[Any], Array] | None = field(default=None, repr=False)

    def encode(self, rows: Any) -> Tensor:
        """(n, columns) rows as the model takes them, array or frame → (n, columns) float64 of codes."""
        names = [column.name for column in self.columns]
        if hasattr(rows, "columns"):
            given = [str(name) for name in rows.columns]
            # LightGBM replaces spaces.
            if self.framed and names not in (given, [name.replace(" ", "_") for name in given]):
                raise ArgumentError(
                    f"`data` must have the model's columns in their order, {', '.join(names)}; got "
                    f"{', '.join(given)}."
                )
            cells = [rows[name] for name in rows.columns]
        else:
            matrix = rows.cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
            if matrix.ndim != 2:
                raise ArgumentError(f"`data` must hold rows, (n, features); got shape {matrix.shape}.")
            cells = list(matrix.T)
        if len(cells) != len(self.columns):
            raise ArgumentError(f"`data` must have {len(self.columns)} columns; got {len(cells)}.")
        encoded = [column.encode(own) for column, own in zip(self.columns, cells, strict=True)]
        return torch.from_numpy(np.stack(encoded, 1))

    def decode(self, encoded: Tensor | Array) -> Any:
        """(n, columns) encoded rows → an array or a frame that the model takes."""
        cells = np.asarray(encoded, dtype=np.float64).T
        parts = [column.decode(own) for column, own in zip(self.columns, cells, strict=True)]
        if self.framed or any(column.category_dtype for column in self.columns):
            pandas = optional_import("pandas", "Rows of this model need pandas.")
            return pandas.DataFrame(
                {column.name: part for column, part in zip(self.columns, parts, strict=True)}
            )
        plain = all(part.dtype != object for part in parts)
        return np.stack([np.asarray(part, dtype=np.float64 if plain else object) for part in parts], 1)

    def decide(self, scores: Tensor) -> Tensor:
        """(n, outputs) scores → (n,) codes of the classes that they predict; ties go to the first class."""
        return (scores[:, 0] > 0).long() if self.output == "logistic" else scores.argmax(1)

    def predict(self, encoded: Tensor) -> Array:
        """(n, columns) encoded rows → (n,) labels or numbers, by the model itself; by its reading if it came
        from a file. A booster returns no labels: its own scores decide."""
        if self.model is not None and type(self.model).__name__ != "Booster":
            return np.asarray(self.model.predict(self.decode(encoded))).reshape(len(encoded))
        if self.raw is not None:
            scores = torch.from_numpy(self.raw(self.decode(encoded)))
        else:
            scores = self.ensemble.scores(encoded)
        if self.classes is None:
            return scores[:, 0].numpy()
        return np.asarray(self.classes[self.decide(scores).numpy()])

    def encode_targets(self, targets: Any) -> Tensor:
        """(n,) labels or numbers → (n,) codes of classes or float64."""
        values = np.asarray(targets)
        if self.classes is None:
            return torch.from_numpy(np.array(values, dtype=np.float64))
        codes = {label: code for code, label in enumerate(self.classes.tolist())}
        try:
            return torch.tensor([codes[label] for label in values.tolist()], dtype=torch.int64)
        except KeyError as unknown:
            labels = ", ".join(map(str, codes))
            raise ArgumentError(
                f"`data` must have labels of the model's classes, {labels}; got {unknown.args[0]}."
            ) from None
