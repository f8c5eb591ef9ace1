"""Small models that the tests of attacks share: image networks, linear classifiers, BatchNorm and dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from certus.losses import CrossEntropy, ModelLoss


def images(count: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Grey 8 × 8 images away from 0 and 1, and labels of three classes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = 0.2 + 0.6 * torch.rand(count, 1, 8, 8, generator=generator)
    return inputs, torch.randint(3, (count,), generator=generator)


def convolutional(seed: int = 0) -> nn.Sequential:
    """A smooth network for those images, in eval mode."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.ELU(), nn.Flatten(), nn.Linear(36, 16), nn.Tanh(), nn.Linear(16, 3)
    ).eval()


def fragile(seed: int = 0) -> nn.Sequential:
    """BatchNorm and dropout in train mode, with one layer in eval mode and gradients of an earlier step."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ELU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )
    model(images(20, seed=5)[0])
    model.train()
    model[3].eval()
    model[1].weight.requires_grad_(False)
    model[5].bias.grad = torch.full((3,), 7.0)
    return model


def linear(weight: Tensor, bias: Tensor | None = None) -> ModelLoss:
    """F(x) = Wx + b on rows, with cross-entropy."""
    model = nn.Linear(weight.shape[1], weight.shape[0]).to(weight.dtype)
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return ModelLoss(model.eval(), CrossEntropy())
