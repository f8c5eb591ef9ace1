"""The result of a library's reader: trees with the meaning of their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from certus.bounds.trees.folding import Array, Derived, Trees
from certus.bounds.trees.model import Output
from certus.errors import UnreadableModelError


@dataclass(frozen=True, eq=False)
class Parsed:
    """A model without the steps before it.

    Attributes:
        trees, output, classes, library: as of ``TreeModel``.
        raw: the library's scores of rows in its own form.
        before: steps of the model's own, such as encoders of categories.
    """

    trees: Trees
    output: Output
    classes: Array | None
    library: str
    raw: Callable[[Any], Array] | None = None
    before: Callable[[list[Derived]], list[Derived]] | None = None


def refused(
    part: str, remedy: str = "`certify_smoothed` certifies any model without reading it"
) -> UnreadableModelError:
    """The error for a part of a model that has no rule."""
    return UnreadableModelError(f"{part} is not read exactly; {remedy}.")
