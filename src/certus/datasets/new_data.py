"""New data in the encoding of a given data set: its scaling, its categories, its order of labels.

Two tables that are each standardised by their own rows would show no shift. A new table is therefore
encoded by the recipe of the given one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples
from certus.datasets.base import PARTS, SplitDataset, as_float32, digest_arrays, in_fifths, split_samples
from certus.datasets.catalogue import TABLES, load, raw_table
from certus.datasets.raw_table import RawTable, TableProblems
from certus.datasets.tables import encode_columns
from certus.errors import ArgumentError, require
from certus.table_options import TableOptions

_ENCODINGS = ("utf-8", "utf-16", "cp1252", "latin-1")
_SEPARATORS = (",", ";", "\t", "|")
_SHARED = ("domain", "classes", "units", "weights", "class_names", "input_scale", "target_scale")


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows in the encoding of another data set, with notes on unknown categories and missing numbers. The
    targets (n,) are None where the table has no such column."""

    inputs: Tensor
    targets: Tensor | None
    notes: tuple[str, ...]


def new_table(ours: SplitDataset, spec: str, options: TableOptions) -> RawTable:
    """Read the cells of a new table like that of ``ours``, which was read with ``options``.

    If that fails or lacks columns, other encodings and separators are tried; if it has unknown categories
    with letters outside ASCII, other encodings. The reading with the fewest unknown categories is taken.
    """
    recipe = ours.recipe
    if recipe is None or not spec.startswith("csv:"):
        return raw_table(spec, options)
    problem: ArgumentError | None = None
    best: tuple[float, RawTable] | None = None
    separators = dict.fromkeys((options.separator, *_SEPARATORS))
    encodings = dict.fromkeys((options.encoding, *_ENCODINGS))
    for separator, encoding in itertools.product(separators, encodings):
        if separator != options.separator and best is not None and best[0] < math.inf:
            break  # all columns are there: nothing else separates them
        reading = replace(options, encoding=encoding, separator=separator)
        try:
            table = raw_table(spec, reading)
        except ArgumentError as reason:
            problem = problem or reason
            continue
        unknown = recipe.unknown(table)
        count = math.inf if unknown is None else len(unknown)
        if best is None or count < best[0]:
            remark = f"{spec} is read in {encoding}, separated by {separator!r}, unlike {ours.name}."
            best = count, table if reading == options else replace(table, remark=remark)
        if unknown is not None and all(map(str.isascii, unknown)):
            break  # which every encoding reads alike
    if best is None:
        assert problem is not None
        raise problem
    return best[1]


def new_rows(ours: SplitDataset, table: RawTable) -> NewRows:
    """Encode a table by the recipe of ``ours``; the target may be absent. Raises ``ArgumentError`` with all
    problems of the table."""
    recipe, encoding = ours.recipe, ours.train.encoding
    if recipe is None or encoding is None:
        raise ArgumentError(f"`data` must be like {ours.name}, which is not a table; got {table.source}.")
    recipe.check(table)
    matrix = encode_columns(recipe.encode(table), encoding.means.numpy(), encoding.scales.numpy())
    targets = None
    if recipe.target in table.columns:
        targets = _targets(ours, table, recipe.target, recipe.target_kind)
    return NewRows(as_float32(table.source, matrix), targets, recipe.notes(table))


def load_like(
    ours: SplitDataset,
    spec: str,
    *,
    seed: int = 0,
    target: str | None = None,
    options: TableOptions | None = None,
) -> SplitDataset:
    """Load the data set ``spec`` in the encoding of ``ours``; the seed decides on its splits, and its file is
    read with ``options``."""
    if ours.recipe is not None and spec.startswith(TABLES):
        table = new_table(ours, spec, options or TableOptions())
        new = new_rows(ours, table)
        if new.targets is None:
            rule, columns = f"have the target column {ours.recipe.target!r}", ", ".join(table.columns)
            raise ArgumentError(f"`{table.source}` must {rule}; got only {columns}.")
        samples = Samples(new.inputs, new.targets, encoding=ours.train.encoding)
        sha256 = digest_arrays({"inputs": new.inputs.numpy(), "targets": new.targets.numpy()})
        parts = split_samples(samples, in_fifths(table.source, len(table), seed))
        return replace(ours, name=table.source, **parts, later={}, sha256=sha256, notes=new.notes)
    theirs = load(spec, seed=seed, standardize=False, target=target if spec.startswith(TABLES) else None)
    shape, other = (tuple(data.train.inputs.shape[1:]) for data in (ours, theirs))
    require(shape == other, "data", f"have inputs of shape {shape}, as {ours.name} has", other)
    if ours.feature_names is not None and theirs.feature_names not in (None, ours.feature_names):
        names = set(ours.feature_names) ^ set(theirs.feature_names or ())
        difference = f"others: {', '.join(sorted(names)[:4])}" if names else "another order"
        raise ArgumentError(f"`data` must have the features of {ours.name}, in its order; got {difference}.")
    same = (ours.classes is None) == (theirs.classes is None)
    require(same, "data", f"have targets of the same kind as {ours.name}, labels or numbers", spec)
    codes = None
    if ours.class_names is not None and theirs.class_names is not None:
        codes = _codes(ours, theirs.class_names)  # by name: a file may lack a class
    else:
        require(theirs.classes == ours.classes, "data", f"have {ours.classes} classes", theirs.classes)

    def convert(split: Samples) -> Samples:
        targets = _scaled(split.targets, ours.target_scale) if codes is None else codes[split.targets]
        return Samples(_scaled(split.inputs, ours.input_scale), targets, encoding=ours.train.encoding)

    fields: dict[str, Any] = {name: getattr(ours, name) for name in _SHARED}
    fields |= {name: convert(getattr(theirs, name)) for name in PARTS}
    return replace(theirs, **fields, later={name: convert(split) for name, split in theirs.later.items()})


def _targets(ours: SplitDataset, table: RawTable, target: str, kind: str) -> Tensor:
    """Return (n,) targets in the units, or with the labels, of ``ours``."""
    column, problems = table.columns[target], TableProblems(table)
    rule = "have a target in every row, or no target column"
    problems.add_cells(rule, target, np.flatnonzero(column.missing))
    problems.refuse()
    if kind == "label":
        return _codes(ours, [str(word) for word in column.words])
    values = column.parse(kind)
    problems.add_cells("hold finite numbers as targets", target, np.flatnonzero(~np.isfinite(values)))
    problems.refuse()
    if ours.classes is None:
        mean, scale = ours.target_scale or (0.0, 1.0)
        return as_float32(table.source, (values - mean) / scale)
    return _codes(
        ours, [f"{value:.0f}" if value == round(value) else f"{value}" for value in values.tolist()]
    )


def _scaled(values: Tensor, scale: tuple[Tensor, Tensor] | tuple[float, float] | None) -> Tensor:
    return values if scale is None else ((values.double() - scale[0]) / scale[1]).to(values.dtype)


def _codes(ours: SplitDataset, names: Sequence[str]) -> Tensor:
    """Return the labels of ``ours`` that have the given names."""
    codes = {name: code for code, name in enumerate(ours.class_names or ())}
    unknown = sorted(set(names) - set(codes))
    rule = f"have labels of {ours.name}: {', '.join(list(codes)[:8])}"
    require(not unknown, "data", rule, ", ".join(unknown[:4]))
    return torch.tensor([codes[name] for name in names])
