"""Networks of layers of orthogonium and deel-torchlip, and the same with the plain weights they export."""

import torch
from torch import nn


def torchlip_training():
    from deel import torchlip

    return torchlip.Sequential(
        nn.Flatten(),
        torchlip.SpectralLinear(64, 128),
        torchlip.GroupSort2(),
        torchlip.SpectralLinear(128, 128),
        torchlip.GroupSort2(),
        torchlip.SpectralLinear(128, 10),
    )


def torchlip():
    from deel import torchlip

    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        torchlip.GroupSort2(),
        nn.Linear(128, 128),
        torchlip.GroupSort2(),
        nn.Linear(128, 10),
    )


def orthogonium_training():
    from orthogonium.layers import AdaptiveOrthoConv2d, MaxMin, OrthoLinear

    return nn.Sequential(
        AdaptiveOrthoConv2d(1, 16, kernel_size=3, padding=1, padding_mode="zeros"),
        MaxMin(),
        AdaptiveOrthoConv2d(16, 32, kernel_size=2, stride=2, padding=0, padding_mode="zeros"),
        MaxMin(),
        nn.Flatten(),
        OrthoLinear(512, 128),
        MaxMin(),
        OrthoLinear(128, 10),
    )


def orthogonium():
    from orthogonium.layers import MaxMin

    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        MaxMin(),
        nn.Conv2d(16, 32, 2, stride=2),
        MaxMin(),
        nn.Flatten(),
        nn.Linear(512, 128),
        MaxMin(),
        nn.Linear(128, 10),
    )


def exported(model):
    """The state dict of plain weights."""
    model.eval()
    with torch.no_grad():
        state = {}
        for name, module in model.named_modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)):
                state[f"{name}.weight"] = module.weight.detach().clone().contiguous()
                state[f"{name}.bias"] = module.bias.detach().clone().contiguous()
    return state
