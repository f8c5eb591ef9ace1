"""A class with a forward of its own on the command line: trained and certified; and one without a proof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import certus, refused

FILE = """
import math
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, width=8):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, width, 3, stride=2), nn.Linear(width * 9, classes)

    def forward(self, x):
        return F.log_softmax(self.head(F.elu(self.conv(x)).flatten(1)), dim=1)

class Normed(Net):
    def forward(self, x):
        return self.head(F.layer_norm(self.conv(x).flatten(1), (72,)))

def fitting(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

def needy(shape, depth):
    return nn.Linear(3, depth)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("classes")
    (place / "nets.py").write_text(FILE)
    return place


def train(folder: Path, name: str, *more: str) -> str:
    options = ["--method", "erm", "--epochs", "1", "--model", f"nets.py:{name}", "-o", name]
    done = certus("train", "digits", *options, *more, folder=folder)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stderr.split())


def test_a_class_is_certified(folder: Path) -> None:
    said = train(folder, "Net")
    assert "by its slope and its curvature" in said
    assert "about 2.6 times the attained slope at depth 1" in said
    ask = [
        "--model",
        "nets.py:Net",
        "--rho",
        "0.01",
        "--samples",
        "4",
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
    ]
    done = certus("certify", "Net", *ask, "--json", folder=folder)
    content = json.loads(done.stdout)
    assert content["evidence"] == "proven"
    assert content["brackets"][0]["loss_low"] <= content["brackets"][0]["loss_high"]


def test_a_class_that_cannot_be_read_is_refused(folder: Path) -> None:
    assert "This model cannot be certified without noise" in train(folder, "Normed")
    ask = ["--model", "nets.py:Normed", "--rho", "0.05", "--samples", "6"]
    done = certus("certify", "Normed", *ask, folder=folder)
    refused(done, "No bound can be proven through layer_norm (layer_norm) in nets.py:16:")
    assert "--smoothing" in " ".join(done.stderr.split())
    assert not (folder / "Normed/certificate/certificate.json").exists()
    done = certus("smoothness", "Normed", "--model", "nets.py:Normed", folder=folder)
    refused(done, "No bound can be proven through layer_norm")


def test_factories_take_the_shape_and_the_classes(folder: Path) -> None:
    assert "it is affine" in train(folder, "fitting")
    done = certus("train", "digits", "--model", "nets.py:needy", "-o", "needy", folder=folder)
    refused(done, "`--model` nets.py:needy must have a default for every parameter but `shape`")
    assert "`depth` has none" in " ".join(done.stderr.split())
