"""Benchmarks and experiments measure when they are called, say how, and never shrink a committed result."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent
SCRIPTS = ["benchmarks.certificates"]
Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """``python -m NAME options …``, in this process."""
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()

    def run(name: str, *options: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, options)])
        runpy.run_module(name, run_name="__main__", alter_sys=True)

    yield run
    torch.set_num_threads(threads)
    torch.random.set_rng_state(state)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_teaches_and_unknown_options_are_refused(
    name: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script(name, "--help")
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"usage: python -m {name} " in told
    assert "--output PATH" in told
    with pytest.raises(SystemExit) as ended:
        script(name, "--no-such-option")
    assert ended.value.code == 2
    assert "unrecognized arguments: --no-such-option" in capsys.readouterr().err


@pytest.fixture
def images(tmp_path: Path) -> str:
    """A data set of 28 × 28 pixels in ten classes."""
    random = np.random.default_rng(0)
    pixels = random.random((120, 1, 28, 28), dtype=np.float32)
    np.savez(tmp_path / "images.npz", inputs=pixels, targets=np.arange(120) % 10)
    return f"npz:{tmp_path / 'images.npz'}"


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_certificates_updates_its_entries_alone(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "new/certificates.json"
    output.parent.mkdir()
    output.write_text('{"mlp": "kept"}')
    script(
        "benchmarks.certificates",
        "--entries",
        "mlp_1000",
        "--share",
        0.01,
        "--data",
        images,
        "--output",
        output,
    )
    found = read(output)
    assert found["mlp"] == "kept"
    assert found["mlp_1000"]["images"] == 10
    assert found["mlp_1000"]["measured"]["options"]["share"] == 0.01
    assert found["mlp_1000"]["measured"]["threads"] == 1
    assert len(found["mlp_1000"]["brackets"]) == 20
