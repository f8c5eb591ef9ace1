"""Costs, domains, losses and maximisers as tagged JSON, read back without executing anything.

SquaredLp(p=1.5)  ↔  {"type": "SquaredLp", "p": 1.5}
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from certus.costs import LabelCost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Box, Unbounded
from certus.errors import UnsupportedError
from certus.inner import BarzilaiBorwein, PaperAscent, ProximalAscent
from certus.losses import CrossEntropy, Logistic, MissProbability, SmoothMargin, SquaredError
from certus.storage.files import RunError

_KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(SquaredL2, WeightedL2, Mahalanobis, SquaredLp, SquaredSup, Masked, LabelCost),
        *(Unbounded, Box, Ball),
        *(CrossEntropy, SquaredError, Logistic, SmoothMargin, MissProbability),
        *(BarzilaiBorwein, PaperAscent, ProximalAscent),
    )
}

_DTYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.float64, torch.bool)}


def to_tag(thing: Any) -> Any:
    """JSON for a known object, a tensor, a number, a string or None."""
    if isinstance(thing, Tensor):
        return {
            "type": "tensor",
            "dtype": str(thing.dtype).removeprefix("torch."),
            "values": _plain(thing.tolist()),
        }
    if isinstance(thing, float) and not math.isfinite(thing):
        return {"type": "number", "value": str(thing)}
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if _KNOWN.get(type(thing).__name__) is not type(thing):
        known = ", ".join(_KNOWN)
        raise UnsupportedError(
            f"A run can store {known}; {type(thing).__name__} holds code and cannot be stored."
        )
    tag: dict[str, Any] = {"type": type(thing).__name__}
    return tag | {field.name: to_tag(getattr(thing, field.name)) for field in fields(thing) if field.init}


def from_tag(tag: Any) -> Any:
    """The object that ``to_tag`` was given."""
    try:
        return _read(tag)
    except (TypeError, ValueError, KeyError) as reason:
        raise RunError(f"A run is corrupt: {str(tag)[:60]} describes nothing: {reason}.") from None


def _read(tag: Any) -> Any:
    if not isinstance(tag, dict):
        return tag
    kind, rest = tag.get("type"), {name: value for name, value in tag.items() if name != "type"}
    if kind == "tensor":
        return torch.tensor(_numbers(rest["values"]), dtype=_DTYPES[rest["dtype"]])
    if kind == "number":
        return float(rest["value"])
    if kind not in _KNOWN:
        raise RunError(f"A run names {kind!r}, which this version of certus does not know.")
    return _KNOWN[kind](**{name: _read(value) for name, value in rest.items()})


def _plain(values: Any) -> Any:
    """Nested lists in which infinities are strings: JSON has none."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values
