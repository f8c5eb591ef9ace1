"""Rules in a user's own model file, on the command line: named wherever "proven" would stand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from certus.bounds import RULES, SmoothnessBound
from certus.storage.write import add_checksum
from tests.cli.test_cli import certus, refused

FILE = """
import torch
from torch import nn
from certus.bounds import rule
from certus.kernel.pointwise import Pointwise, scalar

class Wave(nn.Module):
    def forward(self, inputs):
        return torch.tanh(inputs)

@rule(Wave)
def wave(module, shape):
    return Pointwise(scalar("{name}"), shape)

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), Wave(), nn.Linear(8, 10))
"""
NAME = "the rule of Wave (layer 2)"


@pytest.fixture(scope="module", autouse=True)
def rules_as_they_were() -> Iterator[None]:
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("user")
    (place / "mine.py").write_text(FILE.format(name="tanh"))
    done = certus(
        *("train", "digits", "--method", "erm", "--epochs", "1", "--model", "mine.py:build", "-o", "run"),
        folder=place,
    )
    assert done.returncode == 0, done.stderr
    return place


def test_bound(folder: Path) -> None:
    done = certus("smoothness", "run", "--model", "mine.py:build", "--samples", "16", folder=folder)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "L+ (assumed)" in words
    assert "(assumed), in the norm of SquaredL2()" in words
    assert f"Assumed: {NAME}. If that holds: Proven for the real-valued network" in words
    assert "(proven)" not in words
    done = certus("smoothness", "run", "--model", "mine.py:build", "--samples", "16", "--json", folder=folder)
    content = json.loads(done.stdout)
    assert (content["evidence"], content["assumptions"]) == ("assumed", [NAME])


def test_certify_and_verify(folder: Path) -> None:
    ask = [
        "--model",
        "mine.py:build",
        "--rho",
        "0.01",
        "--samples",
        "10",
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
    ]
    done = certus("certify", "run", *ask, folder=folder)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "assumed by" in words
    assert "at most: assumed." in words
    assert f"Assumed: {NAME}." in words
    assert "proven" not in words
    file = folder / "run/certificate/certificate.json"
    content = json.loads(file.read_text())
    assert (content["evidence"], content["assumptions"]) == ("assumed", [NAME])
    done = certus("verify", str(file), "--model", "mine.py:build", folder=folder)
    assert done.returncode == 0, done.stderr


def test_a_wrong_rule_is_refused_in_one_line(folder: Path) -> None:
    run = folder / "run"
    (folder / "wrong.py").write_text(FILE.format(name="silu"))
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(add_checksum(about | _as_built_by(folder / "wrong.py", about))))
    try:
        done = certus("smoothness", "run", "--model", "wrong.py:build", "--samples", "16", folder=folder)
        refused(done, "The rule of Wave (layer 2) is refuted: it claims the output")
    finally:
        (run / "run.json").write_text(json.dumps(about))


def _as_built_by(file: Path, about: dict[str, object]) -> dict[str, object]:
    return {"model_sha256": hashlib.sha256(file.read_bytes()).hexdigest()} if "model_sha256" in about else {}


def test_curvature_above_the_bound_is_an_alarm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmoothnessBound, "curvature", property(lambda bound: 1e-9))
    done = certus("smoothness", "run", "--model", "mine.py:build", "--samples", "16", folder=folder)
    refused(done, "at some input, and at most 1e-09 at all. The bound rests on the")
    assert f"It assumes {NAME}" in done.stderr
