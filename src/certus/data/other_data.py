"""Another data set in the units of a given one: scaled by *its* training rows, labels in its order.

Two tables that are each standardised by themselves have no shift left to measure.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from certus.data import DataSet, load
from certus.errors import ArgumentError, require
from certus.split import Split


def load_like(ours: DataSet, spec: str, *, seed: int = 0, target: str | None = None) -> DataSet:
    """The data set ``spec`` as ``ours`` would hold it.

    Args:
        seed: decides on its splits; target: the target column of a CSV file.
    """
    theirs = load(spec, seed=seed, standardize=False, target=target if spec.startswith("csv:") else None)
    shapes = [tuple(data.train.inputs.shape[1:]) for data in (ours, theirs)]
    require(
        shapes[0] == shapes[1], "data", f"have inputs of shape {shapes[0]}, as {ours.name} has", shapes[1]
    )
    if ours.feature_names is not None and theirs.feature_names not in (None, ours.feature_names):
        names = set(ours.feature_names) ^ set(theirs.feature_names or ())
        found = f"others: {', '.join(sorted(names)[:4])}" if names else "another order"
        raise ArgumentError(f"`data` must have the features of {ours.name}, in its order; got {found}.")
    same = (ours.classes is None) == (theirs.classes is None)
    require(same, "data", f"be of one kind with {ours.name}, labels or numbers", spec)

    def alike(split: Split) -> Split:
        inputs = _scaled(split.inputs, ours.input_scale)
        if ours.classes is None:
            return Split(inputs, _scaled(split.targets, ours.target_scale))
        return Split(inputs, _relabelled(split.targets, ours, theirs))

    return replace(
        theirs,
        train=alike(theirs.train),
        calibration=alike(theirs.calibration),
        test=alike(theirs.test),
        later={name: alike(split) for name, split in theirs.later.items()},
        **{name: getattr(ours, name) for name in ("domain", "classes", "units", "weights", "class_names")},
        input_scale=ours.input_scale,
        target_scale=ours.target_scale,
    )


def _scaled(values: Tensor, scale: tuple[Tensor, Tensor] | tuple[float, float] | None) -> Tensor:
    return values if scale is None else ((values.double() - scale[0]) / scale[1]).to(values.dtype)


def _relabelled(targets: Tensor, ours: DataSet, theirs: DataSet) -> Tensor:
    """Labels by their names where both have some: a file may lack a class."""
    if ours.class_names is None or theirs.class_names is None:
        require(theirs.classes == ours.classes, "data", f"have {ours.classes} classes", theirs.classes)
        return targets
    unknown = [name for name in theirs.class_names if name not in ours.class_names]
    rule = f"have labels of {ours.name}: {', '.join(ours.class_names[:8])}"
    require(not unknown, "data", rule, ", ".join(unknown[:4]))
    return torch.tensor([ours.class_names.index(name) for name in theirs.class_names])[targets]
