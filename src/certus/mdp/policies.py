"""What learning returns: a policy, which chooses actions, is saved and comes back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from certus.errors import ArgumentError
from certus.mdp.covering import Covering
from certus.mdp.q_network import NetworkShape, QNetwork
from certus.storage.tensors import load_tensors, save_tensors

Actions = NDArray[np.int64]
Observations = NDArray[np.floating]


class Policy(Protocol):
    """Chooses an action for each observation."""

    def actions(self, observations: Observations, /) -> Actions:
        """The greedy actions. Shapes (n, width) → (n,)."""
        ...

    def save(self, path: str | Path, /) -> None:
        """Write a safetensors file that ``load_policy`` reads; it never executes code."""
        ...


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """argmax_a Q(cell(s), a).

    Attributes:
        table: (cells, actions) Q.
        covering: the cells.
        columns: which entries of an observation the covering covers; None, all of them.
    """

    table: NDArray[np.float64]
    covering: Covering
    columns: tuple[int, ...] | None = None

    def actions(self, observations: Observations) -> Actions:
        seen = observations if self.columns is None else observations[:, list(self.columns)]
        best: Actions = self.table[self.covering.cells(seen.astype(np.float64))].argmax(1)
        return best

    def save(self, path: str | Path) -> None:
        note = {"policy": "tabular", "covering": asdict(self.covering), "columns": self.columns}
        save_tensors(Path(path), {"table": torch.from_numpy(self.table)}, note)


@dataclass(frozen=True, eq=False)
class DeepPolicy:
    """argmax_a Q(s, a) for a network Q."""

    network: QNetwork

    def actions(self, observations: Observations) -> Actions:
        with torch.no_grad():
            best: Actions = self.network(torch.from_numpy(observations).float()).argmax(1).numpy()
        return best

    def save(self, path: str | Path) -> None:
        note = {"policy": "deep", "shape": asdict(self.network.shape)}
        save_tensors(Path(path), self.network.state_dict(), note)


def load_policy(path: str | Path) -> TabularPolicy | DeepPolicy:
    """A policy from the file it was saved to; raises ``RunError`` if that is missing, corrupt or pickled."""
    tensors, note = load_tensors(Path(path))
    try:
        if note["policy"] == "tabular":
            covering = Covering(**{name: tuple(entries) for name, entries in note["covering"].items()})
            columns = None if note["columns"] is None else tuple(note["columns"])
            return TabularPolicy(tensors["table"].numpy(), covering, columns)
        network = QNetwork(NetworkShape(**{**note["shape"], "scales": tuple(note["shape"]["scales"])}))
        network.load_state_dict(tensors)
        return DeepPolicy(network.requires_grad_(False))
    except (KeyError, TypeError, RuntimeError):
        raise ArgumentError(f"`path` must name a saved policy; got {path}.") from None
