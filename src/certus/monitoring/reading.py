"""New rows for a monitor: any data, read in batches, of which a random subset is held.

Of every group of rows, such as those of one month, at most ``most`` are kept: those with the smallest random
keys, which is a uniformly random subset however many rows there are and in whatever batches they come.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples, as_samples, random_keys
from certus.datasets.new_data import load_like, new_rows, table_batches
from certus.datasets.raw_table import RawTable, frame_table
from certus.errors import ArgumentError, require
from certus.monitoring.reference import Reference
from certus.runs.loaded_run import named_split
from certus.table_options import TABLES

_STREAM = 5


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows as the model takes them: inputs (m, *shape) float64, targets (m,) or None.

    Attributes:
        targets: float64 with NaN where some rows have none yet.
        total: of how many rows they are a random subset; clusters: their names, if asked for.
        notes: remarks on unknown categories and missing numbers.
    """

    inputs: Tensor
    targets: Tensor | None
    total: int
    clusters: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def labelled(self, dtype: torch.dtype) -> Samples | None:
        """The rows that have targets; None if there are none."""
        if self.targets is None:
            return None
        known = ~self.targets.isnan()
        return Samples(self.inputs[known], self.targets[known].to(dtype))


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows: inputs, targets (NaN where one is missing), the table that they were read from, and
    the number of the first."""

    inputs: Tensor
    targets: Tensor | None
    table: RawTable | None = None
    notes: tuple[str, ...] = ()
    first: int = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def words(self, column: str, option: str) -> list[str]:
        """Return the cells of a column of the table."""
        columns = {} if self.table is None else self.table.columns
        listed = (
            f"name a column of the new data: {', '.join(columns)}" if columns else "be left out: no table"
        )
        require(column in columns, option, listed, repr(column))
        return ["" if cell is None else cell for cell in columns[column].words]


def random_rows(
    new: Any, targets: Any, reference: Reference, classes: int | None, most: int, seed: int
) -> Rows:
    """Read new rows, at most ``most`` of them."""
    groups = grouped_rows(batches(new, targets, reference, classes), None, most, seed)
    require(len(groups) > 0, "new", "hold at least one row", "none")
    return groups[""]


Grouping = Callable[[Batch], Sequence[str]]
"""(rows,) names of the groups that the rows of a batch belong to; "" leaves a row out."""


def grouped_rows(
    parts: Iterable[Batch], group: Grouping | None, most: int, seed: int, clusters: str | None = None
) -> dict[str, Rows]:
    """Read batches, and return the rows of each group, in the order of their first rows."""
    held: dict[str, _Held] = {}
    for part in parts:
        owners = None if clusters is None else np.array(part.words(clusters, "clusters"))
        names = np.array([""] * len(part) if group is None else group(part))
        for name in dict.fromkeys(names.tolist()):
            if name or group is None:
                inside = np.flatnonzero(names == name)
                held.setdefault(name, _Held(most, random_keys(seed, _STREAM))).add(part, inside, owners)
    return {name: rows.finish() for name, rows in held.items()}


@dataclass(eq=False)
class _Held:
    """The rows with the smallest keys so far."""

    most: int
    draw: Callable[[int], Any]
    total: int = 0
    parts: list[tuple[Any, Tensor, Tensor, Any]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, part: Batch, inside: Any, owners: Any) -> None:
        index = torch.from_numpy(inside)
        missing = torch.full((len(inside),), math.nan)
        targets = missing if part.targets is None else part.targets[index]
        own = None if owners is None else owners[inside]
        self.parts.append((self.draw(len(inside)), part.inputs[index], targets.double(), own))
        self.total += len(inside)
        self.notes |= dict.fromkeys(part.notes)
        if sum(len(keys) for keys, *_ in self.parts) > 4 * self.most:
            self._reduce()

    def _reduce(self) -> None:
        keys, inputs, targets, owners = zip(*self.parts, strict=True)
        whole = np.concatenate(keys)
        kept = np.sort(np.argpartition(whole, self.most - 1)[: self.most]) if len(whole) > self.most else None
        chosen = np.arange(len(whole)) if kept is None else kept
        index = torch.from_numpy(chosen)
        self.parts = [
            (
                whole[chosen],
                torch.cat(inputs)[index],
                torch.cat(targets)[index],
                None if owners[0] is None else np.concatenate(owners)[chosen],
            )
        ]

    def finish(self) -> Rows:
        self._reduce()
        _, inputs, targets, owners = self.parts[0]
        names = () if owners is None else tuple(map(str, owners))
        known = not bool(targets.isnan().all())
        return Rows(inputs.double(), targets if known else None, self.total, names, tuple(self.notes))


def batches(new: Any, targets: Any, reference: Reference, classes: int | None) -> Iterator[Batch]:
    """Yield new rows in batches, as the model takes them."""
    first = 0
    for part in _parts(new, targets, reference):
        yield replace(_checked(part, reference, classes), first=first)
        first += len(part)


def _parts(new: Any, targets: Any, reference: Reference) -> Iterator[Batch]:
    data = reference.data
    if isinstance(new, str):
        require(data is not None, "new", "be rows as the model takes them: the run is not here", repr(new))
        assert data is not None
        assert reference.trained is not None
        settings = reference.trained.settings
        whole_file = "@" not in new or Path(new.partition(":")[2]).exists()
        if data.recipe is not None and new.startswith(TABLES) and whole_file:
            for table in table_batches(data, new, reference.table_options):
                yield _encoded(table, reference)
            return
        spec, at, split = new.rpartition("@")
        spec, split = (spec, split) if at else (new, "all")
        same = spec == settings.data
        options = reference.table_options
        try:
            whole = (
                data
                if same
                else load_like(data, spec, seed=settings.seed, target=settings.target, options=options)
            )
        except ArgumentError as reason:
            raise ArgumentError(str(reason).replace("`spec`", "`new`", 1)) from None
        rows = named_split(whole, split)
        yield Batch(rows.inputs, rows.targets, notes=whole.notes)
        return
    frame = hasattr(new, "columns") and not isinstance(new, type)
    if frame and data is not None and data.recipe is not None:
        assert reference.trained is not None
        part = _encoded(frame_table(new, "new", reference.table_options), reference)
        yield part if targets is None else replace(part, targets=torch.as_tensor(np.asarray(targets)))
        return
    if frame:
        rule = "be rows as the model takes them: a frame needs the certificate of a run on a table"
        raise ArgumentError(f"`new` must {rule}; got {type(new)}.")
    if isinstance(new, torch.Tensor | np.ndarray):
        own = None if targets is None else torch.as_tensor(np.asarray(targets))
        yield Batch(torch.as_tensor(new), own)
        return
    require(targets is None, "targets", "be part of `new`, or `new` be a tensor or an array", type(new))
    samples = as_samples(new)
    for each in [samples] if isinstance(samples, Samples) else samples.batches():
        yield Batch(each.inputs, each.targets)


def _encoded(table: RawTable, reference: Reference) -> Batch:
    assert reference.data is not None
    trained = reference.trained
    options = None if trained is None else reference.table_options
    require(len(table) > 0, "new", "hold at least one row", f"a header alone in {table.source}")
    rows = new_rows(reference.data, table, options, partial=True)
    return Batch(rows.inputs, rows.targets, table, rows.notes)


def _checked(part: Batch, reference: Reference, classes: int | None) -> Batch:
    """Check shapes, numbers and labels of a batch."""
    shape, own = tuple(part.inputs.shape[1:]), tuple(reference.inputs.shape[1:])
    require(shape == own, "new", f"have rows of shape {own}, as the certified ones have", shape)
    finite = bool(torch.isfinite(part.inputs).all())
    require(finite, "new", "hold finite numbers", "others")
    inputs = part.inputs.detach().cpu().double()
    if part.targets is None:
        return replace(part, inputs=inputs)
    targets = part.targets.detach().cpu().flatten()
    require(len(targets) == len(inputs), "targets", f"be one for each of {len(inputs)} rows", len(targets))
    known = targets.double()[~targets.double().isnan()]
    if classes is None:
        require(bool(torch.isfinite(known).all()), "targets", "be finite numbers", "others")
    else:
        inside = bool(((known == known.round()) & (known >= 0) & (known < classes)).all())
        require(inside, "targets", f"be labels from 0 to {classes - 1}", "others")
    return replace(part, inputs=inputs, targets=targets.double())


def certified_clusters(reference: Reference, column: str) -> tuple[tuple[str, ...], float]:
    """Return the cells of a column of the run's own table at the certified rows, and the share of the rows of
    each cluster that are certified: 1 where clusters were kept whole, else that of all rows."""
    option = "clusters"
    from certus.datasets.catalogue import raw_table  # only where clusters are asked for
    from certus.runs.settings import CertifySettings
    from certus.storage.files import convert

    trained, certificate = reference.trained, reference.about
    rule = "be left out: the certified rows are not those of a run on a table"
    tabular = (
        trained is not None and trained.data.recipe is not None and trained.settings.data.startswith(TABLES)
    )
    require(tabular and bool(certificate), option, rule, repr(column))
    assert trained is not None
    settings = convert(certificate["settings"], CertifySettings)
    rule = "be left out: the certified rows are of other data than the run's"
    require(settings.data is None, option, rule, repr(column))
    table = raw_table(trained.settings.data, trained.settings.table)
    words = Batch(torch.empty(len(table), 0), None, table).words(column, option)
    rows = trained.data.rows
    parts = ("train", "calibration", "test") if settings.split == "all" else (settings.split,)
    index = torch.cat([rows[part] for part in parts])
    if settings.samples is not None and settings.samples < len(index):
        from certus.data import Subset
        from certus.runs.certification import certified_source

        data = named_split(certified_source(trained, settings), settings.split)
        stratify = settings.confidence is None
        chosen = Subset.of(data, "", settings.samples, seed=settings.seed, stratify=stratify)
        index = index[chosen.rows]
    own = [words[place] for place in index.tolist()]
    rest = Counter(words)
    rest.subtract(own)
    whole = not any(rest[cluster] for cluster in set(own))
    return tuple(own), 1.0 if whole else len(own) / len(words)
