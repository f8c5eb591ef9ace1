"""Samples of a table before and after T_γ, and the features that the worst case moves most."""

from __future__ import annotations

import torch

from certus.report.findings import Findings, Worst
from certus.runs.factory import Feature, features_of

_FEATURES, _CELLS = 12, 4


def moved_features(found: Findings) -> list[tuple[str, float]] | None:
    """Feature and its mean absolute move, from the largest on; None of what is no table."""
    names, worst = found.trained.data.feature_names, found.worst
    if worst is None or not names or worst.before.dim() != 2:
        return None
    moves = (worst.after - worst.before).abs().double().mean(0)
    # A changed category moves two of its inputs by 1; the season of a date goes with its day.
    sizes = {
        one.name: float(moves[list(one.columns)].sum()) / 2 if one.category else float(moves[one.columns[0]])
        for one in features_of(found.trained.data)
    }
    order = sorted(sizes, key=lambda name: -sizes[name])[:_FEATURES]
    return [(name, sizes[name]) for name in order if sizes[name] > 0] or None


def moved_rows(found: Findings, count: int) -> list[tuple[str, str, str]]:
    """Of some samples: the label, what the model says before and after, and the features that moved most."""
    worst, data = found.worst, found.trained.data
    if worst is None or not data.feature_names or worst.before.dim() != 2:
        return []
    rows = []
    for place in most_moved(worst, count):
        moves = (worst.after[place].double() - worst.before[place].double()).abs()
        ranked = sorted(features_of(data), key=lambda one: -float(moves[list(one.columns)].max()))
        cells = []
        for one in ranked[:_CELLS]:
            if bool((moves[list(one.columns)] != 0).any()):
                before, after = (_cell(found, side[place], one) for side in (worst.before, worst.after))
                cells.append(f"{one.name} {before} → {after}")
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


def _cell(found: Findings, row: torch.Tensor, feature: Feature) -> str:
    """What the table has there: a number in the units of the source, or the name of a category."""
    data, first = found.trained.data, feature.columns[0]
    if feature.category:
        hot = [place for place in feature.columns if row[place] == 1]
        assert data.feature_names is not None
        return data.feature_names[hot[0]].removeprefix(f"{feature.name}=") if hot else "unknown"
    mean = 0.0 if data.input_scale is None else float(data.input_scale[0][first])
    return f"{float(row[first]) * feature.scale + mean:.4g}"
