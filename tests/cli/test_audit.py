"""``certus audit``: exit codes, files, and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from certus.certificates.graph_files import load_graph
from certus.datasets import digits
from certus.models.networks import lipschitz
from tests.cli.test_cli import certus, refused


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a network that was not trained."""
    place = tmp_path_factory.mktemp("audit")
    torch.manual_seed(0)
    save_file(lipschitz((1, 8, 8), 8, 3, 10).state_dict(), place / "weights.safetensors")
    return place


LINE = ["audit", "lipschitz:8x3", "--weights", "weights.safetensors", "--data", "digits", "--samples", "40"]


def test_claims_that_hold_end_with_0(place: Path) -> None:
    claims = ["--epsilon", "36/255", "--claimed-lipschitz", "4", "--claimed-accuracy", "0"]
    done = certus(*LINE, *claims, "-o", "good", "--json", folder=place)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["shortfalls"] == []
    assert told["radii"][0]["epsilon"] == 36 / 255
    assert told["lipschitz"] <= 4
    stored = json.loads((place / "good" / "audit.json").read_text())
    assert stored["radii"] == told["radii"]
    assert stored["weights"] == "weights.safetensors"
    points = digits().test.inputs[:5]
    model = lipschitz((1, 8, 8), 8, 3, 10)
    torch.manual_seed(0)
    model = lipschitz((1, 8, 8), 8, 3, 10).eval()
    assert torch.allclose(load_graph(place / "good")(points).float(), model(points), atol=1e-5)


def test_claims_that_are_not_proven_end_with_1(place: Path) -> None:
    claims = ["--epsilon", "0.1", "--claimed-lipschitz", "0.5", "--claimed-accuracy", "0.99"]
    done = certus(*LINE, *claims, "-o", "bad", folder=place)
    assert done.returncode == 1
    assert "a Lipschitz constant of 0.5 is claimed" in done.stderr
    assert "an accuracy of 99.0000% is claimed" in done.stderr
    assert "for float32" in done.stdout
    refused(certus(*LINE, "--epsilon", "0.1", "-o", "bad", folder=place), "`--output` must be a new folder")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "36/0"], "`--epsilon` must be a number, or a fraction such as 36/255"),
        (["--epsilon", "-1"], "`--epsilon` must be finite"),
        (["--epsilon", "0.1", "--claimed-accuracy", "58"], "`--claimed-accuracy` must lie between 0 and 1"),
    ],
)
def test_wrong_options(place: Path, options: list[str], message: str) -> None:
    refused(certus(*LINE, *options, "-o", "none", folder=place), message)
