"""What a model says at noisy copies of samples, counted while they stream by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from certus.certificates.smoothing.ballots import Ballot
from certus.certificates.smoothing.noise import Noise, noisy_batches
from certus.certificates.smoothing.predictors import ABSTAINED, Predictor
from certus.errors import require
from certus.losses import Criterion
from certus.split import Split

Advance = Callable[[int], None]
_PORTION = 512  # samples that are kept together


@dataclass(frozen=True)
class ClippedLoss:
    """min(ℓ, B)/B, between 0 and 1; a loss that is no number counts as 1."""

    criterion: Criterion
    clip: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self.criterion(outputs, targets).double()
        low = float(losses.nan_to_num(0.0).min()) if len(losses) else 0.0
        require(low >= 0, "criterion", "have no negative losses", low)
        return (losses / self.clip).nan_to_num(1.0, posinf=1.0).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class Observed:
    """m noisy copies of each of n samples.

    Attributes:
        labels: (n, m) int32 codes; None for a regression.
        errors: (n,) int64, how many are wrong; None for a regression.
        losses: (n, m) float64 between 0 and 1; None if no loss was asked for.
    """

    labels: Tensor | None
    errors: Tensor | None
    losses: Tensor | None

    def lost(self, ballot: Ballot, targets: Tensor) -> Tensor:
        """(n,) bool: where the deployed vote of these very copies gives a wrong label, or none."""
        assert self.labels is not None  # votes are about labels
        return vote_labels(self.labels, ballot) != targets


class Draws(Protocol):
    """Where portions are kept."""

    def load(
        self, stream: int, first: int, data: Split, like: dict[str, Tensor]
    ) -> dict[str, Tensor] | None: ...

    def save(self, stream: int, first: int, data: Split, tensors: dict[str, Tensor]) -> None: ...


def observe(
    predictor: Predictor,
    data: Split,
    noise: Noise,
    *,
    copies: int,
    seed: int,
    stream: int,
    loss: ClippedLoss | None = None,
    progress: Advance | None = None,
    memory: Draws | None = None,
) -> Observed:
    """Draw the copies of every sample, ask the model, and keep labels and losses.

    Args:
        memory: portions of samples that were asked about already are taken from it, others put there.
    """
    labelled, count = not data.targets.is_floating_point(), len(data)
    found: dict[str, Tensor] = {}
    if labelled:
        found["labels"] = torch.empty(count, copies, dtype=torch.int32)
    if loss is not None:
        found["losses"] = torch.empty(count, copies, dtype=torch.float64)

    def ask(rows: range) -> None:
        for batch in noisy_batches(data.inputs, noise, copies=copies, seed=seed, stream=stream, rows=rows):
            size, place = (batch.rows.stop - batch.rows.start, -1), (batch.rows, batch.copies)
            scores: Tensor | None = None
            if loss is not None:
                scores = predictor.scores(batch.points)
                targets = data.targets[batch.rows].repeat_interleave(len(batch.points) // size[0], 0)
                found["losses"][place] = loss(scores, targets).reshape(size)
            if labelled:
                labels = (
                    predictor.labels(batch.points)
                    if scores is None or predictor.predict is not None
                    else predictor.label_codes(scores, len(batch.points))
                )
                found["labels"][place] = labels.int().reshape(size)
            if progress is not None:
                progress(len(batch.points))

    for first in range(0, count, _PORTION):
        rows = range(first, min(first + _PORTION, count))
        part = {name: each[rows.start : rows.stop] for name, each in found.items()}
        some = data[rows.start : rows.stop]
        kept = None if memory is None else memory.load(stream, first, some, part)
        if kept is None:
            ask(rows)
            if memory is not None:
                memory.save(stream, first, some, {name: each.clone() for name, each in part.items()})
            continue
        for name, each in part.items():
            each.copy_(kept[name])
        if progress is not None:
            progress(len(rows) * copies)
    errors = (found["labels"] != data.targets[:, None]).sum(1) if labelled else None
    return Observed(found.get("labels"), errors, found.get("losses"))


def vote_labels(labels: Tensor, ballot: Ballot) -> Tensor:
    """What a ballot gives of (n, M) labels: the most frequent one, or ``ABSTAINED``. Returns (n,)."""
    names, codes = labels.unique(return_inverse=True)
    counts = torch.zeros(len(labels), len(names), dtype=torch.int64)
    counts.scatter_add_(1, codes, torch.ones_like(codes))
    ranked, places = counts.sort(1, descending=True)
    pairs = [(row[0], row[1] if len(names) > 1 else 0) for row in ranked[:, :2].tolist()]
    given = torch.tensor([ballot.gives(most, second) for most, second in pairs])
    return torch.where(given, names[places[:, 0]].long(), ABSTAINED)
