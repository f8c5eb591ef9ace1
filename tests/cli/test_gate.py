"""``certus gate``: exit codes, reports, refusals, and the CI file of the documentation in real processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from certus.certificates import Certificate
from certus.certificates.files import json_bytes, read_content
from certus.storage.write import add_checksum
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus, refused

PAGE = Path(__file__).parents[2] / "docs" / "gate.md"
CERTIFICATE = Path("run/certificate/certificate.json")
COARSE = ["--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a certificate at rho 0.002."""
    place = tmp_path_factory.mktemp("gate")
    make_run(place, 1.0, count=30)
    done = certus("certify", "run", "--rho", "0.002", *COARSE, "--confidence", "0.8", folder=place)
    assert done.returncode == 0, done.stderr
    return place


def requirements(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--require", text)]


def judged(place: Path, *texts: str, code: int = 0) -> list[dict[str, Any]]:
    done = certus("gate", "run", *requirements(*texts), "--json", folder=place)
    assert done.returncode == code, done.stderr
    outcomes: list[dict[str, Any]] = json.loads(done.stdout)["outcomes"]
    return outcomes


def test_bounds_of_the_certificate_are_judged_in_order(place: Path) -> None:
    stored = Certificate.load(place / CERTIFICATE)
    bounds = {
        "loss<=100": stored.bound(0.002),
        "error<=1@rho=0.002": stored.error_bound(0.002),
        "population:error<=1": stored.bracket(0.002).population_error,
        "recall[1]>=0": stored.recall(1, 0.002).low,
        "fpr[2]<=100%": stored.false_positive_rate(2, 0.002).high,
        "population:recall[1]>=0": stored.recall(1, 0.002).population,
        "balanced_error<=1": stored.balanced_error(0.002).high,
        "expected_cost[0,1,1;1,0,1;7,7,0]<=9": stored.expected_cost(
            [[0, 1, 1], [1, 0, 1], [7, 7, 0]], 0.002
        ).high,
    }
    before = (place / CERTIFICATE).read_bytes()
    outcomes = judged(place, *bounds)
    assert [each["requirement"] for each in outcomes] == list(bounds)
    assert (place / CERTIFICATE).read_bytes() == before
    for outcome, bound in zip(outcomes, bounds.values(), strict=True):
        assert outcome["value"] == pytest.approx(bound, rel=1e-6)
        assert outcome["evidence"].startswith("proven")
        assert outcome["passed"]
    high = stored.error_bound(0.002)
    assert high is not None
    (failed, passed) = judged(place, f"error<={high - 1e-6!r}", f"error<={high + 1e-6!r}", code=1)
    assert (failed["passed"], passed["passed"]) == (False, True)
    assert failed["margin"] == pytest.approx(-1e-6, abs=1e-8)


def test_what_is_missing_is_certified(place: Path, tmp_path: Path) -> None:
    """A first certificate, another ρ and a population; what was there stays."""
    shutil.copytree(place / "run", tmp_path / "run")
    for name in ("data.npz", "net.safetensors"):
        shutil.copy(place / name, tmp_path / name)
    (outcome,) = judged(tmp_path, "error<=1@rho=0.004")
    assert outcome["rho"] == 0.004
    grown = Certificate.load(tmp_path / CERTIFICATE)
    assert grown.rhos == (0.002, 0.004)
    assert grown.population is not None
    shutil.rmtree(tmp_path / "run/certificate")
    refused(certus("gate", "run", *requirements("error<=1"), folder=tmp_path), "must name a rho")


def test_attacks_are_judged_beside_bounds(place: Path) -> None:
    first, second, third = judged(
        place, "accuracy@pgd:2:0.02>=0", "accuracy@certified:0.02>=0", "population:accuracy@fgsm:inf:0.02>=0"
    )
    assert first["evidence"] == "attained by this attack"
    assert second["value"] <= first["value"]
    assert third["evidence"].startswith("estimated")
    assert first["rho"] is None


def test_reports(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ask = ("gate", "run", *requirements("error<=1", "recall[0]>=1"), "--junit", "gate.xml")
    done = certus(*ask, folder=place)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert sum(line.startswith("::notice ") for line in lines) == 1
    assert sum(line.startswith("::error ") for line in lines) == 1
    suite = ElementTree.parse(place / "gate.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert "1 of 2" in done.stderr
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::" not in certus(*ask, folder=place).stdout


def test_certificates_that_are_not_of_the_run_are_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    make_run(tmp_path / "other", 2.0, count=30)
    other = certus(
        *("gate", "other/run", "--certificate", str(place / CERTIFICATE), *requirements("error<=1")),
        folder=tmp_path,
    )
    refused(other, "certus certify other/run")


@pytest.mark.parametrize("entry", ["error", "rows"])
def test_forged_certificates_do_not_pass(place: Path, tmp_path: Path, entry: str) -> None:
    """One with a smaller loss fails, and one of other samples is refused."""
    shutil.copytree(place / "run/certificate", tmp_path / "forged")
    path = tmp_path / "forged/certificate.json"
    content = read_content(path)
    if entry == "rows":
        content["about"]["digests"]["samples"] = "0" * 64
        path.write_bytes(json_bytes(add_checksum(content)))
    else:
        content["clean_loss"][1] /= 2
        path.write_bytes(json_bytes(add_checksum(content)))
    done = certus(*("gate", "run", "--certificate", str(path), *requirements("loss<=100")), folder=place)
    assert done.returncode == (2 if entry == "rows" else 1), done.stderr
    assert "pass" not in done.stdout


def test_nonsense_is_refused(place: Path) -> None:
    for text, words in (
        ("error<=20", "0.2 for 20%"),
        ("recall[nobody]>=0.5", "0, 1, 2"),
        ("vote<=0.5", "--smoothing SIGMA"),
    ):
        refused(certus("gate", "run", *requirements(text), folder=place), words)
    refused(certus("gate", "run", folder=place), "--require")


def test_a_vote_is_judged_by_smoothing(place: Path) -> None:
    asked = ["--smoothing", "0.3", "--draws", "8", "--votes", "8", "--rho", "0.01", "--attack-steps", "1"]
    done = certus("certify", "run", *asked, folder=place)
    assert done.returncode == 0, done.stderr
    vote, error = judged(place, "vote<=1", "population:error<=1@rho=0.5")
    assert vote["rho"] == 0.01
    assert "confidence 0.95" in error["evidence"]
    refused(certus("gate", "run", *requirements("vote<=1", "recall[0]>=0"), folder=place), "by smoothing")


@pytest.mark.parametrize(
    ("limit", "code"),
    [pytest.param("error<=100%@rho=0.002", 0, marks=pytest.mark.soak), ("error<=0@rho=0.002", 1)],
)
def test_the_ci_file_of_the_page(place: Path, tmp_path: Path, limit: str, code: int) -> None:
    """The step of the workflow in docs/gate.md, run by bash as a runner does, with a limit of ours."""
    step = re.search(r"- run: >\n((?: {10}.*\n)+)", PAGE.read_text(encoding="utf-8"))
    assert step is not None
    words = shlex.split(step[1])
    given = [place for place, word in enumerate(words) if word == "--require"]
    words = [
        word for at, word in enumerate(words) if at not in {*given[1:], *(each + 1 for each in given[1:])}
    ]
    words[words.index("--require") + 1] = limit
    words[words.index("runs/jobs")] = "run"
    command = tmp_path / "certus"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m certus "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_ACTIONS": "true"}
    done = subprocess.run(
        ["bash", "-e", "-c", shlex.join(words)],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert ("::error " in done.stdout) == (code == 1)
    assert (place / "gate.xml").exists()
