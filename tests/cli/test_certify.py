"""``certus certify``, ``verify`` and ``shift`` as a user meets them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from certus.certificates import certify
from certus.certificates.cache import ProposalCache
from certus.certificates.certificate import Certificate
from certus.certificates.files import as_json, sample_table
from certus.data import Samples
from certus.datasets import digits
from certus.display.canvas import COLOURS
from certus.errors import ArgumentError
from certus.losses import SquaredError
from certus.runs import RunDirectory
from certus.runs.certification import certify_run
from certus.runs.loaded_run import check_holdout, open_run
from certus.runs.settings import CertifySettings
from certus.storage.files import RunError, convert
from certus.storage.write import add_checksum
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus, refused
from tests.pictures import pixels_of

ASK = ["--rho", "0.001", "--rho", "0.01", "--samples", "40", "--local-radii", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with a certified run."""
    place = tmp_path_factory.mktemp("certified")
    done = certus(
        "train", "digits", "--epochs", "3", "--model", "mlp:8:elu", "--rho", "0.1", "-o", "run", folder=place
    )
    assert done.returncode == 0, done.stderr
    done = certus("certify", "run", *ASK, "--confidence", "0.9", folder=place)
    assert done.returncode == 0, done.stderr
    for words in (
        "loss at least",
        "at most",
        "proven by",
        "error at least",
        "population: loss at least",
        "with confidence 0.9",
        "About a random 40 of the 359 rows of digits@test, seed 0.",
        "in the order of seed 0.",
        "pixels in [0, 1]",
    ):
        assert words in " ".join(done.stdout.split())
    return place


def test_the_files_hold_what_was_said(folder: Path) -> None:
    files = folder / "run/certificate"
    content = json.loads((files / "certificate.json").read_text())
    assert content["evidence"] == "proven"
    assert set(content["about"]["digests"]) == {"problem", "weights", "samples", "source", "table"}
    assert [one["rho"] for one in content["brackets"]] == [0.001, 0.01]
    for one in content["brackets"]:
        assert one["loss_low"] <= one["loss_high"]
        assert one["population_error_low"] <= one["error_low"] <= one["error_high"] <= one["population_error"]
        assert one["population_loss_low"] <= one["loss_low"]
        assert one["distance"] == pytest.approx(one["rho"] ** 0.5)
    rows = list(csv.DictReader((files / "samples.csv").read_text().splitlines()))
    assert len(rows) == 2 * 40
    assert {row["rule"] for row in rows} <= {"lipschitz", "radial", "local", "concave"}
    first = [float(row["phi_bar"]) for row in rows if row["rho"] == "0.001"]
    bracket = content["brackets"][0]
    assert bracket["gamma"] * 0.001 + sum(first) / 40 == pytest.approx(bracket["loss_high"], abs=1e-9)
    pixels = pixels_of(files / "certificate.png")
    assert all(pixels[colour] > 100 for colour in COLOURS[:3])
    assert not (files / "unfinished").exists()


def test_verification_computes_everything_again(folder: Path) -> None:
    """What it finds in forged files is tested in tests/certificates/test_verification.py."""
    done = certus("verify", "run/certificate/certificate.json", "--recompute", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "agrees to 1e-9 of its size" in done.stdout


def test_a_certificate_is_read_as_it_was_written(folder: Path, drawn: list[Figure]) -> None:
    place = folder / "run/certificate/certificate.json"
    read = Certificate.load(place)
    trained = open_run(RunDirectory.open(folder / "run"))
    fresh = certify_run(trained, convert(read.about["settings"], CertifySettings))
    for rho in (0.0, 1e-5, 0.001, 0.0031, 0.01, 0.2, 7.0):
        assert read.bracket(rho) == fresh.bracket(rho)
    assert read.attained_budgets == fresh.attained_budgets
    assert (read.rhos, read.samples, read.classes) == (fresh.rhos, fresh.samples, fresh.classes)
    stated, written = json.loads(json.dumps(as_json(read))), json.loads(place.read_text())
    written.pop("check")
    assert stated == written | {name: stated[name] for name in ("evidence", "sha256")}
    assert (stated["evidence"], written["evidence"]) == ("stated", "proven")
    with pytest.raises(ArgumentError, match="A certificate read from a file has no data"):
        read.worst_case_data(0.01)
    with pytest.raises(ArgumentError, match="`certificate` must be new"):
        sample_table(read)
    for certificate in (read, fresh):
        certificate.plot(folder / "again.png")
    ours, theirs = ([line.get_xydata() for axes in figure.axes for line in axes.lines] for figure in drawn)
    assert all(np.array_equal(*pair, equal_nan=True) for pair in zip(ours, theirs, strict=True))
    broken = folder / "broken.json"
    content = json.loads(place.read_text())
    for name in ("aggregates", "clean_loss", "population"):
        broken.write_text(
            json.dumps(add_checksum({key: value for key, value in content.items() if key != name}))
        )
        with pytest.raises(RunError, match=r"broken.json is corrupt: "):
            Certificate.load(broken)
    line = content["aggregates"][0]
    parts: list[dict[str, Any]] = [
        {"aggregates": [line | {"gamma": None}]},
        {"aggregates": []},
        {"unit_cost": 0},
        {"proven_error_cost": []},
        {"samples": 0},
        {"evidence": "proven!!"},
        {"evidence": "assumed"},
        {"assumptions": "none"},
        {"assumptions": [3]},
    ]
    for part in parts:
        broken.write_text(json.dumps(add_checksum(content | part)))
        with pytest.raises(RunError, match=r"broken.json is corrupt: "):
            Certificate.load(broken)


def test_certified_accuracy_is_printed_written_and_verified(folder: Path) -> None:
    ask = ["--epsilon", "0.05", "--epsilon", "0.2", "--samples", "30", "--confidence", "0.9"]
    ask += ["--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "2"]
    done = certus("certify", "run", *ask, "-o", "near", folder=folder)
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    for one in (
        "accuracy at least",
        "the cost SquaredL2",
        "all epsilon at once",
        "(Clopper and Pearson)",
    ):
        assert one in words
    content = json.loads((folder / "near/certificate.json").read_text())
    assert content["epsilons"] == [0.05, 0.2]
    assert content["rhos"] == pytest.approx([0.0025, 0.04])
    rows = list(csv.DictReader((folder / "near/samples.csv").read_text().splitlines()))[:30]
    for one in content["accuracies"]:
        far = [float(row["certified_radius"]) > one["epsilon"] for row in rows]
        assert one["certified"] == sum(far) / 30
        assert one["population_certified"] <= one["fixed_certified"] <= one["certified"] <= one["attacked"]
    assert certus("verify", "near/certificate.json", folder=folder).returncode == 0
    refused(certus("certify", "run", "--epsilon", "-1", folder=folder), "`--epsilon` must be finite")


def test_inputs_may_move_everywhere(folder: Path) -> None:
    """The run was trained in the box of images; its certificate in all of space is another question."""
    ask = [
        "--rho",
        "1",
        "--samples",
        "4",
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
        "--attack-steps",
        "0",
        "--json",
    ]
    found = []
    for options in ([], ["--unbounded"]):
        done = certus("certify", "run", *ask, *options, "-o", f"at{len(options)}", folder=folder)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert [one["about"]["domain"]["type"] for one in found] == ["Box", "Unbounded"]
    inside, everywhere = (one["brackets"][0] for one in found)
    assert inside["loss_low"] < everywhere["loss_low"] <= everywhere["loss_high"]
    assert certus("verify", "at1/certificate.json", folder=folder).returncode == 0


def test_a_confidence_needs_data_that_were_held_out(folder: Path) -> None:
    done = certus("certify", "run", *ASK, "--confidence", "0.9", "--split", "train", folder=folder)
    refused(done, "needs data that the run was not trained on")
    trained = open_run(RunDirectory.open(folder / "run"))
    mixed = Samples(
        torch.cat([trained.data.test.inputs[:5], trained.data.train.inputs[7:9]]),
        torch.cat([trained.data.test.targets[:5], trained.data.train.targets[7:9]]),
    )
    with pytest.raises(ArgumentError, match="2 of these 7 rows are among its training data"):
        check_holdout(trained, mixed)
    check_holdout(trained, trained.data.calibration)


def test_an_interrupted_certification_goes_on(folder: Path, tmp_path: Path) -> None:
    trained = open_run(RunDirectory.open(folder / "run"))
    settings = CertifySettings(
        rho=(0.01,), samples=20, local_radii=1, attack_steps=0, gammas=(8.0, 4.0, 2.0), gamma_rounds=0
    )
    memory = ProposalCache(tmp_path / "unfinished", "key")

    class Stopped(Exception):
        pass

    calls = []

    def stop(count: float) -> None:
        calls.append(count)
        if len(calls) == 4:
            raise Stopped

    with pytest.raises(Stopped):
        certify_run(trained, settings, cache=memory, progress=stop)
    assert len(list(memory.folder.iterdir())) == 2
    again, whole = certify_run(trained, settings, cache=memory), certify_run(trained, settings)
    assert again.bound(0.01) == whole.bound(0.01)
    memory.clear()
    assert not memory.folder.exists()


def test_predicted_labels_and_label_costs(folder: Path) -> None:
    done = certus(
        "certify", "run", *ASK, "--own-labels", "--attack-steps", "0", "-o", "other", "--json", folder=folder
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["brackets"][0]["error_high"] < 0.5
    priced = [
        "--label-cost",
        "0.02",
        "--rho",
        "0.02",
        "--samples",
        "10",
        "--local-radii",
        "0",
        "--gamma-rounds",
        "0",
    ]
    done = certus(
        "certify", "run", *priced, "--gamma", "20", "--gamma", "60", "-o", "priced", "--json", folder=folder
    )
    assert json.loads(done.stdout)["brackets"][0]["error_high"] == pytest.approx(1.0)


def test_refusals(folder: Path) -> None:
    refused(
        certus("certify", "run", "--rho", "-1", folder=folder),
        "`--rho` must be finite and not negative; got -1.0",
    )
    done = certus("certify", "run", "--rho", "1", "--split", "dev", folder=folder)
    refused(done, "`--split` must be one of train, calibration, test, all; got 'dev'")
    done = certus("certify", "run", *ASK, "--confidence", "1", folder=folder)
    refused(done, "`--confidence` must lie in [0.5, 1); got 1.0")
    refused(certus("verify", "run/run.json", folder=folder), "not a certificate")
    refused(
        certus("distance", "digits@dev", "digits@test", folder=folder), "one of train, calibration, test, all"
    )
    model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    with pytest.raises(ArgumentError, match="`clip` must be given for a regression with `confidence`"):
        certify(model, (torch.zeros(3, 2), torch.zeros(3)), rho=0.1, criterion=SquaredError(), confidence=0.9)


def test_a_shift_out_of_the_domain_is_no_case_of_the_certificate(folder: Path) -> None:
    data = digits().test
    images = 2 * data.inputs[:60].numpy()  # from 0 to 2
    np.savez(folder / "bright.npz", inputs=images, targets=data.targets[:60].numpy())
    refused(
        certus(
            *("distance", "digits@test", "npz:bright.npz@all", "--run", "run", "--samples", "20"),
            *("--label-cost", "1"),
            folder=folder,
        ),
        "`SECOND` must lie in the domain of the run",
    )


def test_shift_between_halves_of_the_digits(folder: Path) -> None:
    done = certus("distance", "digits@test", "digits@calibration", "--samples", "60", folder=folder)
    assert "infinitely far apart" in done.stdout
    done = certus(
        "distance",
        "digits@test",
        "digits@calibration",
        "--samples",
        "60",
        "--label-cost",
        "1",
        "--json",
        folder=folder,
    )
    found = json.loads(done.stdout)
    assert 0 < found["distance"]["low"] <= found["distance"]["high"]
    assert found["distance"]["exact"]


def test_requirements_of_a_new_certificate(tmp_path: Path) -> None:
    """Exit code 1 where a requirement fails; the certificate is written and shown all the same."""
    make_run(tmp_path, 1.0, count=30)
    coarse = ["--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0"]
    ask = ["certify", "run", "--rho", "0.002", *coarse, "--confidence", "0.9", "--json"]
    both = json.loads(certus(*ask, folder=tmp_path).stdout)["brackets"][0]
    high, population = both["error_high"], both["population_error"]
    assert 0 < high < population < 1
    for text, code in (
        (f"error<={high!r}", 0),
        (f"error<={high - 1e-6!r}", 1),
        (f"population:error<={population!r}", 0),
        (f"population:error<={high!r}", 1),
        ("recall[0]>=100%", 1),
    ):
        done = certus(*ask, "--require", text, folder=tmp_path)
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["brackets"][0]["error_high"] == high
    refused(certus(*ask, "--require", "error<=20", folder=tmp_path), "a share from 0 to 1 (0.2 for 20%)")
    refused(certus(*ask, "--require", "accuracy@pgd:inf:0.1>=0.5", folder=tmp_path), "certus gate attacks")
    short = ["certify", "run", "--rho", "0.002", *coarse]
    refused(certus(*short, "--require", "population:error<=1", folder=tmp_path), "--confidence")
