"""``certus train --certified``: what is proven, resumed and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from certus.bounds import input_smoothness
from certus.runs import RunDirectory, load_model
from tests.cli.test_cli import certus

TINY = ["--model", "certified-mlp:16", "--epochs", "2"]


def test_a_certified_run_carries_its_proof(tmp_path: Path) -> None:
    done = certus(
        *(
            "train",
            "digits",
            "--certified",
            "--gamma",
            "1.5",
            "--translate",
            "1",
            "--affine",
            "0.1",
            *TINY,
            "-o",
            "run",
            "--json",
        ),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    proof = content["result"]["proof"]
    assert proof["evidence"] == "proven"
    assert proof["gamma"] <= 1.5 * 0.999
    assert [entry["curvature"] <= 3 * 0.999 for entry in content["history"]] == [True, True]
    assert content["settings"]["learning_rate"] == 0.01
    model = load_model(RunDirectory.open(tmp_path / "run"))
    assert input_smoothness(model, input_shape=(1, 8, 8)).curvature == pytest.approx(proof["curvature"])


def test_ordinary_training_takes_the_same_constraint(tmp_path: Path) -> None:
    done = certus(
        *("train", "digits", "--certified", "--method", "erm", "--gamma", "1.5", *TINY, "-o", "run"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "Certified training (proven)" in done.stdout
    assert "at most 2.99" in done.stdout


def test_a_margin_trains_another_loss_and_proves_it(tmp_path: Path) -> None:
    done = certus(
        *("train", "wine", "--certified", "--rho", "0.5", "--margin", "2", *TINY, "-o", "run", "--json"),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    run = RunDirectory.open(tmp_path / "run")
    assert run.record.criterion == {"type": "SmoothMargin", "margin": 2.0, "sharpness": 1.0}
    assert content["result"]["proof"]["curvature"] <= 2 * 0.999 * content["result"]["robustness"]["gamma"] * (
        1 + 1e-12
    )


@pytest.mark.parametrize("level", [("--gamma", "1.5"), ("--rho", "0.001")], ids=["gamma", "rho"])
def test_an_interrupted_certified_run_ends_in_the_same_weights(
    level: tuple[str, str], tmp_path: Path
) -> None:
    options = ["train", "digits", "--certified", *level, *TINY, "-o"]
    assert certus(*options, "whole", folder=tmp_path).returncode == 0
    assert certus(*options, "cut", folder=tmp_path).returncode == 0
    cut = tmp_path / "cut"
    for name in ("result.json", "model.safetensors"):
        (cut / name).unlink()
    assert certus("resume", "cut", folder=tmp_path).returncode == 0
    whole, again = (RunDirectory.open(tmp_path / name).weights() for name in ("whole", "cut"))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--certified", "--gamma", "1", "--model", "mlp:8:relu"], "The layer 2 (ReLU) cannot be certified"),
        (["--certified", "--method", "erm"], "Give either `--gamma` or `--rho` for erm; got neither."),
        (["--certified", "--gamma", "1", "--cost", "linf"], "`--cost` must be strongly convex"),
        (["--gamma", "1", "--margin", "-1"], "`--margin` must be finite and not negative"),
        (
            ["--gamma", "1", "--margin", "1", "--label-smoothing", "0.1"],
            "`--margin` must be 0 if labels are smoothed",
        ),
        (["--gamma", "1", "--translate", "-1"], "`--translate` must be a whole number, at least 0"),
        (["--gamma", "1", "--affine", "0.5"], "`--affine` must be at least 0 and below 0.5; got 0.5"),
        (
            ["--gamma", "1", "--model", "certified-mlp:x"],
            "`--model` must be like certified-mlp:1024,256:logcosh:256",
        ),
    ],
)
def test_refusals(options: list[str], message: str, tmp_path: Path) -> None:
    done = certus("train", "digits", *options, folder=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("run.json"))


def test_regression_and_tables_are_refused_what_makes_no_sense(tmp_path: Path) -> None:
    squared = certus("train", "diabetes", "--certified", "--gamma", "1", folder=tmp_path)
    assert (squared.returncode, "residuals" in squared.stderr) == (2, True)
    for name in ("translate", "affine"):
        moved = certus(
            "train", "wine", "--gamma", "1", f"--{name}", "0.1" if name == "affine" else "1", folder=tmp_path
        )
        assert moved.returncode == 2
        assert f"`--{name}` must be left out for wine, whose inputs are not images" in moved.stderr
