"""A smoothing.json that was damaged, edited or forged is refused in one line, or says the same as before."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch
from torch import nn

import certus
from certus.errors import CertusError
from certus.smoothing import SmoothedCertificate
from certus.storage.write import verify_checksum
from tools.soak.mutations import mutate_bytes
from tools.soak.structured import mutate_json


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    inputs = torch.randn(12, 2)
    found = certus.certify_smoothed(
        nn.Linear(2, 2), (inputs, inputs[:, 0].gt(0).long()), rho=(0.01, 0.1), sigma=0.5, draws=5, votes=5
    )
    path = tmp_path_factory.mktemp("noisy") / "smoothing.json"
    found.save(path)
    return path


def test_it_is_refused_or_says_the_same(written: Path, tmp_path: Path) -> None:
    original, refused = written.read_bytes(), []
    before = SmoothedCertificate.load(written).as_json()
    for number in range(400):
        rng = random.Random(number)
        changed = (mutate_json if number % 2 else mutate_bytes)(rng, original)
        (tmp_path / "smoothing.json").write_bytes(changed)
        try:
            found = SmoothedCertificate.load(tmp_path / "smoothing.json").as_json()
        except CertusError as reason:
            refused.append(str(reason))
            continue
        verify_checksum(json.loads(changed), "a forgery")
        assert found == before or number % 2  # bytes alone make no forgery
    assert 300 < len(refused) < 400
    assert all("smoothing.json" in line and "\n" not in line for line in refused)
