"""How networks are trained, for the pages and files of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from certus.inner.maximizers import MonotoneAscent
from certus.runs.settings import Settings

_TOLD = (
    *("model", "optimizer", "learning_rate", "schedule", "batch_size", "label_smoothing", "clip"),
    *("ascent", "tolerance"),  # of WRM
)


def told_settings(settings: Settings) -> dict[str, Any]:
    """Those that matter to a reader, in JSON types."""
    known = asdict(settings)
    return {name: known[name] for name in _TOLD}


def training_words(told: Mapping[str, Any]) -> str:
    """In one line; of an ascent that is not the paper's, how it ends."""
    listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items())
    words = f"Training, unless said otherwise: {listed}."
    if told["ascent"] == "adaptive":
        words += (
            " The adaptive ascent goes on, sample by sample, until an estimate of what f = ℓ − γc still "
            f"lacks is at most the tolerance, or for {MonotoneAscent.max_gradients} gradients; the paper "
            "takes 15 steps. `mnist-inf`, at the paper's scale, puts the two side by side."
        )
    return words
