"""Scripts are run in this process, as ``python -m`` would run them."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.scripts import ROOT, Script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """``python -m NAME options …``, in this process."""
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()

    def run(name: str, *options: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        runpy.run_path(str(ROOT / f"{name.replace('.', '/')}.py"), run_name="__main__")

    yield run
    torch.set_num_threads(threads)
    torch.random.set_rng_state(state)


@pytest.fixture
def images(tmp_path: Path) -> str:
    """A data set of 28 × 28 pixels in ten classes."""
    random = np.random.default_rng(0)
    pixels = random.random((120, 1, 28, 28), dtype=np.float32)
    np.savez(tmp_path / "images.npz", inputs=pixels, targets=np.arange(120) % 10)
    return f"npz:{tmp_path / 'images.npz'}"
