"""How code is mutated: cosmic-ray's operators, and five more that make the mistakes of this kind of code.

An operator names its positions in a node of parso's tree, and changes the node at one of them.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import parso
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    comparison_operator_replacement,
    number_replacer,
    unary_operator_replacement,
)
from cosmic_ray.operators.operator import Operator

Node = Any  # parso's tree has no types
Position = tuple[tuple[int, int], tuple[int, int]]

_SWAPS = (
    ("minimum", "maximum"),
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("clamp_min", "clamp_max"),
    ("cummax", "cummin"),
    ("least", "most"),
    ("low", "high"),
    ("inner", "outer"),
    ("left", "right"),
    ("first", "second"),
    ("row_norms", "column_norms"),
    ("in_shape", "out_shape"),
    ("absolute", "absolute_transpose"),
    ("norm", "absolute_norm"),
    ("convex", "concave"),
    ("slope", "curvature"),
    ("before", "after"),
    ("stage", "action"),
    ("length", "unit"),
    ("above", "below"),
    ("floor", "ceil"),
)
SWAPS = {a: b for pair in _SWAPS for a, b in (pair, pair[::-1])}
DROPPED_CALLS = ("abs", "sqrt", "clamp", "clamp_min", "clamp_max", "nan_to_num", "square", "T", "mT")


class _Own(Operator):  # type: ignore[misc]
    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class SwapNames(_Own):
    """One name in place of its counterpart, such as ``minimum`` and ``maximum``."""

    def mutation_positions(self, node: Node) -> list[Position]:
        swaps = node.type == "name" and node.value in SWAPS and not node.is_definition()
        return [(node.start_pos, node.end_pos)] if swaps and _known(node, SWAPS[node.value]) else []

    def mutate(self, node: Node, index: int) -> Node:
        node.value = SWAPS[node.value]
        return node


class DropOperand(_Own):
    """A sum without one of its terms, or a product without one of its factors."""

    def mutation_positions(self, node: Node) -> list[Position]:
        # A list: the node changes while cosmic-ray goes through it.
        places = [node.children[place] for place in self._places(node)]
        return [(place.start_pos, place.end_pos) for place in places]

    def _places(self, node: Node) -> list[int]:
        if node.type not in ("arith_expr", "term"):
            return []
        signs = [child.value for child in node.children[1::2]]
        first = [0] if signs[0] in "+*" else []
        return first + [2 * index + 2 for index, sign in enumerate(signs) if sign in "+-*/"]

    def mutate(self, node: Node, index: int) -> Node:
        place = self._places(node)[index]
        node.children[max(place - 1, 0) : max(place + 1, 2)] = []
        return node


class DropCall(_Own):
    """``x.abs()`` as x; the same for roots, clamps and transposes."""

    def mutation_positions(self, node: Node) -> list[Position]:
        # A list: the node changes while cosmic-ray goes through it.
        places = [node.children[place] for place in self._places(node)]
        return [(place.start_pos, place.end_pos) for place in places]

    def _places(self, node: Node) -> list[int]:
        if node.type != "atom_expr":
            return []
        names = [
            trailer.children[1].value
            if trailer.type == "trailer" and trailer.children[0].value == "."
            else ""
            for trailer in node.children
        ]
        return [place for place, name in enumerate(names) if place > 0 and name in DROPPED_CALLS]

    def mutate(self, node: Node, index: int) -> Node:
        place = self._places(node)[index]
        follows = node.children[place + 1 : place + 2]
        called = bool(follows) and follows[0].type == "trailer" and follows[0].children[0].value == "("
        node.children[place : place + 1 + called] = []
        return node


class ScaleNumber(_Own):
    """Half of a number with a point or an exponent, or twice it; 0 and a thousand times it if it is tiny."""

    def mutation_positions(self, node: Node) -> list[Position]:
        scales = node.type == "number" and any(sign in node.value for sign in ".e") and float(node.value) != 0
        return [(node.start_pos, node.end_pos)] * (2 if scales else 0)

    def mutate(self, node: Node, index: int) -> Node:
        value = float(node.value)
        factor = (0.0, 1e3)[index] if value < 1e-5 else (0.5, 2.0)[index]
        node.value = repr(value * factor)
        return node


class DropStatement(_Own):
    """``x = f(x)`` and ``x += 1`` left out: a step that was forgotten."""

    def mutation_positions(self, node: Node) -> list[Position]:
        if node.type != "expr_stmt":
            return []
        defined = {name.value for name in node.get_defined_names()}
        augmented = node.children[1].type == "operator" and node.children[1].value not in ("=", ":")
        augmented = augmented or node.children[1].type == "augassign"
        used = {leaf.value for leaf in _leaves(node.get_rhs()) if leaf.type == "name"}
        return [(node.start_pos, node.end_pos)] if augmented or (defined and defined <= used) else []

    def mutate(self, node: Node, index: int) -> Node:
        made = parso.parse("pass").children[0]
        made.prefix = node.get_first_leaf().prefix
        return made


def _known(node: Node, name: str) -> bool:
    """Whether a name means something here: an attribute may, and what else is used in the same function."""
    before = node.get_previous_leaf()
    around = node.search_ancestor("funcdef", "classdef", "file_input")
    attribute = before is not None and before.value == "."
    return attribute or name in dir(builtins) or any(leaf.value == name for leaf in _leaves(around))


def _leaves(node: Node) -> Iterator[Node]:
    if hasattr(node, "children"):
        for child in node.children:
            yield from _leaves(child)
    else:
        yield node


def _named(module: Any, *names: str) -> list[Operator]:
    return [getattr(module, name)() for name in names]


def _binary(*pairs: str) -> list[Operator]:
    return _named(binary_operator_replacement, *(f"ReplaceBinaryOperator_{pair}" for pair in pairs))


def _comparison(*pairs: str) -> list[Operator]:
    return _named(comparison_operator_replacement, *(f"ReplaceComparisonOperator_{pair}" for pair in pairs))


OPERATORS: list[Operator] = [
    *_binary(
        "Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Pow_Mul", "Mul_Add", "FloorDiv_Mul", "Mod_FloorDiv"
    ),
    *_binary("BitAnd_BitOr", "BitOr_BitAnd"),
    *_comparison("Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt"),
    *_comparison("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
    *_named(
        unary_operator_replacement, "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not"
    ),
    *_named(unary_operator_replacement, "ReplaceUnaryOperator_Delete_Invert"),
    number_replacer.NumberReplacer(),
    boolean_replacer.AddNot(),
    *_named(boolean_replacer, "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
    *_named(boolean_replacer, "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *(SwapNames(), DropOperand(), DropCall(), ScaleNumber(), DropStatement()),
]
BY_NAME = {type(operator).__name__: operator for operator in OPERATORS}
