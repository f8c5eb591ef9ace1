"""Small random ensembles, and the cells of their space one by one; nothing here uses the rule under test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from certus.kernel.trees import Ensemble, Prices, Proof

Array = NDArray[np.float64]
CODES = 3


@dataclass
class Node:
    """A tree as Python objects: either a value, or a comparison with two children."""

    value: Array | None = None
    column: int = -1
    threshold: float = 0.0
    codes: frozenset[int] | None = None
    missing_left: bool = False
    children: tuple[Node, Node] | None = None

    def reached(self, rows: Array) -> Array:
        """(n, outputs) the values of (n, columns) rows."""
        if self.children is None:
            assert self.value is not None
            return np.broadcast_to(self.value, (len(rows), len(self.value)))
        x = rows[:, self.column]
        left = x <= self.threshold if self.codes is None else np.isin(x, list(self.codes))
        left = np.where(np.isnan(x), self.missing_left, left)
        return np.where(left[:, None], *(child.reached(rows) for child in self.children))

    def nodes(self) -> Iterator[Node]:
        yield self
        for child in self.children or ():
            yield from child.nodes()


def random_tree(random: np.random.Generator, columns: int, coded: set[int], outputs: int, depth: int) -> Node:
    if depth == 0 or random.random() < 0.15:
        return Node(random.choice([-1.0, -0.5, 0.0, 0.25, 1.0], outputs) + random.normal(0, 0.2, outputs))
    column = int(random.integers(columns))
    codes = frozenset(np.flatnonzero(random.random(CODES) < 0.5).tolist()) if column in coded else None
    children = tuple(random_tree(random, columns, coded, outputs, depth - 1) for _ in range(2))
    return Node(
        None,
        column,
        float(np.round(random.normal(), 1)),
        codes,
        bool(random.random() < 0.5),
        children,  # type: ignore[arg-type]
    )


def as_ensemble(trees: list[Node], columns: int, bias: Array, rounding: float = 0.0) -> Ensemble:
    nodes: list[Node] = []
    roots, links = [], []
    for tree in trees:
        queue = [tree]
        roots.append(len(nodes))
        place = {id(tree): len(nodes)}
        nodes.append(tree)
        for node in queue:
            for child in node.children or ():
                place[id(child)] = len(nodes)
                nodes.append(child)
                queue.append(child)
        links += [tuple(place[id(child)] for child in node.children or ()) or (-1, -1) for node in queue]
    sets = [node.codes for node in nodes if node.codes is not None]
    numbers = iter(range(len(sets)))
    empty = np.zeros(len(bias))
    return Ensemble(
        roots=torch.tensor(roots),
        feature=torch.tensor([node.column if node.children else -1 for node in nodes]),
        threshold=torch.tensor([node.threshold for node in nodes], dtype=torch.float64),
        left=torch.tensor([link[0] for link in links]),
        right=torch.tensor([link[1] for link in links]),
        missing_left=torch.tensor([node.missing_left for node in nodes]),
        category_set=torch.tensor([-1 if node.codes is None else next(numbers) for node in nodes]),
        sets=torch.tensor(
            [[code in codes for code in range(CODES)] for codes in sets], dtype=torch.bool
        ).reshape(len(sets), CODES),
        value=torch.tensor(np.stack([empty if node.value is None else node.value for node in nodes])),
        bias=torch.tensor(bias),
        rounding=torch.full((len(bias),), rounding, dtype=torch.float64),
        columns=columns,
    )


@dataclass
class Case:
    """An ensemble, prices and a row, with everything that can be reached from it."""

    trees: list[Node]
    ensemble: Ensemble
    prices: Prices
    row: Tensor
    scores: Array
    costs: Array
    rows: Array

    def least_cost(self, direction: Array, offset: float, level: float) -> float:
        """D(a), over all cells."""
        return float(self.costs[self.scores @ direction + offset >= level].min(initial=math.inf))


def total_prices(prices: Prices, row: Array, rows: Array) -> Array:
    """(n,) c of (n, columns) rows."""
    parts = np.zeros(rows.shape)
    for f, old in enumerate(row):
        new, gone = rows[:, f], np.isnan(rows[:, f])
        move = float(prices.move[f]) * (1.0 if prices.discrete[f] else (new - old) ** 2)
        moved = np.where(new == old, 0.0, move)
        parts[:, f] = np.where(gone != np.isnan(old), float(prices.gap[f]), np.where(gone, 0.0, moved))
    return np.asarray(parts.max(1) if prices.largest else parts.sum(1))


def random_case(seed: int, columns: int = 3, outputs: int = 1, largest: bool = False, **options: Any) -> Case:
    random = np.random.default_rng(seed)
    coded = {f for f in range(columns) if random.random() < 0.3}
    count, depth = options.get("trees", 4), options.get("depth", 2)
    trees = [random_tree(random, columns, coded, outputs, depth) for _ in range(count)]
    bias = random.normal(0, 0.5, outputs)
    if options.get("probabilities"):
        bias = np.full(outputs, 0.5)
        for node in (node for tree in trees for node in tree.nodes()):
            node.value = None if node.value is None else node.value * 0.08
    ensemble = as_ensemble(trees, columns, bias, options.get("rounding", 0.0))
    move = torch.tensor(random.uniform(0.2, 3, columns))
    move[torch.tensor(random.random(columns) < 0.1)] = math.inf
    gap = torch.tensor(np.where(random.random(columns) < 0.3, math.inf, random.uniform(0.1, 2, columns)))
    discrete = torch.tensor([f in coded or random.random() < 0.15 for f in range(columns)])
    prices = Prices(move, gap, discrete, largest)
    row = np.array(
        [
            math.nan
            if random.random() < 0.15
            else float(random.integers(CODES + 1))
            if f in coded
            else float(np.round(random.normal(), 1 if random.random() < 0.3 else 3))
            for f in range(columns)
        ]
    )
    nodes = [node for tree in trees for node in tree.nodes() if node.children]
    axes = []
    for f in range(columns):
        edges = sorted({node.threshold for node in nodes if node.column == f and node.codes is None})
        numbers = edges + [float(np.nextafter(edge, math.inf)) for edge in edges]
        axes.append([row[f], math.nan, *([0.0, 1.0, 2.0, 3.0] if f in coded else numbers)])
    rows = np.array(list(itertools.product(*axes)))
    scores = np.sum([tree.reached(rows) for tree in trees], 0) + bias
    with np.errstate(invalid="ignore"):  # 0·∞ where a frozen column stays
        costs = total_prices(prices, row, rows)
    return Case(trees, ensemble, prices, torch.tensor(row), scores, costs, rows)


def no_partition(ensemble: Ensemble) -> Ensemble:
    """All rows in one box."""
    return partition([(-1, 0.0, -1, True)], [(-1, -1)], ensemble)


def partition(
    splits: list[tuple[int, float, int, bool]], children: list[tuple[int, int]], ensemble: Ensemble
) -> Ensemble:
    """A tree of (column, threshold, set, missing_left) at each node."""
    zeros = torch.zeros(1, dtype=torch.float64)
    return Ensemble(
        roots=torch.zeros(1).long(),
        feature=torch.tensor([split[0] for split in splits]),
        threshold=torch.tensor([split[1] for split in splits], dtype=torch.float64),
        left=torch.tensor([link[0] for link in children]),
        right=torch.tensor([link[1] for link in children]),
        missing_left=torch.tensor([split[3] for split in splits]),
        category_set=torch.tensor([split[2] for split in splits]),
        sets=ensemble.sets,
        value=torch.zeros(len(splits), 1, dtype=torch.float64),
        bias=zeros,
        rounding=zeros,
        columns=ensemble.columns,
    )


def random_proof(random: np.random.Generator, ensemble: Ensemble, prices: Prices, splits: int = 3) -> Proof:
    """Some splits of the ensemble's own comparisons, and multipliers that satisfy the rule, otherwise any."""
    inner = torch.nonzero(ensemble.feature >= 0).flatten().tolist()
    nodes: list[tuple[int, float, int, bool]] = [(-1, 0.0, -1, True)]
    children, leaves = [(-1, -1)], [0]
    for _ in range(splits if inner else 0):
        place = leaves.pop(int(random.integers(len(leaves))))
        node = int(random.choice(inner))
        nodes[place] = (
            int(ensemble.feature[node]),
            float(ensemble.threshold[node]),
            int(ensemble.category_set[node]),
            bool(random.random() < 0.5),
        )
        children[place] = (len(nodes), len(nodes) + 1)
        leaves += children[place]
        nodes += [(-1, 0.0, -1, True)] * 2
        children += [(-1, -1)] * 2
    pairs, count = ensemble.paths.entries[3], len(leaves)
    share = random.dirichlet(np.ones(ensemble.columns), count) if prices.largest else np.ones((count, 1))
    share = np.broadcast_to(share * (1 - 1e-12), (count, ensemble.columns))
    weight = random.exponential(1, (count, len(pairs))) * (random.random((count, len(pairs))) < 0.7)
    total = np.zeros((count, ensemble.columns))
    for place, (_, column) in enumerate(pairs.tolist()):
        total[:, column] += weight[:, place]
    for place, (_, column) in enumerate(pairs.tolist()):
        weight[:, place] *= share[:, column] * (1 - 1e-12) / np.maximum(total[:, column], 1e-9)
    slope = torch.tensor(random.exponential(1, count) * random.choice([0.0, 0.3, 1.0, 3.0], count))
    return Proof(partition(nodes, children, ensemble), slope, torch.tensor(weight))
