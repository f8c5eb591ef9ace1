"""Networks, losses and costs that certified training must hold for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from certus import CrossEntropy
from certus.costs import Masked, WeightedL2
from certus.losses import Logistic, SmoothMargin
from certus.models import Residual, certified_cnn, certified_mlp


@dataclass(frozen=True)
class Case:
    model: nn.Module
    shape: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)
    classes: int = 3


def elu() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 3))


def residual() -> nn.Module:
    branch = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 4))
    return nn.Sequential(Residual(branch), nn.Tanh(), nn.Linear(4, 3))


def normed() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Linear(8, 3))
    return model.eval()


def front() -> nn.Module:
    basis = torch.linalg.qr(torch.randn(6, 3)).Q.T
    return certified_mlp(6, [32], 3, basis=basis.contiguous())


def cases(seed: int = 0) -> dict[str, Case]:
    """Each with weights far outside of Θ."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        weighted = WeightedL2(torch.tensor([1.0, 4.0, 0.3, 2.0]))
        masked = Masked(weighted, torch.tensor([True, False, True, True]))
        made = {
            "one layer": Case(certified_mlp(4, [24], 3), (4,)),
            "two layers": Case(certified_mlp(4, [24, 12], 3), (4,)),
            "three layers": Case(certified_mlp(4, [8, 16, 8], 3), (4,)),
            "smooth |z|": Case(certified_mlp(4, [24, 12], 3, "smoothabs"), (4,)),
            "components": Case(front(), (6,)),
            "convolutions": Case(certified_cnn((1, 6, 6), [4, 6], 3), (1, 6, 6)),
            "weighted cost": Case(certified_mlp(4, [24, 12], 3), (4,), {"cost": weighted}),
            "masked cost": Case(certified_mlp(4, [24, 12], 3), (4,), {"cost": masked}),
            "weighted, elu": Case(elu(), (4,), {"cost": weighted}),
            "smoothed labels": Case(certified_mlp(4, [24], 3), (4,), {"criterion": CrossEntropy(0.2)}),
            "temperature": Case(
                certified_mlp(4, [24], 3), (4,), {"criterion": CrossEntropy(temperature=0.5)}
            ),
            "margin": Case(certified_mlp(4, [24], 3), (4,), {"criterion": SmoothMargin(2.0, 3.0)}),
            "logistic": Case(certified_mlp(4, [24], 1), (4,), {"criterion": Logistic()}, classes=2),
            "linear": Case(nn.Sequential(nn.Linear(4, 3)), (4,)),
            "elu": Case(elu(), (4,)),
            "residual": Case(residual(), (4,)),
            "batch norm": Case(normed(), (4,)),
        }
        for case in made.values():
            for weight in case.model.parameters():
                if weight.requires_grad:
                    weight.data.mul_(8)
    return made
