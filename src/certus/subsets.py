"""Which samples, and in which order: decided by a seed, never by where a row stands in its file.

The order of a stored file tells something: MNIST's test file has its harder half first, tables come sorted by
date, by place or by label. The first 500 rows are then a sample of something else than the rest. Here every
choice is a function of the seed and the number of rows alone, and of the labels where it is stratified: the
same in every process, on any number of threads, with every version of torch. Rows are sorted by the raw
64-bit outputs of Philox 4x64-10 with the key (seed, stream). NumPy promises to keep those outputs, but not
what its own shuffles make of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.errors import require, require_count, require_seed
from certus.split import Split

_ORDER, _SUBSET = 0, 1  # streams: an order must not depend on what a subset was chosen by


def random_order(count: int, seed: int) -> Tensor:
    """The numbers 0 … count − 1 in the seed's order. Returns: (count,) int64.

    >>> random_order(8, seed=0).tolist()
    [0, 2, 1, 5, 4, 3, 6, 7]
    """
    return torch.from_numpy(_keys(count, seed, _ORDER).argsort(kind="stable"))


@dataclass(frozen=True, eq=False)
class Subset:
    """Samples of a split, and in words which they are: what a statement about them is about.

    Attributes:
        data: the samples; rows: (m,) int64, their row numbers in the split, increasing.
        source: what the split is called, such as "digits@test".
        total: how many samples the split has.
        seed: what chose them; None if they are all.
        stratified: whether every label has its share of them, up to one sample.
    """

    data: Split
    rows: Tensor
    source: str
    total: int
    seed: int | None
    stratified: bool

    @staticmethod
    def of(data: Split, source: str, count: int | None, *, seed: int, stratify: bool) -> Subset:
        """``count`` samples, each as likely as any other; all if there are no more, or ``count`` is None.

        Args:
            stratify: by label, where there are labels. Say False for what comes with a confidence: of
                independent rows a plain random subset is independent again, a stratified one is not.
        """
        total = len(data)
        require_seed(seed)
        if count is not None:
            require_count("samples", count)
        if count is None or count >= total:
            return Subset(data, torch.arange(total), source, total, None, False)
        labelled = stratify and not data.targets.is_floating_point()
        rows = choose_rows(total, count, seed, data.targets if labelled else None)
        return Subset(data[rows], rows, source, total, seed, labelled)

    @property
    def words(self) -> str:
        """Such as "a random 500 of the 1,797 rows of digits@all, stratified by label, seed 0"."""
        if self.seed is None:
            return f"all {self.total:,} rows of {self.source}"
        how = ", stratified by label" if self.stratified else ""
        return (
            f"a random {len(self.data):,} of the {self.total:,} rows of {self.source}{how}, seed {self.seed}"
        )

    def as_json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "source": self.source,
            "count": len(self.data),
            "total": self.total,
            "stratified": self.stratified,
            "seed": self.seed,
            "words": self.words,
        }


def choose_rows(total: int, count: int, seed: int, labels: Tensor | None = None) -> Tensor:
    """(count,) int64, increasing: ``count`` of the rows 0 … total − 1, each with probability count/total.

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


def halves(data: Split, seed: int) -> tuple[Split, Split]:
    """Two random, disjoint parts of equal size, with as many samples of each label; odd ones are left out."""
    keys = _keys(len(data), seed, _SUBSET)
    labelled = not data.targets.is_floating_point()
    labels = data.targets.cpu().numpy() if labelled else np.zeros(len(data), dtype=np.int64)
    parts: tuple[list[int], list[int]] = ([], [])
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rows = rows[keys[rows].argsort(kind="stable")].tolist()
        half = len(rows) // 2
        parts[0].extend(rows[:half])
        parts[1].extend(rows[half : 2 * half])
    return data[torch.tensor(parts[0], dtype=torch.long)], data[torch.tensor(parts[1], dtype=torch.long)]


def _keys(count: int, seed: int, stream: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    require_seed(seed)
    raw = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64)).random_raw(count)
    return np.asarray(raw, dtype=np.uint64)
