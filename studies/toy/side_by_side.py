"""Training of many small networks at once: Algorithm 1 for each of several seeds, side by side.

Networks of some 30 weights cost little else than the calls of torch, so 24 of them take hardly longer than
one. The number of a sample's network is in its target, network · classes + label: a method of the library
then moves the samples of all networks together, and may stop them one by one. The mean loss of each network
has gradients in its own weights alone, and Adam treats every weight by itself; so each network is trained
as it would be alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from certus.data import Samples
from certus.losses import Loss

Move = Callable[[Loss, Tensor, Tensor], Tensor]
"""Function of a loss and (batch, …) inputs and (batch,) targets, which returns moved inputs."""


class SideBySide(nn.Module):
    """Networks of the same linear layers and activations, as a loss (inputs, targets) → (batch,).

    Args:
        networks: sequences of linear layers and activations without weights.
        classes: number of labels.
    """

    def __init__(self, networks: Sequence[nn.Sequential], classes: int) -> None:
        super().__init__()
        self.classes, self.count = classes, len(networks)
        self.layers = nn.ModuleList(
            _Linears([layer for layer in layers if isinstance(layer, nn.Linear)])
            if isinstance(layers[0], nn.Linear)
            else layers[0]
            for layers in zip(*networks, strict=True)
        )
        self._pattern = copy.deepcopy(networks[0])

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the (batch,) cross-entropies of (batch, …) inputs, each under the network of its target."""
        which = targets // self.classes
        outputs = inputs
        for layer in self.layers:
            outputs = layer(outputs, which) if isinstance(layer, _Linears) else layer(outputs)
        return F.cross_entropy(outputs, targets % self.classes, reduction="none")

    def for_all(self, batches: Sequence[Samples]) -> tuple[Tensor, Tensor]:
        """Return the inputs and targets of one batch for each network, one after the other."""
        inputs = torch.cat([batch.inputs for batch in batches])
        targets = [batch.targets + number * self.classes for number, batch in enumerate(batches)]
        return inputs, torch.cat(targets)

    def network(self, number: int) -> nn.Sequential:
        """Return one of the networks, as a copy in eval mode."""
        network = copy.deepcopy(self._pattern)
        with torch.no_grad():
            for layer, several in zip(network, self.layers, strict=True):
                if isinstance(layer, nn.Linear) and isinstance(several, _Linears):
                    layer.weight.copy_(several.weight[number])
                    layer.bias.copy_(several.bias[number])
        return network.eval()


class _Linears(nn.Module):
    """Linear layers of several networks: weights (networks, outputs, inputs), biases (networks, outputs)."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, inputs: Tensor, which: Tensor) -> Tensor:
        return torch.einsum("noi,ni->no", self.weight[which], inputs) + self.bias[which]


def train_side_by_side(
    networks: Sequence[nn.Sequential],
    data: Samples,
    move: Move | None,
    *,
    classes: int,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    cosine: bool,
    seeds: Sequence[int],
) -> list[nn.Sequential]:
    """Train copies of the networks by Adam, each with batches in the order of its own seed.

    Args:
        move: moves the batches of all networks before each step; None for ERM.
        cosine: whether the learning rate falls to 0, once an epoch, or is constant.
    """
    together = SideBySide(networks, classes)
    optimizer = torch.optim.Adam(together.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs) if cosine else None
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    for _ in range(epochs):
        orders = [torch.randperm(len(data), generator=generator) for generator in generators]
        for rows in zip(*(order.split(batch_size) for order in orders), strict=True):
            inputs, targets = together.for_all([data[row] for row in rows])
            moved = inputs if move is None else move(together, inputs, targets)
            optimizer.zero_grad()
            (together(moved, targets).sum() / len(rows[0])).backward()
            optimizer.step()
        if schedule is not None:
            schedule.step()
    return [together.network(number) for number in range(len(networks))]
