"""Certified training of a class with a forward of its own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import certus
from certus.training.certified import SAFETY, CertifiedSet


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.softplus(self.first(x))
        x = x + torch.tanh(self.second(x))
        return F.log_softmax(self.last(x), dim=1)


def test_the_projection_proves_what_it_promises_while_weights_change() -> None:
    torch.manual_seed(0)
    model = Small()
    certified = CertifiedSet(model, 0.5, input_shape=(3,))
    for _ in range(2):
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(3).add_(0.1 * torch.randn_like(weights))
        certified(model)
        bound = certus.input_smoothness(model)  # from a graph that is taken anew
        assert bound.curvature <= 2 * 0.5 * (1 - SAFETY)
    assert len(certified._graphs) == 1
    assert certified.prove().curvature <= certified.ceiling
