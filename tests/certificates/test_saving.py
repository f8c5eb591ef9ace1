"""Certificates written by ``save`` and read by ``load``: the same answers at every ρ."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import certus
from certus.certificates import Certificate
from certus.errors import CertusError
from certus.losses import CrossEntropy, SquaredError
from certus.smoothing import SmoothedCertificate
from tests.certificates.problems import network, samples

RHOS = (0.0, 1e-4, 0.002, 0.01, 0.3)


QUICK: dict[str, Any] = {"local_radii": 1, "attack_steps": 2, "gamma_rounds": 0}


@pytest.mark.parametrize("kind", ["labels", "population", "regression"])
def test_a_certificate_is_read_as_it_was_written(kind: str, tmp_path: Path) -> None:
    model, (inputs, labels) = network("tanh", 1), samples(1, 40)
    if kind == "regression":
        torch.manual_seed(0)
        model, labels = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double(), inputs.sum(1)
    fresh = certus.certify(
        model,
        (inputs, labels),
        rho=[0.002, 0.01],
        criterion=SquaredError() if kind == "regression" else CrossEntropy(),
        confidence=0.9 if kind == "population" else None,
        **QUICK,
    )
    assert isinstance(fresh, Certificate)
    fresh.save(tmp_path / "a.json")
    read = Certificate.load(tmp_path / "a.json")
    assert (read.rhos, read.samples) == (fresh.rhos, fresh.samples)
    assert (read.evidence.value, fresh.evidence.value) == ("stated", "proven")
    for rho in RHOS:
        assert read.bracket(rho) == fresh.bracket(rho) or kind == "regression"
        assert read.bound(rho) == fresh.bound(rho)
        assert read.lower(rho) == fresh.lower(rho)
        assert read.error_bound(rho) == fresh.error_bound(rho)
    if kind != "regression":
        assert read.certified_accuracy(0.1) == fresh.certified_accuracy(0.1)
    read.save(str(tmp_path / "b.json"))
    first, second = (json.loads((tmp_path / f"{name}.json").read_text()) for name in "ab")
    assert second == first | {"evidence": "stated", "sha256": second["sha256"]}


def test_a_smoothed_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    model, (inputs, labels) = network("tanh", 1), samples(1, 200)
    fresh = certus.certify_smoothed(model, (inputs, labels), rho=0.01, sigma=0.3, draws=20)
    assert isinstance(fresh, SmoothedCertificate)
    fresh.save(tmp_path / "a.json")
    read = SmoothedCertificate.load(tmp_path / "a.json")
    for rho in RHOS:
        assert read.bracket(rho) == fresh.bracket(rho)
    assert math.isfinite(read.bound(0.01))
    with pytest.raises(CertusError, match="smoothing"):
        Certificate.load(tmp_path / "a.json")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    model, data = network("tanh", 1), samples(1, 12)
    found = certus.certify(model, data, rho=0.01, **QUICK)
    with pytest.raises(CertusError, match="Cannot write"):
        found.save(tmp_path)
