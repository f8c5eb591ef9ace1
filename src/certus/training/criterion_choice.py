"""Which criterion to train with, when the data and a few options decide."""

from __future__ import annotations

from certus.data import Samples
from certus.datasets import SplitDataset
from certus.errors import require
from certus.losses import Criterion, CrossEntropy, MissProbability, SmoothMargin, inferred_criterion


def default_criterion(train: Samples) -> Criterion:
    """Cross-entropy for labels, squared error for numbers."""
    return inferred_criterion(train.targets)


def choose_criterion(
    data: SplitDataset,
    label_smoothing: float = 0.0,
    margin: float = 0.0,
    temperature: float = 1.0,
    bounded: bool = False,
) -> Criterion:
    """The default one, or cross-entropy with smoothed labels, a temperature, or a margin to be led by; or the
    bounded 1 − p_y."""
    if bounded:
        require(data.classes is not None, "loss", "be left out for regression", "bounded")
        for name, value, plain in (
            ("label_smoothing", label_smoothing, 0),
            ("margin", margin, 0),
            ("temperature", temperature, 1),
        ):
            require(value == plain, name, f"be {plain} with the bounded loss", value)
        return MissProbability()
    for name, value in (("label_smoothing", label_smoothing), ("margin", margin)):
        require(value == 0 or data.classes is not None, name, "be 0 for regression", value)
    require(temperature == 1 or data.classes is not None, "temperature", "be 1 for regression", temperature)
    require(margin == 0 or label_smoothing == 0, "margin", "be 0 if labels are smoothed", margin)
    if margin:
        return SmoothMargin(margin, sharpness=1 / temperature)
    if data.classes is None:
        return default_criterion(data.train)
    return CrossEntropy(label_smoothing, temperature)
