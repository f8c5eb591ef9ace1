"""Type checks of values that were loaded from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from certus.errors import require

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "nothing"}


def check_kinds(settings: Any) -> None:
    """Raise ``ArgumentError`` unless every field of a dataclass holds what its type hint says.

    A whole number is a number; text has no NUL in it. Ranges are the dataclass's own business.
    """
    for name, kinds in _kinds(type(settings)).items():
        value = getattr(settings, name)
        rule = f"be {' or '.join(_WORDS.get(kind, 'numbers') for kind in kinds)}"
        require(any(is_kind(value, kind) for kind in kinds), name, rule, f"{value!r}"[:80])


def is_kind(value: object, kind: Any) -> bool:
    """Whether a value of a JSON file is of a kind.

    >>> [is_kind(True, int), is_kind(2, float), is_kind("x", str), is_kind((1, 2.5), tuple[float, ...])]
    [False, True, True, True]
    """
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(is_kind(one, get_args(kind)[0]) for one in value)
    if kind is float:
        return isinstance(value, float) or is_kind(value, int)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str) and "\0" not in value
    return isinstance(value, kind)


def is_digest(value: object) -> bool:
    """Whether it is a sha256 in hexadecimal."""
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def is_table(value: object, kind: Any) -> bool:
    """Whether it is an object of JSON all of whose values are of a kind."""
    return isinstance(value, Mapping) and all(is_kind(one, kind) for one in value.values())


def _kinds(settings: type) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(settings)
    found = {}
    for field in fields(settings):
        hint = hints[field.name]
        found[field.name] = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return found
