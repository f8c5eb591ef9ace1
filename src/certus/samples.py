"""ReadSamples in whatever form people have them: tensors, arrays, frames, and torch's data sets and loaders.

What is in memory becomes a ``Split``. What is read piece by piece becomes ``Pieces``: an iterable of splits
that is read again for every pass, so that the data need not fit into memory and its own transforms run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, default_collate

from certus.errors import ArgumentError, require
from certus.row_encoding import RowEncoding
from certus.split import Split, require_real

AnySamples = Any
"""A ``Split``; (inputs, targets) as tensors, arrays or frames of numbers; a torch ``Dataset`` with a length
or without; a ``DataLoader``; or any other iterable of batches (inputs, targets)."""

_PIECE = 128
_FORMS = "a Split, (inputs, targets), a DataLoader, a Dataset, or an iterable of batches (inputs, targets)"


@dataclass(frozen=True, eq=False)
class Numbered:
    """A torch data set with a length: samples by their number, each with whatever transforms it has."""

    source: Dataset[Any]

    def __len__(self) -> int:
        assert isinstance(self.source, Sized)
        return len(self.source)

    def __getitem__(self, index: Tensor) -> Split:
        """The samples of these (n,) numbers."""
        many = getattr(self.source, "__getitems__", None)
        numbers = index.tolist()
        found = many(numbers) if callable(many) else [self.source[number] for number in numbers]
        return as_batch(default_collate(found))

    def __iter__(self) -> Iterator[Split]:
        """All of them, in portions."""
        for index in torch.arange(len(self)).split(_PIECE):
            yield self[index]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Batches in an order of their own, such as those of a ``DataLoader``."""

    source: Iterable[Any]

    @property
    def again(self) -> bool:
        """Whether it can be read more than once: a generator cannot."""
        return not isinstance(self.source, Iterator)

    @property
    def count(self) -> int | None:
        """How many batches there are, where that is known."""
        try:
            return len(self.source) if isinstance(self.source, Sized) else None
        except TypeError:  # a loader of a data set without a length
            return None

    def __iter__(self) -> Iterator[Split]:
        for batch in self.source:
            yield as_batch(batch)


ReadSamples = Split | Numbered | Pieces


def as_samples(data: AnySamples, batch_size: int = _PIECE) -> ReadSamples:
    """What the caller has, as one of three kinds.

    Args:
        batch_size: into which a data set without a length is cut.

    >>> found = as_samples((np.zeros((3, 2)), np.array([0, 1, 0])))
    >>> found.inputs.shape, found.targets.dtype
    (torch.Size([3, 2]), torch.int64)
    """
    if isinstance(data, Split | Numbered | Pieces):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return as_batch(data.tensors)
    if isinstance(data, IterableDataset):
        return Pieces(DataLoader(data, batch_size=batch_size))
    if isinstance(data, Dataset):
        require(isinstance(data, Sized), "data", "have a length, or be an IterableDataset", type(data))
        return Numbered(data)
    if isinstance(data, tuple):
        return as_batch(data)
    iterable = isinstance(data, Iterable) and not isinstance(data, Tensor | np.ndarray | str | dict)
    if not iterable or _is_frame(data):
        hint = (
            "; certus.datasets.from_frame(frame, target=...) reads a whole table" if _is_frame(data) else ""
        )
        raise ArgumentError(f"`data` must be {_FORMS}; got {type(data)}{hint}.")
    return Pieces(data)


def read_whole(data: AnySamples) -> Split:
    """All samples at once, from whatever form; a generator is read to its end."""
    samples = as_samples(data)
    if isinstance(samples, Split):
        return samples
    parts = list(samples)
    require(len(parts) > 0, "data", "hold at least one batch", "none")
    weights = [part.weights for part in parts if part.weights is not None]
    rule = "be those of all batches, or of none"
    require(len(weights) in (0, len(parts)), "weights", rule, f"those of {len(weights)} of {len(parts)}")
    return Split(
        torch.cat([part.inputs for part in parts]),
        torch.cat([part.targets for part in parts]),
        torch.cat(weights) if weights else None,
        common_encoding([part.encoding for part in parts]),
    )


def common_encoding(encodings: Sequence[RowEncoding | None]) -> RowEncoding | None:
    """The one encoding of the rows of all batches; raises ``ArgumentError`` where they differ."""
    first = encodings[0]
    for other in encodings[1:]:
        same = first is other or (first is not None and other is not None and first.agrees(other))
        rule = "encode the rows of all batches in one way: read them as one table"
        require(same, "data", rule, "several encodings, or batches with and without one")
    return first


def as_batch(pair: Any) -> Split:
    """(inputs, targets) of any kind as tensors: inputs real numbers of their own precision, labels int64."""
    if isinstance(pair, Split):
        return pair
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        what = f"a dict of {', '.join(map(str, pair))}" if isinstance(pair, dict) else _described(pair)
        raise ArgumentError(f"`data` must give (inputs, targets); got {what}.")
    inputs, targets = as_tensor(pair[0], "inputs"), as_tensor(pair[1], "targets")
    pixels = inputs.dtype == torch.uint8 and inputs.dim() >= 3
    require(not pixels, "inputs", "be scaled, as by inputs / 255", "images of 0 to 255 (torch.uint8)")
    same = inputs.dim() >= 1 and targets.dim() >= 1 and len(inputs) == len(targets)
    rule = f"have one entry for each of the inputs of shape {tuple(inputs.shape)}"
    require(same, "targets", rule, f"shape {tuple(targets.shape)}")
    return Split(
        inputs if inputs.is_floating_point() else inputs.to(torch.get_default_dtype()),
        targets if targets.is_floating_point() else targets.long(),
    )


def as_tensor(values: Any, name: str) -> Tensor:
    """A tensor of numbers from a tensor, an array, a frame, a series or a list."""
    if isinstance(values, Tensor):
        require_real(**{name: values})
        return values.detach()
    convert = getattr(values, "to_numpy", None)
    array = np.asarray(convert() if callable(convert) else values)
    require_real(**{name: array})
    if array.dtype.kind not in "fiub":
        raise ArgumentError(
            f"`{name}` must be numbers; got {_words_in(values, array)}. "
            "certus.datasets.from_frame(frame, target=...) reads tables with words, dates and gaps."
        )
    return torch.from_numpy(np.array(array))  # a copy: of its own, writable, and in one piece


def _words_in(values: Any, array: np.ndarray[Any, Any]) -> str:
    """Which column is no number."""
    types = getattr(values, "dtypes", None)
    names = list(map(str, getattr(values, "columns", [])))
    for label, kind in zip(names, types if types is not None else [], strict=False):
        if getattr(kind, "kind", "f") not in "fiub":
            return f"{kind} in column {label!r}"
    return f"an array of {array.dtype}"


def _is_frame(data: object) -> bool:
    return hasattr(data, "columns") and not isinstance(data, type)


def _described(thing: object) -> str:
    size = f" of {len(thing)} entries" if isinstance(thing, tuple | list) else ""
    return f"{type(thing).__name__}{size}"
