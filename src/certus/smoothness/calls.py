"""One call of a torch function in a graph: its arguments by name, as the rules of functions see it.

A tensor is a ``Fixed`` value, which no input changes, or a ``Moving`` one, the output of an earlier node. A
size of the batch is a ``Count``: it stands for any number, so nothing but a shape may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx

from certus.errors import UnsupportedError
from certus.smoothness.stage import Shape

BATCHES = (5, 7)
"""Sizes of a batch that stand for all: what is alike for both depends on neither."""


@dataclass(frozen=True, eq=False)
class Moving:
    """The output of an earlier node, by its number, with the shape of one sample."""

    number: int
    shape: Shape


@dataclass(frozen=True, eq=False)
class Fixed:
    """A tensor that no input changes. ``batched``: its first axis is the batch, and has size 1 here."""

    value: Tensor
    batched: bool = False


@dataclass(frozen=True)
class Count:
    """A size that depends on the batch: its values for ``BATCHES``."""

    values: tuple[Any, Any]


@dataclass(frozen=True, eq=False)
class Call:
    """A call with its arguments by name.

    Attributes:
        name: of the torch function, such as "conv2d".
        shape: of one sample of the output; None where there are several outputs, or none with a batch.
    """

    name: str
    node: fx.Node
    arguments: dict[str, Any]
    shape: Shape | None

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.arguments.get(name, default)

    def moving(self, name: str) -> Moving:
        """An argument that must depend on the inputs."""
        value = self.arguments[name]
        if not isinstance(value, Moving):
            raise UnsupportedError(f"a fixed `{name}`, where it should depend on the inputs")
        return value

    def fixed(self, name: str) -> Tensor | None:
        """An argument that must not: a parameter, a buffer, a number."""
        value = self.arguments.get(name)
        if isinstance(value, Moving):
            raise UnsupportedError(f"a `{name}` that depends on the inputs; only fixed ones have a rule")
        if isinstance(value, Count):
            raise UnsupportedError(f"a `{name}` that depends on how many samples there are in a batch")
        if isinstance(value, Fixed):
            return value.value
        return None if value is None else torch.as_tensor(value, dtype=torch.float64)

    def number(self, name: str, default: float = 0.0) -> float:
        value = self.arguments.get(name)
        if isinstance(value, Count | Moving | Fixed):
            raise UnsupportedError(f"a `{name}` that is no plain number")
        return default if value is None else float(value)


def bind(target: Any, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a torch function by name, defaults included."""
    schema = target._schema.arguments
    given = {each.name: value for each, value in zip(schema, args, strict=False)} | options
    defaults = {each.name: each.default_value for each in schema if each.has_default_value()}
    return given | {name: value for name, value in defaults.items() if name not in given}


def parts_of(value: Any) -> list[Any]:
    """A value, or those in a list of lists."""
    if isinstance(value, list | tuple):
        return [part for each in value for part in parts_of(each)]
    return [value]


def swapped(value: Any, swap: Callable[[Any], Any]) -> Any:
    """The same structure of lists with every value in it exchanged."""
    if isinstance(value, list | tuple):
        return [swapped(each, swap) for each in value]
    return swap(value)


def module_like(**settings: Any) -> Any:
    """What a rule for modules reads off a module, from the arguments of a call: one rule serves both."""
    return SimpleNamespace(**settings)
