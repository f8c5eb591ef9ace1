"""Every form of the same samples has the same certificate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from certus import certify
from certus.errors import ArgumentError

INPUTS = torch.linspace(-1, 1, 12).reshape(6, 2)
LABELS = (INPUTS.sum(1) > 0).long()
PAIRS = TensorDataset(INPUTS, LABELS)


@pytest.mark.parametrize(
    "data",
    [
        (INPUTS.numpy().astype(np.float64), LABELS.numpy()),
        PAIRS,
        DataLoader(PAIRS, batch_size=4),
        torch.utils.data.Subset(PAIRS, range(6)),
        (batch for batch in [(INPUTS[:2], LABELS[:2]), (INPUTS[2:], LABELS[2:])]),
    ],
    ids=["arrays", "tensor-dataset", "loader", "dataset", "generator"],
)
def test_every_form_has_the_same_certificate(data: Any) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    found = certify(model, data, rho=0.1, balls=0, refine=0, attack_steps=0)
    plain = certify(model, (INPUTS, LABELS), rho=0.1, balls=0, refine=0, attack_steps=0)
    assert found.bracket(0.1) == plain.bracket(0.1)


def test_noise_takes_a_dataset() -> None:
    pairs: Any = PAIRS
    found = certify(
        nn.Linear(2, 2), pairs, rho=0.01, smoothing=0.5, draws=10, calibration=PAIRS[:], attack_steps=0
    )
    assert 0 <= found.bound(0.01) <= 1


def test_what_is_no_data_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"must be a Split, .*; got <class 'dict'>"):
        certify(nn.Linear(2, 2), {"x": INPUTS}, rho=0.1)
