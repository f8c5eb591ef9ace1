"""Waits for the device in attacks and ascents, counted on the CPU by the operations that read a result."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import certus
from certus.attacks import PGD

NORMS = [1.0, 2.0, torch.inf]


class Waits(TorchDispatchMode):
    """Count numbers that are read from tensors, and indices that are counted on the device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        indices = args[1] if name.startswith("aten::index") and len(args) > 1 else ()
        masks = isinstance(indices, list | tuple) and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool for index in indices
        )
        self.count += int(masks or any(part in name for part in ("_local_scalar_dense", "nonzero")))
        return func(*args, **(kwargs or {}))


def waits(norm: float, steps: int) -> int:
    torch.manual_seed(0)
    loss = certus.ModelLoss(nn.Sequential(nn.Linear(20, 8), nn.ELU(), nn.Linear(8, 3)))
    with (counter := Waits()):
        PGD(0.3, norm, steps=steps)(loss, torch.randn(16, 20), torch.arange(16) % 3)
    return counter.count


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_of_an_attack_waits_at_most_once(norm: float) -> None:
    assert waits(norm, 15) - waits(norm, 5) <= 10
    assert waits(norm, 15) <= 15 + 8


def test_an_ascent_waits_once_for_each_gradient() -> None:
    """Besides the checks of the batch, of γ and of the labels."""
    torch.manual_seed(0)
    loss = certus.ModelLoss(nn.Sequential(nn.Linear(20, 8), nn.ELU(), nn.Linear(8, 3)))
    inputs, labels, wrm = torch.randn(64, 20), torch.arange(64) % 3, certus.WRM(0.05)
    with (counter := Waits()):
        solution = wrm.solve(loss, inputs, labels)
    assert len(solution.gradients.unique()) > 1
    assert counter.count <= int(solution.gradients.max()) + 6


def test_what_is_counted() -> None:
    with (counter := Waits()):
        values = torch.arange(4.0)
        values[values > 1]
        float(values.sum())
        values[torch.tensor([0])]
    assert counter.count == 2


def test_labels_that_change_are_checked_again() -> None:
    outputs, labels = torch.zeros(2, 3), torch.tensor([0, 2])
    certus.CrossEntropy()(outputs, labels)
    certus.CrossEntropy()(outputs, labels)
    with pytest.raises(certus.errors.CertusError, match="labels from 0 to 1"):
        certus.CrossEntropy()(outputs[:, :2], labels)
    labels[0] = 5
    with pytest.raises(certus.errors.CertusError, match="labels from 0 to 2"):
        certus.CrossEntropy()(outputs, labels)
