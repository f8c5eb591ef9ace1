"""Complex numbers: refused wherever data enter, never stripped of their imaginary part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus import WRM, ModelLoss
from certus.attacks import PGD
from certus.attacks.minimum_norm import minimum_norm_attack
from certus.data import Samples
from certus.datasets import from_frame
from certus.losses import SquaredError

REAL = torch.randn(12, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
LABELS = (REAL[:, 0] > 0).long()
COMPLEX, MARKED = REAL + 1j, LABELS + 0.5j
NETWORK = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
NUMBER = nn.Sequential(nn.Linear(2, 1)).double()
ESTIMATOR = LogisticRegression().fit(REAL.numpy(), LABELS.numpy())
QUIET: dict[str, Any] = {"rho": 0.1, "progress": False}


def _distance(points: Tensor, targets: Tensor) -> Tensor:
    return (points.sum(1) - targets).abs()


WAYS: dict[str, Callable[[], object]] = {
    "certify": lambda: certus.certify(NETWORK, (COMPLEX, LABELS), **QUIET),
    "certify, unlabelled": lambda: certus.certify(NETWORK, (COMPLEX, None), **QUIET),
    "certify, targets": lambda: certus.certify(NETWORK, (REAL, MARKED), **QUIET),
    "certify, numbers": lambda: certus.certify(NUMBER, (REAL, MARKED), criterion=SquaredError(), **QUIET),
    "certify, arrays": lambda: certus.certify(NETWORK, (COMPLEX.numpy(), LABELS.numpy()), **QUIET),
    "certify, loader": lambda: certus.certify(
        NETWORK, DataLoader(TensorDataset(COMPLEX, LABELS), 5), **QUIET
    ),
    "certify, estimator": lambda: certus.certify(ESTIMATOR, (COMPLEX.numpy(), LABELS.numpy()), **QUIET),
    "certify, estimator's targets": lambda: certus.certify(
        ESTIMATOR, (REAL.numpy(), MARKED.numpy()), **QUIET
    ),
    "smoothing": lambda: certus.certify_smoothed(NETWORK, (COMPLEX, LABELS), sigma=0.5, draws=100, **QUIET),
    "smoothing, targets": lambda: certus.certify_smoothed(
        NETWORK, (REAL, MARKED), sigma=0.5, draws=100, **QUIET
    ),
    "smoothing, arrays": lambda: certus.certify_smoothed(
        ESTIMATOR, (COMPLEX.numpy(), LABELS.numpy()), sigma=0.5, draws=100, **QUIET
    ),
    "fit": lambda: certus.fit(NETWORK, (COMPLEX, LABELS), epochs=1, progress=False),
    "fit, targets": lambda: certus.fit(NUMBER, (REAL, MARKED), epochs=1, progress=False),
    "fit, dataset": lambda: certus.fit(NETWORK, TensorDataset(COMPLEX, LABELS), epochs=1, progress=False),
    "WRM": lambda: WRM(gamma=1.0)(ModelLoss(NETWORK), COMPLEX, LABELS),
    "WRM, targets": lambda: WRM(gamma=1.0)(_distance, REAL, MARKED),
    "attack": lambda: PGD(0.1)(ModelLoss(NETWORK), COMPLEX, LABELS),
    "nearest error": lambda: minimum_norm_attack(ModelLoss(NETWORK), COMPLEX, LABELS),
    "bounds": lambda: certus.bounds.local_smoothness(NETWORK, COMPLEX, LABELS, 0.1),
    "split": lambda: Samples(COMPLEX, LABELS),
    "split's weights": lambda: Samples(REAL, LABELS, MARKED),
    "frame": lambda: from_frame(
        pandas.DataFrame({"a": COMPLEX[:, 0].numpy(), "y": LABELS.numpy()}), target="y"
    ),
    "frame's target": lambda: from_frame(
        pandas.DataFrame({"a": REAL[:, 0].numpy(), "y": MARKED.numpy()}), target="y"
    ),
}


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")  # what was done before
def test_complex_numbers_are_refused(name: str) -> None:
    with pytest.raises(certus.CertusError, match="real"):
        WAYS[name]()


def test_complex_files_are_refused(tmp_path: Path) -> None:
    for inputs, targets in ((COMPLEX, LABELS), (REAL, MARKED)):
        np.savez(tmp_path / "data.npz", inputs=inputs.numpy(), targets=targets.numpy())
        with pytest.raises(certus.CertusError, match="complex"):
            certus.datasets.load(f"npz:{tmp_path / 'data.npz'}")
