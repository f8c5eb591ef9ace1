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
SCRIPTS = sorted(f"benchmarks.{file.stem}" for file in (ROOT / "benchmarks").glob("[!_]*.py"))
Script = Callable[..., None]


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


def test_other_options_than_the_defaults_spare_the_committed_result(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = (ROOT / "benchmarks/results/inner.json").read_bytes()
    with pytest.raises(SystemExit) as ended:
        script("benchmarks.inner", "--repeats", 1, "--samples", 2)
    assert ended.value.code == 2
    assert "--output must be given with --samples, --repeats: " in capsys.readouterr().err
    assert (ROOT / "benchmarks/results/inner.json").read_bytes() == committed


def test_inner(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "inner.json"
    sizes = ("--batch-size", 4, "--samples", 4, "--repeats", 1)
    script("benchmarks.inner", "--train-steps", 1, 2, "--tolerances", 0.01, *sizes, "--output", output)
    found = read(output)
    assert [row["train_steps"] for row in found["rows"]] == [1, 2]
    assert found["measured"]["options"]["tolerances"] == [0.01]
    assert found["measured"]["versions"]["torch"] == torch.__version__


def test_proximal(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "proximal.json"
    sizes = ("--batch-size", 2, "--numbers", 8, "--samples", 2, "--train-steps", 1, "--repeats", 1)
    script("benchmarks.proximal", *sizes, "--gammas", 50, "--output", output)
    found = read(output)
    assert [row["gamma"] for row in found["ascent"]] == [50]
    assert found["step_over_gradient"]["L1 in a box"] > 0


def test_attacks(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "attacks.json"
    sizes = ("--batch-size", 2, "--steps", 1, "--turns", 1, "--slow-turns", 1)
    script("benchmarks.attacks", "--entries", "inf", *sizes, "--output", output)
    found = read(output)
    assert list(found) == ["inf"]
    assert found["inf"]["times_certus"]["bare gradients"]["median"] > 0


def test_certified(script: Script, tmp_path: Path) -> None:
    output = tmp_path / "certified.json"
    sizes = ("--samples", 128, "--repeats", 1)
    script("benchmarks.certified", "--entries", "digits", *sizes, "--output", output)
    found = read(output)["digits"]
    assert found["ratio"] == found["certified"] / found["plain"]


def test_smoothness(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "smoothness.json"
    sizes = ("--share", 1e-3, "--batch-size", 4, "--data", images)
    script("benchmarks.smoothness", *sizes, "--output", output)
    found = read(output)
    assert found["mlp"]["images"] == 10
    assert found["mlp"]["median"] <= found["mlp"]["everywhere"]
    assert found["cnn"]["sampled"] <= min(found["cnn"]["bounds"].values())


def test_training_measures_although_there_is_a_result(script: Script, images: str, tmp_path: Path) -> None:
    output = tmp_path / "training.json"
    output.write_text('{"early": "kept", "epoch": "measured before"}')
    sizes = ("--share", 1e-3, "--batch-size", 4, "--evaluated", 4, "--data", images)
    script("benchmarks.training", "--entries", "epoch", *sizes, "--output", output)
    found = read(output)
    assert found["early"] == "kept"
    assert found["epoch"]["steps"] == 2
    (run,) = found["epoch"]["runs"]
    times = run["processor seconds of each step"]
    assert len(times["erm"]) == len(times["wrm"]) == 2
    assert not output.with_suffix(".unfinished.json").exists()


def test_interrupted_work_is_resumed_only_when_asked_for(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, output = tmp_path / "training.unfinished.json", tmp_path / "training.json"
    call = ("benchmarks.training", "--output", output)

    def refused(*options: object) -> str:
        with pytest.raises(SystemExit) as ended:
            script(*call, *options)
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert f"--resume needs {left}, which an interrupted measurement leaves" in refused("--resume")
    left.write_text('{"options": {"batch_size": 8}, "parts": {}}')
    assert f"{left} is left of an interrupted measurement: add --resume, or remove it" in refused()
    assert f"--resume needs the options of {left}" in refused("--resume", "--batch-size", 4)
