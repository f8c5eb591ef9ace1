"""How often a network errs on digits that are moved against it: what training robustly is to lower."""

from __future__ import annotations

import torch
from torch import nn

from certus import ModelLoss
from certus.attacks import PGD
from certus.datasets import digits

DATA = digits()


def attacked(net: nn.Module) -> float:
    """Error under PGD, every image moved by at most 0.8 in L2, from a start of its own seed."""
    loss, test = ModelLoss(net.eval()), DATA.test[:200]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        moved = PGD(0.8, norm=2, steps=15)(loss, test.inputs, test.targets)
    return float((net(moved).argmax(1) != test.targets).double().mean())
