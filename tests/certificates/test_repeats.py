"""Rows that are there twice: counted and named beside the assumption of independent draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus.certificates import Certificate
from certus.certificates.files import as_json
from certus.smoothing import SmoothedCertificate
from certus.storage.write import write_json

QUICK: dict[str, Any] = {
    "rho": 0.1,
    "gammas": [2.0],
    "local_radii": 0,
    "gamma_rounds": 0,
    "attack_steps": 0,
    "confidence": 0.9,
}
NOISY: dict[str, Any] = {
    "rho": 0.1,
    "sigma": 0.5,
    "draws": 5,
    "votes": 5,
    "attack_steps": 0,
    "confidence": 0.9,
}


def rows(count: int, copies: int) -> tuple[Tensor, Tensor]:
    """Distinct rows, the first of them once more, and some with another label, which repeat nothing."""
    inputs = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(count) % 2
    other = slice(0, 7)
    return (
        torch.cat([inputs, inputs[:copies], inputs[other]]),
        torch.cat([labels, labels[:copies], 1 - labels[other]]),
    )


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("copies", [0, 3, 61])
@pytest.mark.parametrize("form", ["tensors", "loader"])
def test_repeats_are_counted_with_a_confidence(copies: int, form: str, tmp_path: Path) -> None:
    """In tensors, and in portions of a loader; they are named where they are more than one in a hundred."""
    count = 600  # more than one portion
    data = rows(count, copies)
    given: Any = DataLoader(TensorDataset(*data), batch_size=100) if form == "loader" else data
    found = certus.certify(model(), given, **QUICK)
    assert found.population is not None
    assert found.population.repeats == copies
    content = as_json(found)
    assert (f" {copies} " in content["population"]["statement"]) == (copies == 61)
    assert (f" {copies} repeat" in " ".join(str(found).split())) == (copies == 61)
    assert found.evidence == certus.Evidence.PROVEN  # of the rows as they are, whatever they are
    write_json(tmp_path / "certificate.json", content)
    again = Certificate.load(tmp_path / "certificate.json")
    assert again.population is not None
    assert again.population.repeats == copies


@pytest.mark.parametrize("copies", [0, 3, 61])
def test_repeats_are_counted_with_noise(copies: int, tmp_path: Path) -> None:
    other = torch.randn(50, 3), torch.zeros(50, dtype=torch.int64)
    found = certus.certify_smoothed(
        lambda points: (points[:, 0] > 0).astype(int), rows(600, copies), calibration=other, **NOISY
    )
    assert found.repeats == copies
    assert (f" {copies} " in found.statement) == (copies == 61)
    found.save(tmp_path / "smoothing.json")
    assert SmoothedCertificate.load(tmp_path / "smoothing.json") == found


def test_without_a_confidence_nothing_is_said_of_repeats() -> None:
    found = certus.certify(model(), rows(50, 50), **QUICK | {"confidence": None})
    assert found.population is None
    assert " 50 repeat" not in " ".join(str(found).split())


def test_rows_of_numbers_repeat_with_their_targets() -> None:
    inputs = np.repeat(np.arange(20.0)[:, None], 2, 0)
    targets = np.repeat(np.arange(20.0), 2)
    targets[1] += 0.5

    class Straight:
        def predict(self, points: Any) -> Any:
            return points[:, 0]

    found = certus.certify_smoothed(
        Straight(), (inputs, targets), calibration=(inputs, targets), **NOISY | {"clip": 4.0}
    )
    assert found.repeats == 19
