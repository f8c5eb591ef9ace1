"""New data in the encoding of a given data set: its scaling, its categories, its order of labels.

Two tables that are each standardised by their own rows would show no shift. A new table is therefore
encoded by the recipe of the given one.
"""

from __future__ import annotations

import codecs
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples
from certus.datasets.base import (
    PARTS,
    Array,
    SplitDataset,
    as_float32,
    digest_arrays,
    in_fifths,
    split_samples,
)
from certus.datasets.catalogue import load, raw_table
from certus.datasets.cells import Ambiguous
from certus.datasets.encoding import ColumnRecipe, encode_columns
from certus.datasets.raw_table import RawTable, TableProblems, frame_table
from certus.errors import ArgumentError, optional_import, require
from certus.storage.files import open_regular
from certus.table_options import TABLES, TableOptions

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

    Its encoding and separator are those of the options where these give the columns of ``ours``, and guessed
    otherwise. Where words have letters outside ASCII, the reading with the fewest unknown categories counts.
    """
    recipe, problem = ours.recipe, None
    if recipe is None or not spec.startswith("csv:"):
        return raw_table(spec, options)
    best: tuple[float, RawTable] | None = None
    guess = replace(options, encoding=None, separator=None)
    for reading in dict.fromkeys(
        (options, replace(options, encoding=None), guess, replace(guess, encoding="cp1252"))
    ):
        try:
            table = raw_table(spec, reading)
        except ArgumentError as reason:
            problem = problem or reason
            continue
        unknown = recipe.unknown(table)
        count = math.inf if unknown is None else len(unknown)
        if best is None or count < best[0]:
            best = count, table
        if unknown is not None and all(map(str.isascii, unknown)):
            break  # which every encoding reads alike
    if best is None:
        assert problem is not None
        raise problem
    return best[1]


_WHOLE = 64 * 2**20  # bytes of a file that is read in one piece
_LINES = 200_000  # lines of a piece of a larger one


def table_batches(ours: SplitDataset, spec: str, options: TableOptions) -> Iterator[RawTable]:
    """Read a new table like that of ``ours`` in pieces, so that it need not fit into memory."""
    prefix, _, name = spec.partition(":")
    path = Path(name)
    if prefix == "parquet" and path.is_file():
        parquet = optional_import(
            "pyarrow.parquet", "Parquet files need pyarrow: pip install 'certus[frames]'."
        )
        with open_regular(path) as stream:
            try:
                for batch in parquet.ParquetFile(stream).iter_batches(_LINES):
                    yield frame_table(pyarrow_table(batch), spec, options)
            except (OSError, ValueError) as problem:  # ArrowInvalid is a ValueError
                if isinstance(problem, ArgumentError):
                    raise
                raise ArgumentError(f"`{spec}` must be a readable Parquet file; got {problem}.") from problem
        return
    if not path.is_file() or path.stat().st_size <= _WHOLE or _is_wide(path, options.encoding):
        yield new_table(ours, spec, options)
        return
    with open_regular(path) as stream, tempfile.TemporaryDirectory() as folder:
        piece, header, before = Path(folder) / "piece.csv", stream.readline(), 1
        for lines in _pieces(stream):
            piece.write_bytes(header + b"".join(lines))
            try:
                table = new_table(ours, f"csv:{piece}", options)
            except ArgumentError as reason:
                where = "" if before == 1 else f" Line 2 of the message is line {before + 1} of the file."
                raise ArgumentError(f"{str(reason).replace(f'csv:{piece}', spec)}{where}") from None
            remark = table.remark.replace(f"csv:{piece}", spec)
            numbers = [number + before - 1 for number in table.lines]
            yield replace(table, source=spec, remark=remark, lines=numbers)
            before += len(lines)


def _is_wide(path: Path, encoding: str | None) -> bool:
    """Whether characters have several bytes each, so that a file is not cut at bytes of line ends."""
    if encoding is not None:
        return codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))
    with open_regular(path) as stream:
        start = stream.read(64)
    return b"\0" in start or start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _pieces(stream: IO[bytes]) -> Iterator[list[bytes]]:
    """Yield lines in pieces that end with a row: inside quotes a line goes on."""
    lines: list[bytes] = []
    open_quotes = False
    for line in stream:
        lines.append(line)
        open_quotes ^= line.count(b'"') % 2 == 1
        if len(lines) >= _LINES and not open_quotes:
            yield lines
            lines = []
    if lines:
        yield lines


def pyarrow_table(batch: Any) -> Any:
    """Return a record batch as a table."""
    return optional_import("pyarrow", "Parquet files need pyarrow.").Table.from_batches([batch])


def new_rows(
    ours: SplitDataset, table: RawTable, options: TableOptions | None = None, *, partial: bool = False
) -> NewRows:
    """Encode a table by the recipe of ``ours``; the target may be absent, and with ``partial`` missing in
    some rows, where it is NaN. Raises ``ArgumentError`` with all problems of the table."""
    recipe, encoding = ours.recipe, ours.train.encoding
    if recipe is None or encoding is None:
        raise ArgumentError(f"`data` must be like {ours.name}, which is not a table; got {table.source}.")
    recipe.check(table, options)
    matrix = encode_columns(recipe.encode(table, options), encoding.means.numpy(), encoding.scales.numpy())
    targets = None
    if recipe.target in table.columns:
        targets = _targets(ours, table, recipe.target_recipe, options, partial=partial)
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
        new = new_rows(ours, table, options)
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


def _targets(
    ours: SplitDataset,
    table: RawTable,
    recipe: ColumnRecipe,
    options: TableOptions | None,
    *,
    partial: bool,
) -> Tensor | None:
    """Return (n,) targets in the units, or with the labels, of ``ours``. With ``partial`` missing ones are
    NaN, and None is returned where all are missing."""
    column, problems = table.columns[recipe.name], TableProblems(table)
    known = ~column.missing
    if not partial:
        rule = "have a target in every row, or no target column"
        problems.add_cells(rule, recipe.name, np.flatnonzero(~known))
        problems.refuse()
    if not known.any():
        return None
    rows = np.flatnonzero(known)
    targets = _known_targets(ours, table, recipe, options, rows, problems)
    if len(rows) == len(table):
        return targets
    whole = torch.full((len(table),), math.nan, dtype=torch.float64)
    whole[torch.from_numpy(rows)] = targets.double()
    return whole


def _known_targets(
    ours: SplitDataset,
    table: RawTable,
    recipe: ColumnRecipe,
    options: TableOptions | None,
    rows: Array,
    problems: TableProblems,
) -> Tensor:
    """Return the targets of some rows."""
    column = table.columns[recipe.name]
    if recipe.kind in ("label", "boolean"):
        own = {cell.lower(): name for cell, name in recipe.spellings.items()}
        words = (str(column.words[row]) for row in rows)
        return _codes(ours, [own.get(word.lower(), word) for word in words])
    reading = column.read(options or TableOptions(), recipe.style)
    if isinstance(reading, Ambiguous):
        problems.add_ambiguous(recipe.name, reading)
        problems.refuse()
    values = recipe.read(column, options)
    wrong = rows[~np.isfinite(values[rows])]
    problems.add_cells("hold finite numbers as targets", recipe.name, wrong)
    problems.refuse()
    values = values[rows]
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
