"""What a data set is here: inputs and targets, split by a seed, with the domain they live in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from certus.data.recipe import Recipe
from certus.domains import Domain
from certus.split import Split


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named data set: disjoint samples for training, for calibration, and for the final test.

    The fields without a default are enough for a data set of your own making; ``load`` fills in all of them.

    Attributes:
        domain: the set Z that its inputs live in.
        classes: number of labels, or None for regression.
        units: what a distance of 1 between two inputs means, in words.
        weights: (features,) weights for ``WeightedL2``; None means that plain ``SquaredL2`` fits.
        feature_names: one name for each column of a table.
        class_names: what the labels 0, 1, … are called in the source.
        input_scale: (mean, scale), both (features,) float64, with inputs = (raw − mean) / scale; None if raw.
        target_scale: (mean, scale) of a regression, with targets = (raw − mean) / scale; None if raw.
        later: named samples drawn after those above, for measuring a shift that really happened.
        rows: the int64 row numbers, in the source, of "train", "calibration" and "test".
        sha256: digest of the source's inputs and targets, all of them, before splitting and scaling.
        recipe: what became of each column of a table of words, numbers and gaps; None for others.
        notes: what is to be said of a table that was read by another one's recipe.
    """

    name: str
    train: Split
    calibration: Split
    test: Split
    domain: Domain
    classes: int | None
    units: str = "units of the inputs"
    weights: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    input_scale: tuple[Tensor, Tensor] | None = None
    target_scale: tuple[float, float] | None = None
    later: Mapping[str, Split] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    sha256: str = ""
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()
