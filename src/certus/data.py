"""Samples from any source: one type for them, one function that reads them, and random subsets.

``Samples`` holds inputs, targets and weights as tensors. ``as_samples`` converts all accepted data
(``DataLike``) into ``Samples`` if they are in memory, else into a ``SampleStream``, whose batches are read
again for every pass: the data need not fit into memory, and their own transforms run.

``RowEncoding`` describes how the rows of a table are encoded as inputs. A number is one input, a date three
(the day, and cosine and sine of its season), a category one 0/1 input for each value; a number or a date
with missing values has two more, *known* and *missing*. Most points of the input space encode no row: half of
a category, a season without its day. The lower bounds of a certificate rest on rows that can be written to a
file and read again, so the searches behind them end with ``RowEncoding.settle``.

Subsets and orders depend on the seed, the number of rows, and the labels where they are stratified; never on
the order of a file, the process, the threads or the version of torch. Rows are sorted by the raw 64-bit
outputs of Philox 4x64-10 with the key (seed, stream), which NumPy promises to keep; its shuffles it does not.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from certus.errors import ArgumentError, optional_import, require, require_count, require_seed
from certus.kernel import concentration

__all__ = ["DataLike", "RowEncoding", "SampleStream", "Samples", "as_samples", "gather_samples"]

YEAR = 365.2425  # days
_FIRST_DAY, _LAST_DAY = -719162.0, 2932896.0  # 0001-01-01 and 9999-12-31, from 1970-01-01 on


@dataclass(frozen=True)
class EncodedColumn:
    """Inputs that encode one column of a table."""

    name: str
    kind: str  # "number", "date", "season" (of a date without its day, which stays) or "category"
    inputs: tuple[
        int, ...
    ]  # of a number one, of a date the day, and cosine and sine, of a category one per value
    mark: tuple[int, ...] = ()  # "known" and "missing", of a number or date that has missing values


def season(days: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the day of the year, continuous over New Year.

    >>> [round(abs(float(part)), 6) for part in season(torch.tensor(YEAR / 4))]
    [0.0, 1.0]
    """
    angle = 2 * math.pi * (days / YEAR).remainder(1.0)
    return angle.cos(), angle.sin()


@dataclass(frozen=True, eq=False)
class RowEncoding:
    """Encoding of the columns of a table as float32 inputs (n, features) = (raw − means) / scales.

    Attributes:
        means, scales: (features,) float64; 0 and 1 for categories, and where nothing is standardised.
    """

    columns: tuple[EncodedColumn, ...]
    means: Tensor
    scales: Tensor

    @property
    def plain(self) -> bool:
        """Whether every column is a number without missing values."""
        return all(column.kind == "number" and not column.mark for column in self.columns)

    @property
    def categories(self) -> tuple[EncodedColumn, ...]:
        return tuple(column for column in self.columns if column.kind == "category")

    @property
    def discrete(self) -> tuple[tuple[int, ...], ...]:
        """Groups of 0/1 inputs that change together: categories, and marks of missing values."""
        groups = [column.inputs if column.kind == "category" else column.mark for column in self.columns]
        return tuple(group for group in groups if group)

    def movable(self, *, everywhere: bool = False) -> Tensor:
        """Return a (features,) mask of the inputs that ``settle`` keeps: numbers, and days of dates.

        Args:
            everywhere: only numbers that are free in every row, whatever the other inputs: neither dates,
                whose season follows the day, nor numbers with missing values.
        """
        kinds = ("number",) if everywhere else ("number", "date")
        columns = [column for column in self.columns if column.kind in kinds]
        return self._mask([column.inputs[0] for column in columns if not (everywhere and column.mark)])

    def _mask(self, places: list[int]) -> Tensor:
        mask = torch.zeros(len(self.means), dtype=torch.bool)
        mask[places] = True
        return mask

    @property
    def attackable(self) -> Tensor | None:
        """Mask (features,) of the inputs that attacks move; None for all, if the encoding is plain."""
        return None if self.plain else self.movable(everywhere=True)

    def settle(self, points: Tensor, base: Tensor) -> Tensor:
        """Return encodings of rows near some points, with the categories and missing values of base rows.

        Numbers are rounded to values that survive writing to a file; dates move by whole days, with their
        season; missing values stay missing.

        Args:
            points: (n, features) any points; base: (n, features) encodings of rows.
        """
        wanted, origin, rows = points.detach().double(), base.double(), base.detach().clone()
        for column in self.columns:
            if column.kind in ("category", "season"):
                continue
            first = column.inputs[0]
            scale, mean = self.scales[first], self.means[first]
            raw, before = (part[:, first] * scale + mean for part in (wanted, origin))
            moves = wanted[:, first] != origin[:, first]
            if column.mark:
                moves &= base[:, column.mark[1]] == 0
            values: tuple[Tensor, ...] = (raw,)
            if column.kind == "date":
                day = raw.round().clamp(_FIRST_DAY, _LAST_DAY)
                moves &= day != before.round()
                values = (day, *season(day))
            for place, value in zip(column.inputs, values, strict=False):  # the season may be left out
                written = ((value - self.means[place]) / self.scales[place]).float()
                moves = moves & torch.isfinite(written)
                rows[:, place] = torch.where(moves, written.to(rows.dtype), rows[:, place])
        return rows

    def with_numbers(self, points: Tensor, base: Tensor) -> Tensor:
        """Return rows near some points that differ from ``base`` only in numbers without missing values."""
        return self.settle(torch.where(self.movable(everywhere=True), points, base), base)

    def returned(self, points: Tensor, origin: Tensor) -> Tensor:
        """Return rows with the categories of ``points`` and everything else of ``origin``."""
        categorical = [place for column in self.categories for place in column.inputs]
        return torch.where(self._mask(categorical), points, origin)

    def swaps(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield (n, features) rows with one category replaced, for every column and value.

        A row is unchanged if it has that value already, or an unknown one.
        """
        for column in self.categories:
            places = list(column.inputs)
            valid = rows[:, places].sum(1, keepdim=True) == 1
            for value in range(len(places)):
                swapped = rows.clone()
                one_hot = torch.eye(len(places))[value].to(rows)
                swapped[:, places] = torch.where(valid, one_hot, rows[:, places])
                yield swapped

    def unknown(self, rows: Tensor) -> Tensor:
        """Return (n, categorical columns): 1 where a category is unknown to the encoding."""
        sums = [rows[:, list(column.inputs)].sum(1) for column in self.categories]
        return 1 - torch.stack(sums, 1) if sums else rows[:, :0]


def require_real(**named: Any) -> None:
    """Raise ``ArgumentError`` for complex tensors and arrays, whose imaginary part would be lost."""
    for name, values in named.items():
        imaginary = values.is_complex() if isinstance(values, Tensor) else np.iscomplexobj(values)
        kind = getattr(values, "dtype", type(values))
        require(not imaginary, name, "be real numbers; give both parts as two features", kind)


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs (n, …), targets (n,) and optional (n,) weights.

    Attributes:
        weights: (n,) weights of the samples, with mean 1; None if equal.
        encoding: how inputs encode the rows of a table; None for other inputs.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    encoding: RowEncoding | None = None

    def __post_init__(self) -> None:
        require_real(inputs=self.inputs, targets=self.targets, weights=self.weights)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Samples:
        weights = None if self.weights is None else self.weights[index]
        return Samples(self.inputs[index], self.targets[index], weights, self.encoding)

    def batches(self, size: int) -> Iterator[Samples]:
        """Successive batches; the last may be smaller."""
        for start in range(0, len(self), size):
            yield self[start : start + size]

    @staticmethod
    def unlabelled(inputs: Tensor) -> Samples:
        """Return samples (n, …) without labels, for a loss of inputs alone (``losses.OutputLoss``): their
        targets are zeros, which it ignores.

        >>> Samples.unlabelled(torch.ones(3, 2)).targets
        tensor([0., 0., 0.])
        """
        return Samples(inputs, torch.zeros(len(inputs), device=inputs.device))

    @staticmethod
    def concatenate(batches: Iterable[Samples]) -> Samples:
        """Join batches of one encoding, all with weights or all without."""
        parts = list(batches)
        require(len(parts) > 0, "data", "hold at least one batch", "none")
        weights = [part.weights for part in parts if part.weights is not None]
        rule = "be given for all batches, or for none"
        require(len(weights) in (0, len(parts)), "weights", rule, f"{len(weights)} of {len(parts)} batches")
        return Samples(
            torch.cat([part.inputs for part in parts]),
            torch.cat([part.targets for part in parts]),
            torch.cat(weights) if weights else None,
            common_encoding([part.encoding for part in parts]),
        )


DataLike: TypeAlias = "Samples | SampleStream | Dataset[Any] | tuple[Any, Any] | Iterable[Any]"
"""``Samples``; (inputs, targets) as tensors, arrays or data frames of numbers; a torch ``Dataset`` with or
without a length; a ``DataLoader``; or any other iterable of batches (inputs, targets)."""

_BATCH = 128
_FORMS = "Samples, (inputs, targets), a DataLoader, a Dataset, or an iterable of batches (inputs, targets)"


@dataclass(frozen=True, eq=False)
class SampleStream:
    """Samples that are read in batches, and read again in every pass.

    Attributes:
        source: a map-style torch ``Dataset``, or an iterable of batches such as a ``DataLoader``.
    """

    source: Dataset[Any] | Iterable[Any]

    @property
    def indexed(self) -> bool:
        """Whether samples can be read by their index: those of a map-style dataset."""
        return isinstance(self.source, Dataset)

    @property
    def repeatable(self) -> bool:
        """Whether the samples can be read more than once: those of a generator cannot."""
        return not isinstance(self.source, Iterator)

    @property
    def batch_count(self) -> int | None:
        """Number of batches of an iterable; None if it is unknown."""
        try:
            return len(self.source) if isinstance(self.source, Sized) else None
        except TypeError:  # a loader of a dataset without a length
            return None

    def __len__(self) -> int:
        """Number of samples of an indexed stream."""
        assert isinstance(self.source, Dataset)
        assert isinstance(self.source, Sized)
        return len(self.source)

    def __getitem__(self, index: Tensor) -> Samples:
        """Samples of an indexed stream at (n,) indices."""
        assert isinstance(self.source, Dataset)
        fetch_many, indices = getattr(self.source, "__getitems__", None), index.tolist()
        rows = fetch_many(indices) if callable(fetch_many) else [self.source[place] for place in indices]
        return as_batch(default_collate(rows))

    def batches(self) -> Iterator[Samples]:
        """All samples in order, in the batches of the source, or of 128 if it is indexed."""
        if isinstance(self.source, Dataset):
            yield from (self[index] for index in torch.arange(len(self)).split(_BATCH))
        else:
            yield from map(as_batch, self.source)


def as_samples(data: DataLike, batch_size: int = _BATCH) -> Samples | SampleStream:
    """Turn any data into ``Samples`` if they are in memory, else into a ``SampleStream``.

    Args:
        batch_size: batch size for reading an ``IterableDataset``.

    >>> samples = as_samples((np.zeros((3, 2)), np.array([0, 1, 0])))
    >>> samples.inputs.shape, samples.targets.dtype
    (torch.Size([3, 2]), torch.int64)
    """
    if isinstance(data, Samples | SampleStream):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return as_batch(data.tensors)
    if isinstance(data, IterableDataset):
        return SampleStream(DataLoader(data, batch_size=batch_size))
    if isinstance(data, Dataset):
        require(isinstance(data, Sized), "data", "have a length, or be an IterableDataset", type(data))
        return SampleStream(data)
    if isinstance(data, tuple):
        return as_batch(data)
    frame = hasattr(data, "columns") and not isinstance(data, type)
    if frame or isinstance(data, Tensor | np.ndarray | str | dict) or not isinstance(data, Iterable):
        hint = "; certus.datasets.from_frame(frame, target=...) reads a whole table" if frame else ""
        if isinstance(data, str):
            hint = f"; certus.datasets.load({data!r}) loads a data set by its name"
        raise ArgumentError(f"`data` must be {_FORMS}; got {type(data)}{hint}.")
    return SampleStream(data)


def gather_samples(data: DataLike) -> Samples:
    """Read all samples into memory."""
    samples = as_samples(data)
    return samples if isinstance(samples, Samples) else Samples.concatenate(samples.batches())


def common_encoding(encodings: Sequence[RowEncoding | None]) -> RowEncoding | None:
    """Return the encoding that all batches share; raise ``ArgumentError`` where they differ."""
    first = encodings[0]
    for other in encodings[1:]:
        same = first is other
        if first is not None and other is not None and first.columns == other.columns:
            same = torch.equal(first.means, other.means) and torch.equal(first.scales, other.scales)
        rule = "have the same encoding in all batches: read them as one table"
        require(same, "data", rule, "several encodings, or batches with and without one")
    return first


def as_batch(pair: Any) -> Samples:
    """Turn (inputs, targets) into tensors: inputs as floating-point numbers, labels as int64."""
    if isinstance(pair, Samples):
        return pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        kind = f"a dict of {', '.join(map(str, pair))}" if isinstance(pair, dict) else type(pair).__name__
        length = f" of {len(pair)} entries" if isinstance(pair, tuple | list) else ""
        raise ArgumentError(f"`data` must give (inputs, targets); got {kind}{length}.")
    inputs, targets = as_tensor(pair[0], "inputs"), as_tensor(pair[1], "targets")
    pixels = inputs.dtype == torch.uint8 and inputs.dim() >= 3
    require(not pixels, "inputs", "be scaled, as by inputs / 255", "images of 0 to 255 (torch.uint8)")
    same = inputs.dim() >= 1 and targets.dim() >= 1 and len(inputs) == len(targets)
    rule = f"have one entry for each of the inputs of shape {tuple(inputs.shape)}"
    require(same, "targets", rule, f"shape {tuple(targets.shape)}")
    return Samples(
        inputs if inputs.is_floating_point() else inputs.to(torch.get_default_dtype()),
        targets if targets.is_floating_point() else targets.long(),
    )


def as_tensor(values: Any, name: str) -> Tensor:
    """Convert a tensor, an array, a frame, a series or a list to a tensor of numbers."""
    if isinstance(values, Tensor):
        require_real(**{name: values})
        return values.detach()
    convert = getattr(values, "to_numpy", None)
    array = np.asarray(convert() if callable(convert) else values)
    require_real(**{name: array})
    if array.dtype.kind not in "fiub":
        types = zip(getattr(values, "columns", []), getattr(values, "dtypes", []), strict=False)
        columns = [(label, kind) for label, kind in types if getattr(kind, "kind", "f") not in "fiub"]
        content = [f"{kind} in column {str(label)!r}" for label, kind in columns]
        raise ArgumentError(
            f"`{name}` must be numbers; got {content[0] if content else f'an array of {array.dtype}'}. "
            "certus.datasets.from_frame(frame, target=...) reads tables with text, dates and missing values."
        )
    return torch.from_numpy(np.array(array))  # a copy: of its own, writable, and in one piece


_SUBSET = 1  # another stream than that of orders: they must not depend on what a subset was chosen by


def random_order(count: int, seed: int) -> Tensor:
    """Return 0 … count − 1 in the random order of a seed, (count,) int64."""
    require_seed(seed)
    return concentration.random_order(count, seed)


@dataclass(frozen=True)
class Shard:
    """Some blocks of rows: the rows in the random order of a seed are cut into ``total`` blocks of equal
    size, up to one row, of which these are the first to the last, counted from 1."""

    first: int
    last: int
    total: int

    @staticmethod
    def parse(text: str, name: str = "shard") -> Shard:
        """Read "3/20", or "3-5/20" for several.

        >>> Shard.parse("3/20")
        Shard(first=3, last=3, total=20)
        """
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?/(\d{1,9})", text)
        first, last, total = (int(match[1]), int(match[2] or match[1]), int(match[3])) if match else (0, 0, 0)
        require(1 <= first <= last <= total, name, "be the number of a shard and of all, such as 3/20", text)
        return Shard(first, last, total)

    def rows(self, order: Tensor) -> Tensor:
        """Take the blocks out of (n,) rows in random order; sorted within each block."""
        ends = [len(order) * block // self.total for block in range(self.first - 1, self.last + 1)]
        blocks = [order[start:end].sort().values for start, end in itertools.pairwise(ends)]
        rule = f"leave at least one row in each block of {len(order)} rows"
        require(all(len(block) > 0 for block in blocks), "shard", rule, f"{self.total} blocks")
        return torch.cat(blocks)


@dataclass(frozen=True, eq=False)
class Subset:
    """A random subset of samples, with a description for statements about them."""

    data: Samples
    rows: Tensor  # (m,) int64 row numbers in the split, increasing within each block of a shard
    source: str  # the name of the split, such as "digits@test"
    total: int  # number of samples of the split
    seed: int | None  # None if all samples are chosen
    stratified: bool  # whether every label has its share of them, up to one sample
    shard: str | None = None

    @staticmethod
    def of(
        data: Samples,
        source: str,
        count: int | None,
        *,
        seed: int,
        stratify: bool,
        shard: str | None = None,
    ) -> Subset:
        """Choose ``count`` samples at random; all if there are no more, or if it is None. Do not stratify by
        label for a confidence: of independent rows only a plain random subset is independent again. Of these,
        take a shard, such as "3/20"."""
        whole = Subset._chosen(data, source, count, seed=seed, stratify=stratify)
        if shard is None:
            return whole
        rows = Shard.parse(shard).rows(random_order(len(whole.data), seed))
        return replace(whole, data=whole.data[rows], rows=whole.rows[rows], seed=seed, shard=shard)

    @staticmethod
    def _chosen(data: Samples, source: str, count: int | None, *, seed: int, stratify: bool) -> Subset:
        total = len(data)
        require_seed(seed)
        require_count("samples", 1 if count is None else count)
        if count is None or count >= total:
            return Subset(data, torch.arange(total), source, total, None, False)
        labelled = stratify and not data.targets.is_floating_point()
        rows = choose_rows(total, count, seed, data.targets if labelled else None)
        return Subset(data[rows], rows, source, total, seed, labelled)

    @property
    def words(self) -> str:
        """Description, such as "a random 500 of the 1,797 rows of digits@all, seed 0"."""
        if self.shard is not None:
            return (
                f"shard {self.shard} of {self.source}, {len(self.data):,} of {self.total:,} rows, "
                f"seed {self.seed}"
            )
        if self.seed is None:
            return f"all {self.total:,} rows of {self.source}"
        how = f"{', stratified by label' if self.stratified else ''}, seed {self.seed}"
        return f"a random {len(self.data):,} of the {self.total:,} rows of {self.source}{how}"

    def as_json(self) -> dict[str, Any]:
        """Return the description as JSON."""
        return {
            "source": self.source,
            "count": len(self.data),
            "total": self.total,
            "stratified": self.stratified,
            "seed": self.seed,
            "words": self.words,
        }


def choose_rows(total: int, count: int, seed: int, labels: Tensor | None = None) -> Tensor:
    """Choose ``count`` of the rows 0 … total − 1, each with probability count/total; return sorted int64.

    Without labels every set of rows is equally likely. With (total,) labels the rows stand in the order of
    their labels, at random within each, and every (total/count)-th is taken from a random start on
    (systematic sampling): every label has its share, rounded up or down.

    >>> labels = torch.tensor([0] * 6 + [1] * 3)
    >>> labels[choose_rows(9, 3, seed=0, labels=labels)].tolist()
    [0, 0, 1]
    """
    require(1 <= count <= total, "samples", f"lie between 1 and {total}", count)
    keys = _keys(total + 1, seed, _SUBSET)
    if labels is None:
        chosen = keys[:total].argsort(kind="stable")[:count]
    else:
        ranked, start = np.lexsort((keys[:total], labels.cpu().numpy())), int(keys[total]) % total
        chosen = ranked[(np.arange(count) * total + start) // count]
    return torch.from_numpy(np.sort(chosen))


def halves(data: Samples, seed: int) -> tuple[Samples, Samples]:
    """Split samples into two random disjoint halves with equal label counts; odd samples are omitted."""
    labelled = not data.targets.is_floating_point()
    labels = data.targets.cpu().numpy() if labelled else np.zeros(len(data), dtype=np.int64)
    order = np.lexsort((_keys(len(data), seed, _SUBSET), labels))
    _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    rank, half = np.arange(len(data)) - starts.repeat(counts), (counts // 2).repeat(counts)
    first, second = order[rank < half], order[(half <= rank) & (rank < 2 * half)]
    return data[torch.from_numpy(first)], data[torch.from_numpy(second)]


def _keys(count: int, seed: int, stream: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    return random_keys(seed, stream)(count)


def random_keys(seed: int, stream: int) -> Callable[[int], np.ndarray[Any, np.dtype[np.uint64]]]:
    """Return a function that draws the next numbers of a stream, as many as it is asked for."""
    require_seed(seed)
    source = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))
    return lambda count: np.asarray(source.random_raw(count), dtype=np.uint64)


def fitted_names(model: Any) -> list[str] | None:
    """Return the column names that an estimator, or the first step of a pipeline, was fitted with."""
    parts = (model, *(step for _, step in getattr(model, "steps", [])[:1]))
    names = [part.feature_names_in_ for part in parts if getattr(part, "feature_names_in_", None) is not None]
    return [str(name) for name in names[0]] if names else None


def named_rows(model: Any, rows: np.ndarray[Any, Any]) -> Any:
    """Return (n, features) rows as a frame, if the model was fitted with column names."""
    names = fitted_names(model)
    if names is None or len(names) != rows.shape[1]:
        return rows
    reason = "was fitted on named columns; rows for it need pandas, which is not installed"
    pandas = optional_import("pandas", f"{type(model).__name__} {reason}.")
    return pandas.DataFrame(rows, columns=names)


def in_fitted_order(model: Any, rows: Any) -> Any:
    """Return rows with the columns of a frame in the fitted order; raise ``ArgumentError`` with the reason of
    the model's own ``predict`` if it refuses them."""
    try:
        model.predict(copy.deepcopy(rows))  # which a scaler with copy=False would overwrite
    except (ValueError, TypeError) as reason:
        raise ArgumentError(f"`data` must be rows that {type(model).__name__} accepts: {reason}") from None
    names, columns = fitted_names(model), getattr(rows, "columns", None)
    if names is None or columns is None or list(columns) == names:
        return rows
    missing = ", ".join([repr(name) for name in names if name not in list(columns)][:5])
    if missing:
        rule = f"have every column that {type(model).__name__} was fitted with, unused ones too"
        raise ArgumentError(f"`data` must {rule}; it lacks {missing}.")
    return rows[names]
