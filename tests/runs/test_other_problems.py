"""Certificates that hold, but about another problem than the run they name: none is shown as its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from certus import Box, certify
from certus.certificates.certificate import Certificate
from certus.certificates.files import read_certificate, write_certificate
from certus.costs import WeightedL2
from certus.display.report import contents
from certus.errors import VerificationError
from certus.kernel.evidence import Evidence
from certus.losses import CrossEntropy
from certus.runs.certification import certified_data, certify_run, verify_for_run
from certus.runs.loaded_run import LoadedRun, load_run
from certus.runs.settings import CertifySettings
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus

COARSE: dict[str, Any] = {"local_radii": 0, "gamma_rounds": 0, "attack_steps": 0}
SETTINGS = CertifySettings(rho=(0.002,), **COARSE)
FOLDER = Path("run/certificate/certificate.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("other")
    make_run(place, 1.0, count=20)
    (place / FOLDER).parent.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        trained = load_run(place / "run")
        certificate = certify_run(trained, SETTINGS)
        certificate.about["digests"]["table"] = "0" * 64
        write_certificate(certificate, place / FOLDER)
    return place


@pytest.fixture
def trained(place: Path, monkeypatch: pytest.MonkeyPatch) -> LoadedRun:
    monkeypatch.chdir(place)
    return load_run(place / "run")


def forged(trained: LoadedRun, path: Path, **other: Any) -> Certificate:
    """A certificate of the run's rows and another problem, with all that the honest one says of its
    origin."""
    rows = certified_data(trained, SETTINGS).data
    asked: dict[str, Any] = {
        "criterion": trained.certified_criterion,
        "cost": trained.cost,
        "domain": trained.domain,
    } | other
    model = asked.pop("model", trained.model)
    certificate = certify(model, (rows.inputs, rows.targets), rho=0.002, **asked, **COARSE)
    honest = read_certificate(FOLDER)
    write_certificate(replace(certificate, about=honest.about), path)
    return read_certificate(path)


def far(trained: LoadedRun) -> torch.nn.Module:
    """A network that is right everywhere near its rows: all weights of the last layer are larger."""
    model = load_run("run").model
    with torch.no_grad():
        for weight in [*model.parameters()][-2:]:
            weight.mul_(1.001)
    return model


OTHER: dict[str, tuple[Callable[[LoadedRun], dict[str, Any]], str]] = {
    "cost": (lambda _: {"cost": WeightedL2(torch.tensor([1e6, 1e6]))}, "the cost of the run"),
    "temperature": (lambda _: {"criterion": CrossEntropy(temperature=1e3)}, "the loss of the run"),
    "domain": (lambda _: {"domain": Box(-1.0, 1.0 + 1e-9)}, "the domain of the run"),
    "network": (lambda trained: {"model": far(trained)}, "the network of the run"),
    "clip": (lambda _: {"clip": 0.1}, "it clips or weights losses otherwise"),
    "weights": (lambda _: {"class_weights": (0.1, 0.1, 0.1)}, "it clips or weights losses otherwise"),
}


@pytest.mark.parametrize(("other", "words"), OTHER.values(), ids=OTHER.keys())
def test_a_certificate_of_another_problem_is_not_of_the_run(
    other: Callable[[LoadedRun], dict[str, Any]], words: str, trained: LoadedRun, tmp_path: Path
) -> None:
    """The kernel proves it from its files, as it stands; for the run it is refused."""
    rows = certified_data(trained, SETTINGS).data
    certificate = forged(trained, tmp_path / "certificate.json", **other(trained))
    assert certificate.verify(rows).statement.evidence == Evidence.PROVEN
    with pytest.raises(VerificationError, match=words):
        verify_for_run(certificate, trained, SETTINGS, rows)


def test_the_honest_certificate_is_of_the_run(trained: LoadedRun) -> None:
    rows = certified_data(trained, SETTINGS).data
    assert verify_for_run(read_certificate(FOLDER), trained, SETTINGS, rows).verified


def test_no_command_takes_one_of_another_cost(place: Path, trained: LoadedRun, tmp_path: Path) -> None:
    """With a cost a million times as large, the error rate is that of the unmoved rows."""
    shutil.copytree("run", tmp_path / "run")
    path = tmp_path / FOLDER
    forged(trained, path, cost=WeightedL2(torch.tensor([1e6, 1e6])))
    shutil.copy("data.npz", tmp_path)
    for command in (["verify", str(FOLDER)], ["gate", "run", "--require", "loss<=100"]):
        done = certus(*command, folder=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "it is not about the cost of the run" in done.stderr
    trained = load_run(tmp_path / "run")
    report = contents.measure_run(trained, 1.0, 8, 0)
    assert report.certificate is None
    assert any("it is not about the cost of the run" in remark for remark in report.remarks)
