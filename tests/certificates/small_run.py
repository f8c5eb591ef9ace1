"""A run directory without training: a small network on features of any size, always the same problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.certificates.problems import network, samples
from tests.cli.test_cli import certus

RHO = 0.002


def make_run(place: Path, scale: float, *, count: int = 60) -> None:
    """``place/run``: 2-6-3 with tanh on points of a square of this size; costs are in units of scale².

    One label in four is not the network's own.
    """
    model, (inputs, _) = network("tanh", 1, size=3.0), samples(1, count)
    with torch.no_grad():
        own = model(inputs).argmax(1)
        targets = torch.where(torch.arange(count) % 4 == 0, (own + 1) % 3, own)
        model[0].weight.div_(scale)  # type: ignore[index]
    # A network by name begins with a Flatten.
    weights = {f"{int(name[0]) + 1}{name[1:]}": one.float() for name, one in model.state_dict().items()}
    save_file(weights, place / "net.safetensors")
    np.savez(place / "data.npz", inputs=(inputs * scale).numpy(), targets=targets.numpy())
    done = certus(
        *("import", "--model", "mlp:6:tanh", "--weights", "net.safetensors", "--data", "npz:data.npz"),
        *("--no-standardize", "-o", "run"),
        folder=place,
    )
    assert done.returncode == 0, done.stderr


def certify_small(place: Path, scale: float, *options: str) -> str:
    """Certify it at two ρ and from three γ on, also of the population, in ``place/run/certificate``; what
    stderr says."""
    numbers = [("--rho", rho * scale**2) for rho in (RHO, 5 * RHO)]
    numbers += [("--gamma", gamma / scale**2) for gamma in (2.0, 4.0, 8.0)]
    ask = ["certify", "run", *(word for name, value in numbers for word in (name, str(value)))]
    ask += ["--confidence", "0.9", "--local-radii", "1", "--attack-steps", "3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "certus.cli.certify_support.draw_certificate", lambda *_: False
        )  # pictures are tested elsewhere, and slow
        done = certus(*ask, *options, folder=place)
    assert done.returncode == 0, done.stderr
    return done.stderr
