"""Pipelines of scikit-learn on tables with words and gaps, read column by column as networks.

The inputs of the network are the columns of the table, in their order: a number as it is, a category as one
0/1 input for each value that the pipeline knows, none of them set for another value. In these inputs every
step is affine: an imputer decides what a gap counts as, an encoder is a table that its own ``transform``
fills, scalers, components and selections are linear. So the first layer of the network takes in all of them.

The network is compared with the pipeline on the caller's rows, and on rows with other numbers, values and
gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.bounds.sklearn_models import (
    AffineMap,
    Reading,
    column_places,
    compare_tables,
    is_exactly,
    network_after,
    read_step,
    reader_of,
)
from certus.bounds.trees.model import is_gap, unknown_label
from certus.bounds.trees.steps import encoder_images
from certus.costs import ColumnPrices, Cost, Masked, WeightedL2
from certus.data import EncodedColumn, RowEncoding, fitted_names, in_fitted_order
from certus.domains import Box
from certus.errors import ArgumentError, UnreadableModelError, require

_Array = np.ndarray[Any, Any]
_CODED = ("SimpleImputer", "OneHotEncoder", "OrdinalEncoder")
_SCALERS = ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
_GAP, _NUMBER, _MISSING = "gap", "number", "missing"  # of a column, beside the places of its labels
_ADVICE = "`certify_smoothed` certifies any model of numbers without reading it"
_CHECKED = 256


@dataclass(frozen=True)
class _Raw:
    """A column of the table that no step has changed, except for its gaps."""

    column: int
    fill: Any = None  # what an imputer puts in the place of a gap


@dataclass(frozen=True)
class _Row:
    """Σ factor·input + offset; an input is (column, place of a label), or ``_NUMBER`` or ``_MISSING``."""

    factors: dict[tuple[int, Any], float]
    offset: float = 0.0


_Part = _Raw | _Row


def _refused(what: str) -> UnreadableModelError:
    return UnreadableModelError(f"{what} has no rule; {_ADVICE}")


@dataclass
class _Columns:
    """What the steps of a pipeline tell about the columns of its table, gathered step by step.

    Attributes:
        labels: of each category, with ``_GAP`` for a gap; open: the categories with other values.
        numbers, marked: the columns that are numbers, and those of which gaps are an input.
        fills: what a gap counts as. units: by what a scaler divides the numbers.
    """

    names: list[str]
    labels: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    marked: set[int] = field(default_factory=set)
    fills: dict[int, Any] = field(default_factory=dict)
    units: dict[int, float] = field(default_factory=dict)

    def follow(self, step: Any, parts: list[_Part]) -> list[_Part]:
        """Return what a fitted step makes of some columns."""
        if step is None or (isinstance(step, str) and step == "passthrough"):
            return parts
        rules: dict[str, Callable[[Any, list[_Part]], list[_Part]]] = {
            "SimpleImputer": self._imputed,
            "OneHotEncoder": self._encoded,
            "OrdinalEncoder": self._encoded,
            "ColumnTransformer": self._by_columns,
            "Pipeline": self._in_turn,
            "FunctionTransformer": lambda step, parts: parts,
        }
        rules |= dict.fromkeys(("SelectKBest", "SelectPercentile", "VarianceThreshold"), _selected)
        kind = type(step).__name__
        if kind not in rules or not is_exactly(step, kind):
            return self._linear(step, parts)
        after: list[_Part] = reader_of(step, rules, "is not read")(step, parts)
        return after

    def number(self, part: _Part) -> _Row:
        """A part as a number."""
        if isinstance(part, _Row):
            return part
        self._fill(part)
        if part.column in self.labels:
            raise _refused(f"column {self.names[part.column]!r}, a number and a category at once,")
        self.numbers.add(part.column)
        return _Row({(part.column, _NUMBER): 1.0})

    def _fill(self, part: _Raw) -> None:
        known = self.fills.setdefault(part.column, part.fill)
        if not (known is part.fill or known == part.fill):
            raise _refused(f"column {self.names[part.column]!r}, whose gaps are filled in two ways,")

    def _imputed(self, step: Any, parts: list[_Part]) -> list[_Part]:
        if not is_gap(step.missing_values):
            raise _refused(f"SimpleImputer(missing_values={step.missing_values!r})")
        filled: list[_Part] = []
        for part, value in zip(parts, step.statistics_, strict=True):
            if is_gap(value):
                continue  # a column without any value, which the step drops
            own = isinstance(part, _Raw) and part.fill is None
            filled.append(replace(part, fill=value) if own and isinstance(part, _Raw) else part)
        for place in () if step.indicator_ is None else step.indicator_.features_:
            part = parts[place]
            if not isinstance(part, _Raw) or part.fill is not None:
                raise _refused("SimpleImputer(add_indicator=True) behind another step")
            self.marked.add(part.column)
            filled.append(_Row({(part.column, _MISSING): 1.0}))
        return filled

    def _encoded(self, step: Any, parts: list[_Part]) -> list[_Part]:
        kind = type(step).__name__
        one_hot = kind == "OneHotEncoder"
        ends = np.cumsum([0, *(step._n_features_outs if one_hot else [1] * len(parts))])
        rows: list[_Part] = []
        for place, part in enumerate(parts):
            if isinstance(part, _Row):
                raise _refused(f"{kind} behind another encoder or a scaler")
            self._fill(part)
            cells = step.categories_[place].tolist()
            tolerant = step.handle_unknown != "error"
            known = tuple(cell for cell in cells if not is_gap(cell))
            more = [unknown_label(known)] if tolerant else []
            images = encoder_images(step, place, cells + more)[:, ends[place] : ends[place + 1]]
            valid = [at for at in range(len(cells)) if np.isfinite(images[at]).all()]
            labels = tuple(_GAP if is_gap(cells[at]) else cells[at] for at in valid)
            base = images[-1] if tolerant else np.zeros(images.shape[1])
            if not np.isfinite(base).all():
                raise _refused(f"{kind} that writes gaps")
            column = part.column
            if column in self.numbers or self.labels.setdefault(column, labels) != labels:
                raise _refused(f"column {self.names[column]!r}, which is encoded in two ways,")
            if tolerant:
                self.open.add(column)
            for own in range(images.shape[1]):
                factors = {
                    (column, order): float(images[at, own] - base[own]) for order, at in enumerate(valid)
                }
                rows.append(_Row(factors, float(base[own])))
        return rows

    def _by_columns(self, step: Any, parts: list[_Part]) -> list[_Part]:
        names = getattr(step, "feature_names_in_", None)
        after: list[_Part] = []
        for _, part, chosen in step.transformers_:
            if not (isinstance(part, str) and part == "drop"):
                places = column_places(chosen, len(parts), names)
                after += self.follow(part, [parts[place] for place in places]) if places else []
        if not after:
            raise UnreadableModelError("ColumnTransformer drops all columns")
        return after

    def _in_turn(self, step: Any, parts: list[_Part]) -> list[_Part]:
        for _, part in step.steps:
            parts = self.follow(part, parts)
        return parts

    def _linear(self, step: Any, parts: list[_Part]) -> list[_Part]:
        rows, linear = [self.number(part) for part in parts], read_step(step, len(parts))
        if type(step).__name__ in _SCALERS:
            for place, part in enumerate(parts):
                factor = abs(float(linear.matrix[place, place]))
                if isinstance(part, _Raw) and 0 < factor < np.inf:
                    self.units.setdefault(part.column, 1 / factor)
        inputs = list(dict.fromkeys(key for row in rows for key in row.factors))
        before = _matrix(rows, inputs)
        after = linear.after(before)
        return [
            _Row({inputs[at]: float(values[at]) for at in np.flatnonzero(values)}, float(offset))
            for values, offset in zip(after.matrix, after.offset, strict=True)
        ]


def _selected(step: Any, parts: list[_Part]) -> list[_Part]:
    return [parts[place] for place in step.get_support(indices=True)]


def _matrix(rows: Sequence[_Row], inputs: Sequence[tuple[int, Any]]) -> AffineMap:
    place = {key: at for at, key in enumerate(inputs)}
    matrix = np.zeros((len(rows), len(inputs)))
    for number, row in enumerate(rows):
        for key, factor in row.factors.items():
            matrix[number, place[key]] = factor
    return AffineMap(matrix, np.array([row.offset for row in rows], dtype=np.float64))


@dataclass(frozen=True, eq=False)
class FrameReading:
    """A fitted pipeline as a network of the columns of a table.

    Attributes:
        reading: the network, and the pipeline; encoding: which inputs encode which column.
        columns: what the steps tell; used: numbers of the columns that the network reads, in their order.
    """

    reading: Reading
    encoding: RowEncoding
    columns: _Columns
    used: tuple[int, ...]

    @property
    def plain(self) -> bool:
        """Whether every column is a number without marked gaps."""
        return self.encoding.plain

    def rows(self, table: Any) -> Tensor:
        """(n, inputs) float64 of a table in the fitted order of columns."""
        rows = torch.zeros(len(table), len(self.encoding.means), dtype=torch.float64)
        for number, encoded in zip(self.used, self.encoding.columns, strict=True):
            cells = _cells(table, number)
            if encoded.kind == "category":
                self._set_labels(rows, cells, number, encoded)
                continue
            values, gaps = _numbers(cells, encoded.name)
            fill = self.columns.fills.get(number)
            if gaps.any() and fill is None:
                rule = "have no gaps where the pipeline fills none: put a SimpleImputer before its numbers"
                raise ArgumentError(f"`data` must {rule}; got some in column {encoded.name!r}.")
            rows[:, encoded.inputs[0]] = torch.from_numpy(
                np.where(gaps, 0.0 if fill is None else fill, values)
            )
            if encoded.mark:
                marks = torch.from_numpy(np.stack([~gaps, gaps], 1).astype(np.float64))
                rows[:, list(encoded.mark)] = marks
        return rows

    def _set_labels(self, rows: Tensor, cells: list[Any], number: int, encoded: EncodedColumn) -> None:
        labels, fill = self.columns.labels[number], self.columns.fills.get(number)
        place = {label: at for at, label in enumerate(labels)}
        for row, cell in enumerate(cells):
            value = cell
            if is_gap(cell):
                value = _GAP if fill is None else fill
            if value in place:
                rows[row, encoded.inputs[place[value]]] = 1.0
            elif number not in self.columns.open:
                listed = ", ".join(map(str, labels[:8])) + (", …" if len(labels) > 8 else "")
                rule = f"have values that the pipeline knows in column {encoded.name!r}, {listed}"
                raise ArgumentError(f"`data` must {rule}; got {'a gap' if is_gap(cell) else repr(cell)}.")

    def check(self, table: Any) -> None:
        """Raise ``UnreadableModelError`` if the pipeline disagrees on these rows, or on altered ones."""
        compare_tables(self.reading, self.rows(table), table)
        draw, count = np.random.default_rng(0), min(len(table), _CHECKED)
        for far in (1.0, 1e3):
            chosen = draw.integers(len(table), size=count)
            altered = _copied(table, chosen)
            for number in self.used:
                own = _cells(table, number)
                if number in self.columns.labels:
                    known = [label for label in self.columns.labels[number] if label != _GAP]
                    cells: list[Any] = list(known)
                    if number in self.columns.open:
                        cells.append(unknown_label(tuple(known)))
                    values = [cells[at] for at in draw.integers(len(cells), size=count)]
                else:
                    numbers, gaps = _numbers(own, self.columns.names[number])
                    spread = float(np.ptp(numbers[~gaps])) if (~gaps).any() else 0.0
                    moved = np.where(gaps, 0.0, numbers)[draw.integers(len(own), size=count)]
                    moved = moved + far * (spread or 1.0) * draw.standard_normal(count)
                    filled = self.columns.fills.get(number) is not None
                    values = np.where(draw.random(count) < (0.1 if filled else 0.0), np.nan, moved).tolist()
                _set(altered, number, values)
            compare_tables(self.reading, self.rows(altered), altered)

    def cost(self, prices: ColumnPrices | None) -> Cost:
        """The cost in the inputs: of prices by column, or a price of 1 for another category, and numbers in
        the units of their scaler."""
        names, weights = (
            [column.name for column in self.encoding.columns],
            torch.ones(len(self.encoding.means)),
        )
        free = torch.ones(len(weights), dtype=torch.bool)
        categories = [at for at, column in enumerate(self.encoding.columns) if column.kind == "category"]
        by_column = None
        if prices is not None:
            plain = not prices.largest and not set(prices.discrete) - {names[at] for at in categories}
            rule = "sum over columns, without further `discrete` ones, for a model other than trees"
            require(plain, "cost", rule, prices)
            by_column = prices.prices(names, categories)
        weights = weights.double()
        for at, (number, column) in enumerate(zip(self.used, self.encoding.columns, strict=True)):
            price = self.columns.units.get(number, 1.0) ** -2 if column.kind == "number" else 1.0
            price = price if by_column is None else float(by_column.move[at])
            gap = np.inf if by_column is None else float(by_column.gap[at])
            share = 1.0 if column.kind == "number" else 0.5
            for places, own in ((column.inputs, share * price), (column.mark, 0.5 * gap)):
                weights[list(places)] = own if own < np.inf else 1.0
                free[list(places)] = own < np.inf
        weighted = WeightedL2(weights)
        return weighted if bool(free.all()) else Masked(weighted, free)

    @property
    def domain(self) -> Box:
        """0/1 inputs stay in [0, 1]."""
        limited = torch.zeros(len(self.encoding.means), dtype=torch.bool)
        limited[[place for group in self.encoding.discrete for place in group]] = True
        return Box(torch.where(limited, 0.0, -torch.inf), torch.where(limited, 1.0, torch.inf))


def read_frame(model: Any, data: Any) -> tuple[FrameReading, Any] | None:
    """Read a pipeline with imputers or encoders, and its table in the fitted order of columns.

    Returns None for another model, which is read as a function of rows of numbers (``sklearn_models``).
    """
    if not is_exactly(model, "Pipeline") or not any(map(_coded, model.steps)):
        return None
    if not isinstance(data, tuple) or len(data) != 2:
        rule = "be (table, y), with a data frame or an array, for a pipeline with encoders or imputers"
        raise ArgumentError(f"`data` must {rule}; got {type(data).__name__}.")
    given = data[0].to_pandas() if callable(getattr(data[0], "to_pandas", None)) else data[0]
    if not hasattr(given, "columns"):
        given = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
        require(given.ndim == 2, "data", "hold rows, (n, columns)", f"shape {given.shape}")
    table = in_fitted_order(model, given)
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise UnreadableModelError("Pipeline is not fitted")
    names = fitted_names(model) or [f"x{place}" for place in range(int(count))]
    columns = _Columns(names)
    parts: list[_Part] = [_Raw(place) for place in range(len(names))]
    for _, step in model.steps[:-1]:
        parts = columns.follow(step, parts)
    rows = [columns.number(part) for part in parts]
    columns.marked &= columns.numbers
    inputs, encoded, used = _layout(columns)
    known = set(inputs)
    if any(key not in known for row in rows for key in row.factors):
        raise _refused("SimpleImputer(add_indicator=True) of words")
    before = _matrix(rows, inputs)
    encoding = RowEncoding(encoded, torch.zeros(len(inputs)).double(), torch.ones(len(inputs)).double())
    frame = FrameReading(network_after(model, before), encoding, columns, used)
    frame.check(table)
    return frame, table


def _coded(step: Any) -> bool:
    """Whether a (named) step has an imputer or an encoder in it."""
    part = step[1]
    inner = [*getattr(part, "steps", []), *getattr(part, "transformers_", [])]
    return type(part).__name__ in _CODED or any(map(_coded, inner))


def _layout(
    columns: _Columns,
) -> tuple[list[tuple[int, Any]], tuple[EncodedColumn, ...], tuple[int, ...]]:
    """The inputs, the columns that they encode, and their numbers."""
    inputs: list[tuple[int, Any]] = []
    encoded, used = [], []
    for number, name in enumerate(columns.names):
        start = len(inputs)
        if number in columns.labels:
            labels = columns.labels[number]
            inputs += [(number, place) for place in range(len(labels))]
            encoded.append(EncodedColumn(name, "category", tuple(range(start, len(inputs)))))
        elif number in columns.numbers:
            inputs.append((number, _NUMBER))
            mark: tuple[int, ...] = ()
            if number in columns.marked:
                inputs += [(number, "known"), (number, _MISSING)]
                mark = (start + 1, start + 2)
            encoded.append(EncodedColumn(name, "number", (start,), mark))
        else:
            continue
        used.append(number)
    return inputs, tuple(encoded), tuple(used)


def _cells(table: Any, number: int) -> list[Any]:
    column = table.iloc[:, number] if hasattr(table, "iloc") else table[:, number]
    cells: list[Any] = column.tolist()
    return cells


def _numbers(cells: list[Any], name: str) -> tuple[_Array, _Array]:
    """Float64 numbers, 0 for a gap, and where gaps are."""
    gaps = np.array([is_gap(cell) for cell in cells], dtype=bool)
    try:
        values = [0.0 if gap else float(cell) for cell, gap in zip(cells, gaps, strict=True)]
    except (TypeError, ValueError) as reason:
        rule = f"have numbers in column {name!r}, which the pipeline does not encode"
        raise ArgumentError(f"`data` must {rule}: {reason}.") from None
    return np.array(values, dtype=np.float64), gaps


def _copied(table: Any, rows: _Array) -> Any:
    """Rows of a table, a copy whose columns take any value."""
    if hasattr(table, "iloc"):
        return table.iloc[rows].reset_index(drop=True).copy()
    return table[rows].copy()


def _set(table: Any, number: int, values: list[Any]) -> None:
    if not hasattr(table, "iloc"):
        table[:, number] = values
        return
    name = table.columns[number]
    table[name] = type(table[name])(values, index=table.index, name=name)
