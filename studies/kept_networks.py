"""Networks that ``certus train`` has no name for: trained once for several parts, and kept with their facts.

FOLDER/own-networks/NAME-DIGEST.safetensors     the weights, named by what they depend on
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from certus.storage.files import RunError
from certus.storage.write import write_atomically
from studies.workshop import Workshop

Facts = dict[str, Any]


@dataclass(frozen=True)
class Kept:
    """A trained network in eval mode, and what was measured when it was trained, in JSON types."""

    model: nn.Module
    facts: Facts


def kept_network(
    workshop: Workshop,
    name: str,
    recipe: Mapping[str, Any],
    build: Callable[[], nn.Module],
    train: Callable[[nn.Module], Facts],
) -> Kept:
    """The network of a recipe, found or trained.

    Args:
        recipe: all that it depends on, in JSON types.
        build: the network before training, which has the shapes of what is kept.
        train: trains it in place.
    """
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    path = workshop.folder / "own-networks" / f"{name}-{digest}.safetensors"
    model = build()
    if not path.exists():
        facts = train(model)
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = {key: value.contiguous() for key, value in model.state_dict().items()}
        write_atomically(path, save(weights, {"facts": json.dumps(facts)}))
    try:
        with safe_open(path, framework="pt") as stored:
            facts = json.loads((stored.metadata() or {})["facts"])
            model.load_state_dict({key: stored.get_tensor(key) for key in stored.keys()})  # noqa: SIM118
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as problem:
        raise RunError(f"{path} is corrupt: remove it, and it is trained again ({problem}).") from None
    return Kept(model.eval(), facts)
