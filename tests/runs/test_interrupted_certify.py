"""Certifications of one run at once, killed or interrupted: nothing is lost, and files fit each other."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path

import pytest

from certus.kernel.check import FILES
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus, refused
from tests.runs.kills import BeforeCalling, BeforeReplacing, Held, is_killed, run

QUICK = [
    "--gamma",
    "2",
    "--gamma",
    "4",
    "--gamma",
    "8",
    "--local-radii",
    "0",
    "--gamma-rounds",
    "0",
    "--attack-steps",
    "0",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made")
    make_run(place, 1.0)
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path / "place")
    monkeypatch.chdir(tmp_path / "place")
    return tmp_path / "place"


def certify(rho: float, *more: str) -> list[str]:
    return ["certify", "run", "--rho", str(rho), *QUICK, *more]


def stated(folder: Path) -> list[float] | None:
    """The ρ of the certificate, whose table must be its own; None if there is no certificate."""
    if not (folder / "certificate.json").exists():
        return None
    content = json.loads((folder / "certificate.json").read_text())
    table = hashlib.sha256((folder / "samples.csv").read_bytes()).hexdigest()
    assert content["about"]["digests"]["table"] == table
    rhos: list[float] = content["rhos"]
    return rhos


@pytest.mark.parametrize("same", [True, False], ids=["one question", "three questions"])
def test_three_at_once(same: bool, place: Path) -> None:
    """All have their levels when the first one ends, takes its own away, and so on."""
    asked = [0.01] * 3 if same else [0.01, 0.02, 0.03]
    folder = place / "run/certificate"
    held = [
        Held(certify(rho), place / f"{index}.log", BeforeCalling("certus.storage.write:file_transaction"))
        for index, rho in enumerate(asked)
    ]
    assert len(list((folder / "unfinished").iterdir())) == (3 if same else 9)
    for rho, one in zip(asked, held, strict=True):
        assert one.go_on() == 0, one.log.read_text()
        assert stated(folder) == [rho]
    names = {".lock", "certificate.json", "certificate.png", "samples.csv", *FILES}
    assert {path.name for path in folder.iterdir()} == names


def test_levels_go_while_others_are_about_to_be_kept(place: Path) -> None:
    """One finishes and takes the folder of levels away, while another one is about to write into it."""
    moment = BeforeCalling("certus.certificates.cache:save_tensors")
    held = Held(certify(0.01), place / "held.log", moment)
    assert run(certify(0.02), place / "log") == 0
    assert not (place / "run/certificate/unfinished").exists()
    assert held.go_on() == 0, held.log.read_text()


def test_links_in_the_folder_stay_links(place: Path) -> None:
    """The certificate and its table are kept elsewhere: what the links lead to is written anew."""
    folder, log = place / "run/certificate", place / "log"
    kept = {name: place / f"kept-{name}" for name in ("certificate.json", "samples.csv", "certificate.png")}
    assert run(certify(0.01), log) == 0, log.read_text()
    for name, target in kept.items():
        (folder / name).rename(target)
        (folder / name).symlink_to(target)
    assert run(certify(0.02), log) == 0, log.read_text()
    for name, target in kept.items():
        assert (folder / name).readlink() == target
    assert stated(folder) == [0.02]
    assert kept["certificate.png"].read_bytes()[:4] == b"\x89PNG"


def test_killed_at_every_exchange_of_a_file(place: Path) -> None:
    """The certificate has its own table, old or new; what was complete is put in place."""
    folder, log = place / "run/certificate", place / "log"
    assert run(certify(0.01), log) == 0, log.read_text()
    for file in ("samples.csv", "certificate.json"):
        assert is_killed(certify(0.02), log, BeforeReplacing(file)), file  # beside its place
        assert stated(folder) == [0.01]
    assert is_killed(certify(0.02), log, BeforeReplacing(".complete"))
    assert stated(folder) == [0.01]
    for file, rho in (("certificate.png", 0.02), ("samples.csv", 0.03), ("certificate.json", 0.04)):
        assert is_killed(certify(rho), log, BeforeReplacing(file, time=2)), file
        assert stated(folder) is None
        assert run(["verify", "run/certificate/certificate.json"], log) == 0, log.read_text()
        assert stated(folder) == [rho]
    for rho in (0.02, 0.03, 0.04):
        assert run(certify(rho), log) == 0  # levels were kept until the certificate was there
    names = {".lock", "certificate.json", "certificate.png", "samples.csv", *FILES}
    assert {path.name for path in folder.iterdir()} == names


def test_interrupted(place: Path) -> None:
    log, moment = place / "log", BeforeCalling("certus.certificates.cache:ProposalCache.save", time=3)
    assert run(certify(0.01), log, moment, signal.SIGINT) == 130
    stored = "results at 2 values of gamma are stored in run/certificate/unfinished"
    assert log.read_text() == f"certus: interrupted: {stored}; run the same command to continue.\n"
    assert run(certify(0.03), log) == 0, log.read_text()  # another question, which forgets its own levels
    assert run(certify(0.01), log, moment, signal.SIGINT) == 0  # of three levels one was left
    first = BeforeCalling("certus.certificates.cache:ProposalCache.save")
    assert run(certify(0.02), log, first, signal.SIGINT) == 130
    assert (
        log.read_text() == "certus: interrupted: nothing was stored; run the same command to start again.\n"
    )


def test_the_certificate_of_another_run_is_not_replaced(place: Path) -> None:
    assert certus(*certify(0.01, "-o", "here"), folder=place).returncode == 0
    assert certus(*certify(0.02, "-o", "here"), folder=place).returncode == 0
    shutil.copytree(place / "run", place / "moved")
    again = ["certify", "moved", *certify(0.03, "-o", "here")[2:]]
    assert certus(*again, folder=place).returncode == 0  # the same weights, elsewhere
    (place / "other").mkdir()
    make_run(place / "other", 2.0)
    other, before = certify(0.01, "-o", "../here"), (place / "here/certificate.json").read_bytes()
    said = "a certificate of run; got ../here, which has a certificate of moved."
    refused(certus(*other, folder=place / "other"), said)
    assert (place / "here/certificate.json").read_bytes() == before
    (place / "here/certificate.json").write_text("{")
    said = "got ../here, which has a certificate of an unreadable file."
    refused(certus(*other, folder=place / "other"), said)
