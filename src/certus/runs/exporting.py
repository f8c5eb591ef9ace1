"""A trained network as a file of torch.export: plain operations, for programs that know nothing of certus."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from certus.errors import UnsupportedError
from certus.storage.write import write_atomically

_CLOSE = 1e-6


def export_model(model: nn.Module, inputs: Tensor, path: Path) -> float:
    """Write the network for batches of any size, read it again, and compare both on these inputs.

    Returns: the largest difference of an output, relative to 1 + its size; at most 10⁻⁶.
    """
    model = model.eval()
    try:
        program = torch.export.export(model, (inputs[:2],), dynamic_shapes=({0: Dim("batch")},))
    except Exception as reason:  # whatever torch makes of a model that it cannot follow
        line = " ".join(str(reason).split())[:200]
        raise UnsupportedError(f"`run` must have a network that torch can export; got {line}.") from reason
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    again = torch.export.load(buffer).module()
    with torch.no_grad():
        own, theirs = model(inputs), again(inputs)
    apart = float(((own - theirs).abs() / (1 + own.abs())).max())
    if not apart <= _CLOSE:
        raise UnsupportedError(
            f"The exported network differs from the run's own by {apart:.3g}; not written."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, buffer.getvalue())
    return apart
