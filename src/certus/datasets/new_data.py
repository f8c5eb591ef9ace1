"""New data in the encoding of a given data set: its scaling, its categories, its order of labels.

Two tables that are each standardised by their own rows would show no shift. A new table is therefore
encoded by the recipe of the given one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples
from certus.datasets.arrays import digest_arrays, in_fifths, single
from certus.datasets.base import Recipe, SplitDataset, split_samples
from certus.datasets.catalogue import TABLES, load, raw_table
from certus.datasets.raw_table import RawColumn, RawTable, TableProblem, numbers_in, refuse
from certus.datasets.tables import encode_columns
from certus.errors import ArgumentError, require
from certus.table_options import TableOptions

_ENCODINGS = ("utf-8", "utf-16", "cp1252", "latin-1")
_SEPARATORS = (",", ";", "\t", "|")
_SHARED = ("domain", "classes", "units", "weights", "class_names", "input_scale", "target_scale")


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows of a table in the encoding of another data set.

    Attributes:
        inputs: (n, features); targets: (n,), or None where the table has no such column.
        notes: what is to be said of them.
    """

    inputs: Tensor
    targets: Tensor | None
    notes: tuple[str, ...]


def new_table(ours: SplitDataset, spec: str, options: TableOptions) -> RawTable:
    """The cells of a new table, whose encoding and separator may be others than those of ``ours``.

    A CSV file is read as the table of ``ours`` was. If that fails or lacks columns, other encodings and
    separators are tried; if it has unknown categories with letters outside ASCII, other encodings. The
    reading with the fewest unknown categories is taken, and named in the remark of the table.

    Args:
        options: how the table of ``ours`` was read.
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
            break  # its columns were found: nothing else separates them
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
    """Encode a table by the recipe of ``ours``; the target may be absent.

    Raises ``ArgumentError`` with all that keeps it from being read.
    """
    recipe = ours.recipe
    if recipe is None:
        raise ArgumentError(f"`data` must be like {ours.name}, which was no table; got {table.source}.")
    recipe.check(table)
    columns = recipe.features(table)
    means, scales = np.zeros(_width(ours)), np.ones(_width(ours))
    if ours.input_scale is not None:
        means, scales = (part.numpy() for part in ours.input_scale)
    inputs = single(table.source, encode_columns(columns, means, scales))
    column = table.columns.get(recipe.target)
    targets = None if column is None else _targets(ours, recipe, table, column)
    return NewRows(inputs, targets, recipe.notes(table))


def load_like(
    ours: SplitDataset,
    spec: str,
    *,
    seed: int = 0,
    target: str | None = None,
    options: TableOptions | None = None,
) -> SplitDataset:
    """Load the data set ``spec`` in the encoding of ``ours``.

    Args:
        seed: decides on its splits; target: the target column of a table.
        options: how its file is read, encoding and separator.
    """
    if ours.recipe is not None and spec.startswith(TABLES):
        return _like_table(ours, new_table(ours, spec, options or TableOptions()), seed)
    theirs = load(spec, seed=seed, standardize=False, target=target if spec.startswith(TABLES) else None)
    shapes = [tuple(data.train.inputs.shape[1:]) for data in (ours, theirs)]
    require(
        shapes[0] == shapes[1], "data", f"have inputs of shape {shapes[0]}, as {ours.name} has", shapes[1]
    )
    if ours.feature_names is not None and theirs.feature_names not in (None, ours.feature_names):
        names = set(ours.feature_names) ^ set(theirs.feature_names or ())
        difference = f"others: {', '.join(sorted(names)[:4])}" if names else "another order"
        raise ArgumentError(f"`data` must have the features of {ours.name}, in its order; got {difference}.")
    same = (ours.classes is None) == (theirs.classes is None)
    require(same, "data", f"be of one kind with {ours.name}, labels or numbers", spec)

    def alike(split: Samples) -> Samples:
        inputs = _scaled(split.inputs, ours.input_scale)
        if ours.classes is None:
            return Samples(inputs, _scaled(split.targets, ours.target_scale), encoding=ours.train.encoding)
        return Samples(inputs, _relabelled(split.targets, ours, theirs), encoding=ours.train.encoding)

    return replace(
        theirs,
        train=alike(theirs.train),
        calibration=alike(theirs.calibration),
        test=alike(theirs.test),
        later={name: alike(split) for name, split in theirs.later.items()},
        **{name: getattr(ours, name) for name in _SHARED},
    )


def _like_table(ours: SplitDataset, table: RawTable, seed: int) -> SplitDataset:
    new = new_rows(ours, table)
    if new.targets is None:
        assert ours.recipe is not None
        columns = ", ".join(table.columns)
        raise ArgumentError(
            f"`{table.source}` must have the target column {ours.recipe.target!r}; got only {columns}."
        )
    everything = Samples(new.inputs, new.targets, encoding=ours.train.encoding)
    rows = in_fifths(table.source, len(table), seed)
    return replace(
        ours,
        name=table.source,
        **split_samples(everything, rows),
        later={},
        rows=rows,
        sha256=digest_arrays({"inputs": new.inputs.numpy(), "targets": new.targets.numpy()}),
        notes=new.notes,
    )


def _width(ours: SplitDataset) -> int:
    return int(ours.train.inputs.shape[1])


def _targets(ours: SplitDataset, recipe: Recipe, table: RawTable, column: RawColumn) -> Tensor:
    """Return (n,) targets in the units, or with the labels, of ``ours``."""
    gaps = np.flatnonzero(column.gaps)
    if len(gaps):
        at = table.place(recipe.target, int(gaps[0]))
        refuse(table.source, [TableProblem("have a target in every row, or no such column", f"none in {at}")])
    if recipe.target_kind == "label":
        names = list(column.words)
    else:
        values = column.numbers
        if values is None:
            values = numbers_in(column.cells or (), recipe.target_kind)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            at = table.place(recipe.target, int(bad[0]))
            refuse(table.source, [TableProblem("hold finite numbers as targets", f"another in {at}")])
        if ours.classes is None:
            mean, scale = ours.target_scale or (0.0, 1.0)
            return single(table.source, (values - mean) / scale)
        names = [f"{value:.0f}" if value == round(value) else f"{value}" for value in values.tolist()]
    codes = {name: code for code, name in enumerate(ours.class_names or ())}
    unknown = sorted({str(name) for name in names if name not in codes})
    rule = f"have labels of {ours.name}: {', '.join(list(codes)[:8])}"
    require(not unknown, "data", rule, ", ".join(unknown[:4]))
    return torch.tensor([codes[str(name)] for name in names])


def _scaled(values: Tensor, scale: tuple[Tensor, Tensor] | tuple[float, float] | None) -> Tensor:
    return values if scale is None else ((values.double() - scale[0]) / scale[1]).to(values.dtype)


def _relabelled(targets: Tensor, ours: SplitDataset, theirs: SplitDataset) -> Tensor:
    """Match labels by name where both data sets have names: a file may lack a class."""
    if ours.class_names is None or theirs.class_names is None:
        require(theirs.classes == ours.classes, "data", f"have {ours.classes} classes", theirs.classes)
        return targets
    unknown = [name for name in theirs.class_names if name not in ours.class_names]
    rule = f"have labels of {ours.name}: {', '.join(ours.class_names[:8])}"
    require(not unknown, "data", rule, ", ".join(unknown[:4]))
    return torch.tensor([ours.class_names.index(name) for name in theirs.class_names])[targets]
