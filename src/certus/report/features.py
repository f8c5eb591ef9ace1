"""Samples of a table before and after T_γ, and the features that the worst case moves most."""

from __future__ import annotations

import torch

from certus.report.findings import Findings, Worst

_FEATURES, _CELLS = 12, 4


def moved_features(found: Findings) -> list[tuple[str, float]] | None:
    """Feature and its mean absolute move, from the largest on; None of what is no table."""
    names, worst = found.trained.data.feature_names, found.worst
    if worst is None or not names or worst.before.dim() != 2:
        return None
    sizes = (worst.after - worst.before).abs().double().mean(0)
    order = torch.argsort(sizes, descending=True)[:_FEATURES].tolist()
    return [(names[place], float(sizes[place])) for place in order if sizes[place] > 0] or None


def moved_rows(found: Findings, count: int) -> list[tuple[str, str, str]]:
    """Of some samples: the label, what the model says before and after, and the features that moved most."""
    worst, data = found.worst, found.trained.data
    if worst is None or not data.feature_names or worst.before.dim() != 2:
        return []
    rows = []
    for place in most_moved(worst, count):
        moves = worst.after[place].double() - worst.before[place].double()
        cells = []
        for column in torch.argsort(moves.abs(), descending=True)[:_CELLS].tolist():
            if moves[column] != 0:
                before, after = (
                    _raw(found, side[place][column], column) for side in (worst.before, worst.after)
                )
                cells.append(f"{data.feature_names[column]} {before:.4g} → {after:.4g}")
        rows.append((label_words(found, worst.targets[place]), said_words(found, place), "; ".join(cells)))
    return rows


def most_moved(worst: Worst, count: int) -> list[int]:
    """The samples whose answer changes first, then those that move farthest."""
    length = (worst.after - worst.before).flatten(1).double().norm(dim=1)
    changed = (worst.said[0] != worst.said[1]).double() if not worst.said[0].is_floating_point() else 0.0
    order = torch.argsort(length + changed * (float(length.max()) + 1), descending=True)
    return [int(place) for place in order[:count]]


def label_words(found: Findings, target: torch.Tensor) -> str:
    """A label by its name, or the value of a regression."""
    data = found.trained.data
    if data.classes is None:
        mean, scale = data.target_scale or (0.0, 1.0)
        return f"{float(target) * scale + mean:.4g}"
    label = int(target)
    return data.class_names[label] if data.class_names and label < len(data.class_names) else str(label)


def said_words(found: Findings, place: int) -> str:
    """What the model says before and after."""
    assert found.worst is not None
    before, after = (label_words(found, side[place]) for side in found.worst.said)
    return f"{before} → {after}"


def _raw(found: Findings, value: torch.Tensor, column: int) -> float:
    """In the units of the source."""
    scale = found.trained.data.input_scale
    return float(value) if scale is None else float(value) * float(scale[1][column]) + float(scale[0][column])
