"""What the networks of ``certified-training`` and ``certified-accuracy`` have in common.

One hidden layer of 1,024 log cosh units on 100 principal components; batches of 512, Adam with a cosine from
0.01, shifts by a pixel.
"""

from __future__ import annotations

from typing import Any

from certus.runs.settings import Settings


def certified_settings(**others: Any) -> Settings:
    """As of ``certus train``; what is given goes before what is common."""
    common = {
        "model": "certified-mlp:1024:logcosh:100",
        "batch_size": 512,
        "learning_rate": 0.01,
        "schedule": "cosine",
        "jitter": 1,
    }
    return Settings.chosen(**{**common, **others})
