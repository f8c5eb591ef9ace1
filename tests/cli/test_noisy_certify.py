"""``certus train --noise`` and ``certus certify --smoothing`` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from certus.certificates import SmoothedCertificate
from tests.cli.test_cli import certus, refused

ASK = ("--rho", "0.001", "--rho", "0.01", "--smoothing", "0.25", "--draws", "20", "--votes", "15")
FEW = (*ASK, "--samples", "60", "--attack-steps", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a run that was trained in noise."""
    place = tmp_path_factory.mktemp("noisy")
    options = (
        "--epochs",
        "2",
        "--model",
        "mlp:8:relu",
        "--gamma",
        "6",
        "--noise",
        "0.25",
        "--loss",
        "bounded",
    )
    done = certus("train", "digits", *options, "-o", "run", folder=place)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert (
        "Inner problem with noise of sigma 0.25 at gamma 6: the exact smoothed one is strongly concave"
        in told
    )
    assert "the points found are estimated" in told
    return place


def test_the_table_and_the_file_agree(folder: Path) -> None:
    done = certus("certify", "run", *FEW, "--clip", "2", folder=folder)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    for words in ("error at least", "vote at least", "ideal vote at most", "loss at least"):
        assert words in told
    assert "With probability at least 0.95 over 60 independent draws" in told
    found = SmoothedCertificate.load(folder / "run" / "certificate" / "smoothing.json")
    assert (found.sigma, found.draws, found.votes, found.samples) == (0.25, 20, 15, 60)
    assert found.about["settings"]["noise"]["sigma"] == 0.25
    again = certus("certify", "run", *FEW, "--clip", "2", "--json", folder=folder)
    assert json.loads(again.stdout)["brackets"] == found.as_json()["brackets"]


def test_a_run_in_cross_entropy_says_that_nothing_is_proven(folder: Path) -> None:
    options = ("--epochs", "1", "--model", "mlp:4:relu", "--gamma", "6", "--noise", "0.25", "-o", "plain")
    done = certus("train", "digits", *options, folder=folder)
    assert "the loss has no bound, so nothing is proven of its concavity" in " ".join(done.stdout.split())


def test_what_idles_is_refused(folder: Path) -> None:
    for option in (("--balls", "3"), ("--predicted",), ("--gamma", "1")):
        done = certus("certify", "run", *FEW, *option, folder=folder)
        refused(done, f"`{option[0]}` must be left out with --smoothing")
    done = certus("certify", "run", "--rho", "0.1", "--draws", "20", folder=folder)
    refused(done, "`--draws` must be left out without --smoothing")
    refused(certus("certify", "run", *FEW, "--split", "train", folder=folder), "train")
