"""``certus certify --own-labels``: a certificate of its own, beside that of the labels, in every command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from certus.certificates import Certificate
from certus.storage.write import add_checksum
from tests.certificates.small_run import certify_small, make_run
from tests.cli.test_cli import certus, refused

QUICK = ("--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "2")
GIVEN, OWN = "run/certificate/certificate.json", "run/certificate-own-labels/certificate.json"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with both certificates; one label in four is not the network's own."""
    folder = tmp_path_factory.mktemp("own-labels")
    make_run(folder, 1.0, count=40)
    certify_small(folder, 1.0)
    before = (folder / GIVEN).read_bytes()
    done = certus("certify", "run", "--rho", "0.01", "--own-labels", *QUICK, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "predictions" in done.stdout
    assert (folder / GIVEN).read_bytes() == before
    return folder


def test_both_certificates_are_stored_separately(place: Path) -> None:
    given, own = Certificate.load(place / GIVEN), Certificate.load(place / OWN)
    assert (given.labels, own.labels) == ("given", "predicted")
    assert (given.bracket(0.0).error_low or 0.0) > 0.1
    assert own.bracket(0.0).error_high == pytest.approx(0.0, abs=1e-9)
    content = json.loads((place / OWN).read_text())
    assert content["labels"] == "predicted"
    assert "labels" not in json.loads((place / GIVEN).read_text())


def test_each_is_verified_as_what_it_is(place: Path) -> None:
    for file in (GIVEN, OWN):
        done = certus("verify", file, folder=place)
        assert done.returncode == 0, done.stderr
    content = json.loads((place / OWN).read_text())
    for name in ("labels", "labels_statement"):
        del content[name]
    forged = place / "forged.json"
    forged.write_text(json.dumps(add_checksum(content)))
    done = certus("verify", "forged.json", "--recompute", folder=place)
    assert done.returncode == 1
    assert "labels" in done.stderr


def test_no_folder_holds_both(place: Path) -> None:
    ask = ("certify", "run", "--rho", "0.01", *QUICK)
    refused(
        certus(*ask, "--own-labels", "-o", "run/certificate", folder=place),
        "`--output` must be a different folder",
    )
    refused(
        certus(*ask, "-o", "run/certificate-own-labels", folder=place),
        "`--output` must be a different folder",
    )


def test_the_report_shows_them_apart(place: Path) -> None:
    done = certus("report", "run", "--samples", "6", "-o", "page.html", folder=place)
    assert done.returncode == 0, done.stderr
    body = (place / "page.html").read_text().partition("<script")[0]
    first, *rest = re.split("<h2>", body)
    assert "own predictions" not in first
    (section,) = (part for part in rest if "own predictions" in part)
    own = Certificate.load(place / OWN).bracket(0.01).error_high
    assert own is not None
    assert f"{own:.3f}"[:4] in section
    assert "certus certify run --rho 0.01 --own-labels" in body
