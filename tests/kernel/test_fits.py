"""Graphs, ensembles and descriptions whose parts do not fit together are refused, and edge cases are not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from certus.kernel.costs import Domain, Lp, Quadratic
from certus.kernel.files import _MOST, _fits
from certus.kernel.graph import Graph, Node
from certus.kernel.operators import Convolution, Dense, Product, Reshape, Transposed
from certus.kernel.passes import Refused
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.trees import Ensemble

INPUT = Node((), (2, 3))
SAME = Node((0,), (2, 3), Reshape((2, 3), (2, 3)))


def test_sums_and_rows_side_by_side() -> None:
    for axis, shape in ((None, (2, 3)), (0, (4, 3)), (1, (2, 6))):
        assert Graph((INPUT, SAME, Node((0, 1), shape, axis=axis))).out_shape == shape
    wide = Node((0,), (2, 4), Dense(torch.zeros(8, 6).double(), None, (2, 3), (2, 4)))
    assert Graph((INPUT, wide, Node((0, 1), (2, 7), axis=1))).out_shape == (2, 7)


@pytest.mark.parametrize(
    "nodes",
    [
        (SAME, Node((0, 1), (3, 2))),
        (SAME, Node((0, 1), (2, 7), axis=1)),
        (SAME, Node((0, 1), (4, 2), axis=0)),
        (SAME, Node((0, 1), (2, 3), axis=2)),
        (SAME, Node((0, 1), (2, 3), axis=-1)),
        (SAME, Node((0, 1), (2, 6), axis=-1)),
        (Node((0,), (2, 3), Reshape((2, 3), (2, 3)), axis=0),),
        (Node((0,), (6,), Reshape((2, 3), (2, 3))),),
        (Node((0,), (6,), Reshape((6,), (6,))),),
        (Node((0,), (6,), Reshape((2, 3), (6,))), Node((0, 1), (2, 3))),
        (Node((0,), (3, 2), Reshape((2, 3), (3, 2))), Node((0, 1), (5, 3), axis=0)),
    ],
)
def test_shapes_that_do_not_fit(nodes: tuple[Node, ...]) -> None:
    with pytest.raises(Refused, match="do not fit"):
        Graph((INPUT, *nodes))


def test_an_input_is_no_join() -> None:
    with pytest.raises(Refused, match="do not fit"):
        Graph((Node((), (2, 3), axis=0), SAME))


TREE: dict[str, Any] = {
    "roots": torch.tensor([0]),
    "feature": torch.tensor([0, -1, 1, -1, -1]),
    "threshold": torch.zeros(5, dtype=torch.float64),
    "left": torch.tensor([1, -1, 3, -1, -1]),
    "right": torch.tensor([2, -1, 4, -1, -1]),
    "missing_left": torch.zeros(5, dtype=torch.bool),
    "category_set": torch.full((5,), -1),
    "sets": torch.zeros(0, 1, dtype=torch.bool),
    "value": torch.arange(5.0, dtype=torch.float64)[:, None],
    "bias": torch.zeros(1, dtype=torch.float64),
    "rounding": torch.zeros(1, dtype=torch.float64),
    "columns": 2,
}


def changed(name: str, place: int, number: float) -> dict[str, Any]:
    entry = TREE[name].clone()
    entry[place] = number
    return {name: entry}


def test_nodes_have_no_value() -> None:
    for number in (math.nan, math.inf):
        for place in (0, 2):
            assert Ensemble(**TREE | changed("value", place, number)).columns == 2
    assert Ensemble(**TREE | changed("threshold", 0, math.inf)).columns == 2


@pytest.mark.parametrize(
    "change",
    [
        *(changed(side, 0, number) for side in ("left", "right") for number in (0, -1, 5)),
        *(changed(side, 2, number) for side in ("left", "right") for number in (0, 2, 5)),
        *(changed("feature", place, 2) for place in (0, 2)),
        *(changed("category_set", place, 0) for place in (0, 2)),
        *({"roots": torch.tensor([number])} for number in (-1, 5)),
        *(changed("value", place, number) for place in (1, 3, 4) for number in (math.nan, math.inf)),
        *(changed("bias", 0, math.inf), changed("rounding", 0, math.inf), changed("rounding", 0, -1e-9)),
        changed("threshold", 0, math.nan),
        *({name: TREE[name][:-1]} for name in ("threshold", "left", "missing_left", "category_set", "value")),
        {"sets": torch.zeros(1, dtype=torch.bool)},
        {"bias": torch.zeros(2, dtype=torch.float64)},
        {"rounding": torch.zeros(2, dtype=torch.float64)},
    ],
)
def test_ensembles_that_are_none(change: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="an ensemble needs"):
        Ensemble(**TREE | change)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def convolution(padding: Any = ((1, 1),), weight: Any = None) -> Convolution:
    options: Any = {"stride": (1,), "padding": padding, "dilation": (1,), "groups": 1}
    return Convolution(torch.ones(1, 1, 3).double() if weight is None else weight, None, (1, 4), **options)


def folded() -> Transposed:
    original = convolution()
    original.folds = 1
    return Transposed(original, None)


EYE = torch.eye(2, dtype=torch.float64)
FLAG = torch.ones(2, dtype=torch.bool)


@pytest.mark.parametrize(
    ("thing", "fits"),
    [
        (Domain(number(1.0), number(1.0)), True),
        (Domain(number(1.0), number(0.9)), False),
        (Domain(center=number(0.0), radius=1.0), True),
        (Domain(center=number(0.0), radius=0.0), False),
        (Domain(center=number(0.0)), False),
        (Domain(radius=1.0), False),
        (Lp(shape=(2,), free=FLAG), True),
        (Lp(shape=(2,), label_price=0.0), False),
        (Lp(shape=(2,), label_price=1e-9), True),
        (Lp(shape=(1, 2), free=FLAG), False),
        (Quadratic(shape=(2,), matrix=EYE, root=EYE), True),
        (Quadratic(shape=(3,), matrix=EYE, root=EYE), False),
        (Pointwise(scalar("piecewise_linear", 0.0, _MOST * (1 - 1e-12)), (2,)), True),
        (Pointwise(scalar("piecewise_linear", 0.0, _MOST * (1 + 1e-12)), (2,)), False),
        (Pointwise(scalar("piecewise_linear", -_MOST * (1 + 1e-12), 0.0), (2,)), False),
        (Transposed(convolution(), None), True),
        (folded(), False),
        (Transposed(Dense(EYE, EYE[0]), None), False),
        (Product((Dense(EYE, None), Dense(EYE, None))), True),
        (Product((Dense(EYE, None), Reshape((1, 2), (2,)))), False),
    ],
)
def test_entries_that_fit(thing: Any, fits: bool) -> None:
    assert _fits(thing) is fits


def test_sizes_are_limited() -> None:
    with pytest.raises(Refused, match="must have 1 to"):
        _fits(Reshape((2,), (0,)))
    with pytest.raises(Refused, match="must have 1 to"):
        _fits(Quadratic(shape=(0,), matrix=EYE, root=EYE))
