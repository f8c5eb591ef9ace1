"""``certus train --noise`` and ``certus certify --smoothing`` as a user meets them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certus.smoothing import SmoothedCertificate
from certus.smoothing.certificate import Quantity
from certus.storage.write import add_checksum, without_checksum
from tests.cli.test_cli import certus, refused
from tests.pictures import pixels_of

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
    assert "Inner problem with noise of sigma 0.25 at gamma 6" in told
    assert "is strongly concave (proven" in told
    assert "points themselves are estimated" in told
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
    assert "concavity is not proven" in " ".join(done.stdout.split())


def test_options_without_effect_are_refused(folder: Path) -> None:
    for option in (("--local-radii", "3"), ("--own-labels",), ("--gamma", "1")):
        done = certus("certify", "run", *FEW, *option, folder=folder)
        refused(done, f"`{option[0]}` must be left out with --smoothing")
    done = certus("certify", "run", "--rho", "0.1", "--draws", "20", folder=folder)
    refused(done, "`--draws` must be left out without --smoothing")
    refused(certus("certify", "run", *FEW, "--split", "train", folder=folder), "train")


def test_the_files_are_drawn_verified_and_sealed(folder: Path) -> None:
    assert certus("certify", "run", *FEW, folder=folder).returncode == 0
    place = folder / "run" / "certificate"
    assert pixels_of(place / "smoothing.png")
    assert not (place / "unfinished").exists()
    done = certus("verify", "run/certificate/smoothing.json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "the kernel proves every upper side" in " ".join(done.stdout.split())
    assert "exact Gaussian noise" in " ".join(done.stderr.split())
    done = certus("verify", "run/certificate/smoothing.json", "--run", "run", folder=folder)
    refused(done, "`--run` must be left out without --redraw")
    verify = ("verify", "run/certificate/smoothing.json", "--redraw")
    done = certus(*verify, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "Verified: every number" in " ".join(done.stdout.split())
    file = place / "smoothing.json"
    stated = json.loads(file.read_text())

    def not_verified(change: Callable[[dict[str, Any]], None], words: str, *, sealed: bool = True) -> None:
        other = copy.deepcopy(stated)
        change(other)
        file.write_text(json.dumps(add_checksum(without_checksum(other)) if sealed else other))
        try:
            done = certus(*verify, folder=folder)
        finally:
            file.write_text(json.dumps(stated))
        assert done.returncode == 1, done.stdout
        assert words in " ".join(done.stderr.split())

    def lower(content: dict[str, Any]) -> None:
        """A bound of the ideal vote that is a little too good, brackets and all."""
        means = content["quantities"][2]["means"]
        for pair in means:
            pair["mean"] *= 0.99
        loaded = Quantity("ideal_vote", 1.0, {pair["gamma"]: pair["mean"] for pair in means})
        for bracket in content["brackets"]:
            bracket["ideal_vote_high"] = loaded.high(bracket["rho"])

    not_verified(lower, "quantities[2].means[0].mean")
    not_verified(lower, "corrupt", sealed=False)
    not_verified(lambda content: content["about"]["digests"].update(weights="0" * 64), "the weights are not")
    not_verified(lambda content: content["about"]["settings"].pop("noise"), "its settings do not fit")
    not_verified(lambda content: content.update(samples=61), "its statement does not follow from the rest")
    claimed = stated["statement"].replace("over 60 ", "over 61 ")
    not_verified(lambda content: content.update(samples=61, statement=claimed), "samples: 61, now 60")
    done = certus(*verify, "--json", folder=folder)
    assert json.loads(done.stdout) == {"verified": True, "differences": [], "remarks": []}
    (place / "smoothing.safetensors").write_bytes(b"no table")
    refused(
        certus("verify", "run/certificate/smoothing.json", folder=folder), "smoothing.safetensors is corrupt"
    )
    (place / "smoothing.safetensors").unlink()
    refused(certus("verify", "run/certificate/smoothing.json", folder=folder), "smoothing.safetensors")


def test_a_certificate_of_another_run_is_not_replaced(folder: Path) -> None:
    certus(
        "train", "digits", "--method", "erm", "--epochs", "1", "--model", "mlp:4", "-o", "o", folder=folder
    )
    assert certus("certify", "run", *FEW, "-o", "apart", folder=folder).returncode == 0
    done = certus("certify", "o", *FEW, "-o", "apart", folder=folder)
    refused(done, "must be a new folder, or one with a certificate of o")
