"""``--class-weights balanced``: certified as it was trained, and said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import certus as library
from tests.cli.test_cli import certus, refused

QUICK = ("--rho", "0.01", "--gamma", "4", "--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0")


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on a table of which one class has a quarter of the rows."""
    place = tmp_path_factory.mktemp("rare")
    rng = np.random.default_rng(0)
    rows = [
        f"{rng.normal(at % 4 == 0, 1):.4f},{rng.normal():.4f},{'yes' if at % 4 == 0 else 'no'}"
        for at in range(80)
    ]
    (place / "rare.csv").write_text("\n".join(["size,age,left", *rows]) + "\n")
    train = ("train", "csv:rare.csv", "--epochs", "2", "--model", "mlp:2:elu", "--gamma", "2")
    done = certus(*train, "--class-weights", "balanced", "-o", "run", folder=place)
    assert done.returncode == 0, done.stderr
    return place


def test_a_balanced_run_is_certified_by_class(rare: Path) -> None:
    done = certus("certify", "run", *QUICK, folder=rare)
    assert done.returncode == 0, done.stderr
    trained = library.load_run(rare / "run")
    counts = torch.bincount(trained.data.train.targets).double()
    weights = counts.sum() / (2 * counts)
    words = f"in the order of the labels: {weights[0]:.4g}, {weights[1]:.4g}."
    assert words in " ".join(done.stdout.split())
    assert "Error rates are not weighted." in " ".join(done.stdout.split())
    found = json.loads((rare / "run/certificate/certificate.json").read_text())
    assert found["class_weights"] == pytest.approx(weights.tolist())
    assert found["about"]["settings"]["class_weights"] == "balanced"
    test = trained.data.test
    with torch.no_grad():
        outputs = trained.loss.model(test.inputs).double()
    losses = torch.nn.functional.cross_entropy(outputs, test.targets, reduction="none")
    assert found["clean_loss"][0] == pytest.approx(float((weights[test.targets] * losses).mean()), rel=1e-5)
    assert certus("verify", "run/certificate/certificate.json", folder=rare).returncode == 0
    plain = certus("certify", "run", *QUICK, "--class-weights", "equal", "-o", "plain", "--json", folder=rare)
    said = json.loads(plain.stdout)
    assert "class_weights" not in said | said["about"]["settings"]
    assert said["clean_loss"][0] == pytest.approx(float(losses.mean()), rel=1e-5)


def test_refusals(rare: Path) -> None:
    odd = certus("certify", "run", *QUICK, "--class-weights", "some", folder=rare)
    refused(odd, "`--class-weights` must be one of equal, balanced; got 'some'.")
    noisy = ("certify", "run", "--rho", "0.01", "--smoothing", "0.5", "--class-weights", "balanced")
    refused(certus(*noisy, folder=rare), "`--class-weights` must be left out with --smoothing")
