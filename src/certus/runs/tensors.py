"""Files of tensors that can be trusted: safetensors with a digest, which never execute code when read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from certus.runs.files import RunError, write_atomically


def digest(tensors: dict[str, Tensor], note: str = "") -> str:
    """sha256 over names, types, shapes and bytes, and over a text."""
    state = hashlib.sha256(note.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        state.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()


def save_tensors(path: Path, tensors: dict[str, Tensor], note: object = None) -> None:
    """Write tensors and a JSON note, atomically."""
    text = json.dumps(note, allow_nan=False)
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(plain, {"note": text, "sha256": digest(plain, text)}))


def load_tensors(path: Path, *, require_digest: bool = True) -> tuple[dict[str, Tensor], Any]:
    """Tensors and note of a file; raises ``RunError`` if it is missing, corrupt or pickled.

    Args:
        require_digest: False accepts safetensors that others have written.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except (SafetensorError, OSError) as reason:
        # Only now: the length that a safetensors file begins with may look like a pickle's first bytes.
        if start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
            raise RunError(
                f"{path} is a pickled file, and loading one can execute anything: it is refused. "
                "Save the weights with safetensors.torch.save_file(model.state_dict(), …)."
            ) from None
        raise RunError(f"{path} is corrupt: {reason}.") from None
    text = metadata.get("note", "null")
    if "sha256" in metadata and metadata["sha256"] != digest(tensors, text):
        raise RunError(f"{path} is corrupt: its content does not have the sha256 it was written with.")
    if require_digest and "sha256" not in metadata:
        raise RunError(f"{path} was not written by certus: it has no sha256.")
    return tensors, json.loads(text)
