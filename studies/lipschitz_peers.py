"""Networks with layers of orthogonium and deel-torchlip: trained on digits, and their plain weights audited.

``results/lipschitz/peers`` has the plain weights that the layers of these libraries export, and what
``certus audit`` proved of them with the libraries' own activations (``audit.json`` of a file ``nets.py`` like
this one). The networks below have these weights, and the activations written with torch alone, so that an
audit needs neither library, and proves the same:

    certus audit studies/lipschitz_peers.py:orthogonium --data digits --epsilon 36/255
        --weights results/lipschitz/peers/orthogonium.safetensors --claimed-lipschitz 1 -o audit

``python -m studies.lipschitz_peers FOLDER`` trains them again and writes the weights; it needs both packages.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import certus
from certus.certificates import audit
from certus.datasets import load
from studies.workspace import Workspace

WEIGHTS = Path(__file__).parent.parent / "results" / "lipschitz" / "peers"


class Halves(nn.Module):
    """The MaxMin of orthogonium: the larger and the smaller of channels i and i + n/2."""

    def forward(self, inputs: Tensor) -> Tensor:
        first, second = inputs.chunk(2, 1)
        return torch.cat([torch.maximum(first, second), torch.minimum(first, second)], 1)


class Pairs(nn.Module):
    """The GroupSort2 of deel-torchlip: neighbouring units in rising order."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.sort(inputs.reshape(len(inputs), -1, 2), 2).values.reshape(inputs.shape)


def orthogonium() -> nn.Sequential:
    """Return the network of plain layers with the weights that orthogonium exports."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        Halves(),
        nn.Conv2d(16, 32, 2, stride=2),
        Halves(),
        nn.Flatten(),
        nn.Linear(512, 128),
        Halves(),
        nn.Linear(128, 10),
    )


def torchlip() -> nn.Sequential:
    """Return the network of plain layers with the weights that deel-torchlip exports."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), Pairs(), nn.Linear(128, 128), Pairs(), nn.Linear(128, 10)
    )


PEERS = {"orthogonium": orthogonium, "torchlip": torchlip}
EPSILONS = (36 / 255, 72 / 255, 0.5)


def measure_peer(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Audit the stored weights of one library on the test rows of digits, against a claimed constant of 1."""
    model = PEERS[settings["library"]]()
    model.load_state_dict(load_file(WEIGHTS / f"{settings['library']}.safetensors"))
    test = load("digits").test
    result = audit(model, (test.inputs, test.targets), epsilon=settings["epsilons"], claimed_lipschitz=1.0)
    return {
        "images": result.samples,
        "clean": result.accuracy,
        "output lipschitz": result.lipschitz,
        "within": [asdict(each) for each in result.radii],
        "evidence": result.evidence,
        "assumptions": list(result.assumptions),
        "shortfalls": result.shortfalls,
    }


def _with_their_layers(library: str) -> Any:
    """Return the network as its library builds it, for training."""
    if library == "torchlip":
        from deel import torchlip as layers

        return layers.Sequential(
            nn.Flatten(),
            layers.SpectralLinear(64, 128),
            layers.GroupSort2(),
            layers.SpectralLinear(128, 128),
            layers.GroupSort2(),
            layers.SpectralLinear(128, 10),
        )
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


def train(library: str, epochs: int = 30, batch_size: int = 128) -> dict[str, Tensor]:
    """Train the network of a library on digits; return its plain weights."""
    torch.manual_seed(0)
    model, data = _with_their_layers(library), load("digits").train
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    steps = epochs * math.ceil(len(data) / batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps, cycle_momentum=False)
    loss = certus.losses.SmoothMargin(0.5, 4.0)
    for _ in range(epochs):
        for rows in torch.randperm(len(data)).split(batch_size):
            optimizer.zero_grad()
            loss(model(data.inputs[rows]), data.targets[rows]).mean().backward()
            optimizer.step()
            schedule.step()
    model.eval()
    weights = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            weights[f"{name}.weight"] = module.weight.detach().clone().contiguous()
            assert module.bias is not None
            weights[f"{name}.bias"] = module.bias.detach().clone().contiguous()
    return weights


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for each in PEERS:
        save_file(train(each), folder / f"{each}.safetensors")
