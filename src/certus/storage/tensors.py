"""Files of tensors: safetensors with a checksum, which execute no code when they are read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from certus.storage.files import RunError, open_regular, parse_json
from certus.storage.write import write_atomically


def digest(tensors: dict[str, Tensor], note: str = "") -> str:
    """SHA-256 of names, types, shapes and bytes of tensors, and of a text."""
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
    # One entry only: safetensors writes several in any order, and equal content should be equal bytes.
    about = json.dumps({"note": text, "sha256": digest(plain, text)})
    write_atomically(path, save(plain, {"certus": about}))


def load_tensors(path: Path, *, require_digest: bool = True) -> tuple[dict[str, Tensor], Any]:
    """Read tensors and note; raise ``RunError`` if the file is missing, corrupt or pickled. Without
    ``require_digest``, files by other programs are accepted."""
    try:
        with open_regular(path) as file:
            start = file.read(9)
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
    except (SafetensorError, OSError) as reason:
        # The length before the brace of a safetensors file may look like a pickle's first bytes.
        pickled = start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
        if pickled and not start.endswith(b"{"):
            raise RunError(
                f"{path} is a pickled file, and loading one can execute anything: it is refused. "
                "Save the weights with safetensors.torch.save_file(model.state_dict(), …)."
            ) from None
        raise RunError(f"{path} is corrupt: {reason}.") from None
    if "certus" not in metadata:
        if require_digest:
            raise RunError(f"{path} was not written by certus: it has no sha256.")
        return tensors, None
    try:
        about = parse_json(metadata["certus"])
        intact, note = about["sha256"] == digest(tensors, about["note"]), parse_json(about["note"])
    except (ValueError, KeyError, TypeError, AttributeError, RunError):
        intact = False
    if not intact:
        raise RunError(f"{path} is corrupt: its content does not have the sha256 it was written with.")
    return tensors, note
