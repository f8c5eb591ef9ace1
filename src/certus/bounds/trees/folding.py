"""Trees of any library, folded exactly into ``Ensemble``: tests of raw columns, half-lines and sets of codes.

A library compares cast(x_d) ≤ t, where x_d is a column that the steps of a pipeline derive from one raw
column by a nondecreasing map m, so that {x : cast(m(x)) ≤ t} is a half-line. Its end, the largest float64
number that goes left, is located by bisection over the ordered float64 numbers, with the arithmetic that the
library uses: rounding to nearest is nondecreasing, so the roundings of casts and scalers are all included. A
derived column of categories is a table: its test is a set of codes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from certus.errors import UnreadableModelError
from certus.kernel.passes import Refused
from certus.kernel.trees import Ensemble

Array = np.ndarray[Any, Any]
Map = Callable[[Array], Array]

FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53
"""Unit roundoffs."""

_LEAST = np.iinfo(np.int64).min


def as_is(numbers: Array) -> Array:
    """Return the numbers as they are."""
    return numbers


def to_float32(numbers: Array) -> Array:
    """Round to float32 and back; beyond its range ±inf."""
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32).astype(np.float64)


def last_below(thresholds: Array) -> Array:
    """Return the largest float32 numbers below float32 thresholds: x < t is x ≤ last_below(t)."""
    return np.nextafter(thresholds.astype(np.float32), np.float32(-np.inf)).astype(np.float64)


def _ranks(numbers: Array) -> Array:
    """Whole numbers in the order of float64 numbers; neighbours differ by 1, and −0 = +0."""
    bits = np.asarray(numbers, dtype=np.float64).view(np.int64)
    return np.where(bits >= 0, bits, _LEAST - bits)


def _numbers(ranks: Array) -> Array:
    return np.where(ranks >= 0, ranks, _LEAST - ranks).view(np.float64)


def half_line_ends(increasing: Map, thresholds: Array) -> Array:
    """Return the largest finite float64 numbers x with increasing(x) ≤ threshold, for each threshold.

    Args:
        increasing: a nondecreasing map of float64 arrays, elementwise, on finite numbers.
        thresholds: (n,).

    Returns:
        (n,); −inf where no finite number goes left, +inf where all do.
    """
    low = np.full(len(thresholds), _ranks(np.array(-np.inf)))  # goes left, by convention
    high = np.full(len(thresholds), _ranks(np.array(np.inf)))  # does not
    with np.errstate(over="ignore", invalid="ignore"):
        while (high - 1 > low).any():
            middle = (low >> 1) + (high >> 1) + (low & high & 1)  # the sum may overflow
            left = increasing(_numbers(middle)) <= thresholds
            settled = high - 1 <= low
            low, high = np.where(left & ~settled, middle, low), np.where(left | settled, high, middle)
    ends = _numbers(low)
    return np.where(ends == np.finfo(np.float64).max, np.inf, ends)


@dataclass(frozen=True, eq=False)
class Codes:
    """A categorical test: ``left[c]`` for the code c, ``beyond`` for codes after the last."""

    left: Array
    beyond: bool

    def __call__(self, codes: Array) -> Array:
        """(n,) codes, no NaN → (n,) whether they go left; a library truncates codes to whole numbers."""
        whole = np.trunc(codes)
        inside = (whole >= 0) & (whole < len(self.left))
        padded = np.append(self.left, self.beyond)
        place = np.where(inside, whole, len(self.left)).astype(np.int64)
        return np.asarray(padded[place], dtype=bool)


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree in the columns that its library sees; node 0 is the root.

    Attributes:
        feature, left, right: (nodes,) int64; −1 at a leaf.
        threshold: (nodes,) float64; cast(x) ≤ threshold goes left.
        missing_left: (nodes,) bool.
        value: (nodes, outputs) float64, of leaves.
        codes: the tests of nodes that compare categories.
    """

    feature: Array
    threshold: Array
    left: Array
    right: Array
    missing_left: Array
    value: Array
    codes: dict[int, Codes] = field(default_factory=dict)

    def order(self) -> Array:
        """Nodes from the root on, parents first; raise if a node is reached twice or does not exist."""
        levels, level, count = [], np.zeros(1, dtype=np.int64), len(self.feature)
        reached = np.zeros(count, dtype=bool)
        while len(level):
            fits = bool(((level >= 0) & (level < count)).all()) and len(np.unique(level)) == len(level)
            if not fits or bool(reached[level].any()):
                raise UnreadableModelError("a tree of the model is damaged: its nodes do not form a tree")
            reached[level] = True
            levels.append(level)
            inner = level[self.feature[level] >= 0]
            level = np.concatenate([self.left[inner], self.right[inner]])
        return np.concatenate(levels)


@dataclass(frozen=True, eq=False)
class Trees:
    """A model as its library evaluates it: bias + Σ_t value of the leaf, in the library's own columns.

    Attributes:
        trees: the trees that ``predict`` uses.
        bias: (outputs,).
        columns: number of columns.
        cast: conversion of a number before the library compares it.
        unit: unit roundoff of its sums.
        tie: differences of scores up to this may be lost by what ``predict`` does to scores.
        missing: whether rows with gaps are accepted.
        names: names of the columns, if the model has them.
        labels: labels of the codes of categorical columns, where the model names them.
        unknown: treatment of other labels; see ``Derived``.
        code_counts: number of codes of each column that is compared as categories.
        sparse_gaps: zeros of sparse input are read as gaps.
    """

    trees: Sequence[Tree]
    bias: Array
    columns: int
    cast: Map
    unit: float
    tie: float = 0.0
    missing: bool = True
    names: list[str] | None = None
    labels: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    unknown: str = "missing"
    code_counts: dict[int, int] = field(default_factory=dict)
    sparse_gaps: bool = False

    def rounding(self) -> Array:
        """(outputs,) bound of |computed − exact| score: γ_n (|b| + Σ_t max_l |v|), and ties.

        n counts the trees that add to the score, and 4: scaling leaves, the bias, a division, this product.
        """
        inner = [tree.feature >= 0 for tree in self.trees]
        largest = [np.abs(tree.value[~own]).max(0) for tree, own in zip(self.trees, inner, strict=True)]
        sizes = np.stack([np.abs(self.bias), *largest])
        steps = ((sizes[1:] > 0).sum(0) + 4) * self.unit
        if (steps >= 0.5).any():
            raise UnreadableModelError(
                f"{len(self.trees)} trees are too many for sums in the model's precision"
            )
        return np.asarray(steps / (1 - steps) * sizes.sum(0) + self.tie)


@dataclass(frozen=True, eq=False)
class Derived:
    """A column that the steps before the model compute from one raw column.

    Attributes:
        source: index of the raw column.
        apply: nondecreasing map of its numbers.
        missing: the image of a gap: NaN, a number or a label that an imputer fills in; None if the steps
            refuse gaps.
        labels: labels of the raw column's codes, if its values are categories. unknown: treatment of other
        labels: "refused", "missing" (a gap), "code" (the code after the
            last), "larger" (the same, and labels are whole numbers).
        values: (codes,) images of the codes, the one of unknown labels included; NaN for a gap.
    """

    source: int
    apply: Map = as_is
    missing: Any = np.nan
    labels: tuple[Any, ...] | None = None
    unknown: str = "refused"
    values: Array | None = None

    @property
    def raw(self) -> bool:
        """Whether the numbers are those of the raw column."""
        return self.values is None and self.apply is as_is

    def then(self, step: Map) -> Derived:
        """Return the column after a nondecreasing step that keeps gaps."""
        missing = self.missing
        if missing is not None:
            missing = float(step(np.array([missing], dtype=np.float64))[0])
        if self.values is not None:
            return replace(self, values=step(self.values), missing=missing)
        before = self.apply
        return replace(self, apply=lambda numbers: step(before(numbers)), missing=missing)


def coded(column: Derived, labels: tuple[Any, ...] | None, count: int, unknown: str) -> Derived:
    """Return a raw column that the model itself reads as codes of categories.

    Without labels, codes are whole numbers, and one after ``count`` stands for all larger ones.
    """
    if column.values is not None:
        return column
    if not column.raw:
        raise UnreadableModelError(f"column {column.source} is scaled, and then read as categories")
    if labels is not None:
        return replace(column, labels=labels, unknown=unknown, values=np.arange(float(len(labels))))
    whole = tuple(range(count))
    return replace(column, labels=whole, unknown="larger", values=np.arange(float(count + 1)))


def _composed(outer: Map, inner: Map) -> Map:
    return lambda numbers: outer(inner(numbers))


def fold(trees: Trees, derived: Sequence[Derived], columns: int) -> Ensemble:
    """Return the ensemble in raw columns.

    Args:
        trees: the model, in its own columns.
        derived: one column of raw ones for each of its own; categorical ones as tables.
        columns: number of raw columns.
    """
    parts, roots, start = [], [], 0
    for tree in trees.trees:
        order = tree.order()
        if int(tree.feature[order].max()) >= trees.columns:
            raise UnreadableModelError("a tree of the model compares a column that the model does not have")
        place = np.full(len(tree.feature), -1)
        place[order] = np.arange(len(order))
        inner = tree.feature[order] >= 0
        left = np.where(inner, place[tree.left[order]] + start, -1)
        right = np.where(inner, place[tree.right[order]] + start, -1)
        codes = [tree.codes.get(int(node)) for node in order]
        parts.append((tree, order, left, right, codes))
        roots.append(start)
        start += len(order)
    feature = np.concatenate([tree.feature[order] for tree, order, *_ in parts])
    threshold = np.concatenate([tree.threshold[order] for tree, order, *_ in parts]).astype(np.float64)
    gap_left = np.concatenate([tree.missing_left[order] for tree, order, *_ in parts]).astype(bool)
    value = np.concatenate([tree.value[order] for tree, order, *_ in parts])
    tests = [test for *_, codes in parts for test in codes]
    categorical = np.array([test is not None for test in tests])
    raw, missing_left, ends = feature.copy(), gap_left.copy(), np.zeros(len(feature))
    sets: list[Array] = []
    category_set = np.full(len(feature), -1)
    for own, column in enumerate(derived):
        nodes = np.flatnonzero(feature == own)
        if not len(nodes):
            continue
        raw[nodes] = column.source
        image = np.nan if column.missing is None else float(column.missing)
        if column.values is None:
            if categorical[nodes].any():
                raise UnreadableModelError(
                    f"column {column.source} is compared as a number and as a category"
                )
            ends[nodes] = half_line_ends(_composed(trees.cast, column.apply), threshold[nodes])
            if not np.isnan(image):
                missing_left[nodes] = trees.cast(np.array([image])) <= threshold[nodes]
            continue
        images = np.append(column.values, image)
        gaps, filled = np.isnan(images), np.nan_to_num(images)
        for node in nodes:
            test = tests[node]
            sides = trees.cast(filled) <= threshold[node] if test is None else test(filled)
            sides = np.where(gaps, gap_left[node], sides)
            missing_left[node] = sides[-1]
            category_set[node] = len(sets)
            sets.append(sides[:-1])
    table = np.zeros((len(sets), max(map(len, sets), default=0)), dtype=bool)
    for row, members in enumerate(sets):
        table[row, : len(members)] = members
    inner = feature >= 0
    try:
        return Ensemble(
            roots=torch.tensor(roots),
            feature=torch.from_numpy(raw),
            threshold=torch.from_numpy(ends),
            left=torch.from_numpy(np.concatenate([part[2] for part in parts])),
            right=torch.from_numpy(np.concatenate([part[3] for part in parts])),
            missing_left=torch.from_numpy(missing_left),
            category_set=torch.from_numpy(category_set),
            sets=torch.from_numpy(table),
            value=torch.from_numpy(np.where(inner[:, None], 0.0, value)),
            bias=torch.from_numpy(np.asarray(trees.bias, dtype=np.float64)),
            rounding=torch.from_numpy(trees.rounding()),
            columns=columns,
        )
    except Refused as reason:
        raise UnreadableModelError(f"the trees of the model are damaged: {reason}") from None
