"""``certus verify`` as a script meets it: exit codes, and what is said on which stream."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save

from certus.storage.write import add_checksum
from tests.certificates.small_run import certify_small, make_run
from tests.cli.test_cli import Done, certus, refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verify")
    make_run(place, 1.0)
    certify_small(place, 1.0, "--gamma-rounds", "0")
    shutil.copytree(place / "run/certificate", place / "kept")
    return place


def failed(done: Done, message: str) -> None:
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("certus: error: ")
    assert " is not verified: " in last
    assert message in last


def test_verified(folder: Path) -> None:
    done = certus("verify", "kept/certificate.json", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "numbers compared: proven." in done.stdout
    done = certus("verify", "kept/certificate.json", "--recompute", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "agrees to 1e-9 of its size" in done.stdout
    (folder / "alone").mkdir()
    shutil.copy(folder / "kept/certificate.json", folder / "alone")
    done = certus("verify", "alone/certificate.json", "--recompute", "--json", folder=folder)
    absent = "samples.csv does not exist: its rows were not compared"
    assert json.loads(done.stdout) == {"verified": True, "differences": [], "remarks": [absent]}
    assert (done.returncode, done.stderr) == (0, f"{absent}.\n")


def test_checked_from_files_alone(folder: Path, tmp_path: Path) -> None:
    """Without a run, the rows are those included, or given; and a number that does not follow exits 1."""
    options = ["--rho", "0.002", "--gamma", "4.0", "--local-radii", "1", "--attack-steps", "1"]
    place = str(tmp_path / "sent")
    done = certus("certify", "run", *options, "--include-data", "-o", place, folder=folder)
    assert done.returncode == 0, done.stderr
    done = certus("verify", "certificate.json", "--json", folder=tmp_path / "sent")
    printed = json.loads(done.stdout)
    assert (done.returncode, printed["verified"], printed["evidence"]) == (0, True, "proven")
    assert all(number["follows"] for number in printed["numbers"])
    (tmp_path / "sent/rows.safetensors").rename(tmp_path / "rows.safetensors")
    shutil.copytree(tmp_path / "sent", tmp_path / "far")
    text = json.loads((tmp_path / "far/certificate.json").read_text())
    text["about"]["run"] = "nowhere"
    (tmp_path / "far/certificate.json").write_text(json.dumps(add_checksum(text)))
    refused(certus("verify", "certificate.json", folder=tmp_path / "far"), "nowhere is not a run directory")
    rows = ["--data", "../rows.safetensors"]
    assert certus("verify", "certificate.json", *rows, folder=tmp_path / "far").returncode == 0
    rows = ["--data", "certificate.json"]
    refused(certus("verify", "certificate.json", *rows, folder=tmp_path / "far"), "header")
    again = certus("certify", "run", *options, "-o", place, folder=folder)
    assert again.returncode == 0
    assert "rows.safetensors" not in {file.name for file in (tmp_path / "sent").iterdir()}


def test_a_network_that_is_not_that_of_the_run_exits_1(folder: Path) -> None:
    """One with all outputs raised alike has the same losses, so every number follows."""
    shutil.copytree(folder / "kept", folder / "raised")
    path, file = folder / "raised/graph.safetensors", folder / "raised/certificate.json"
    tensors = load_file(path)
    last = [name for name, tensor in tensors.items() if tensor.shape == (3,)]  # the bias and its size
    path.write_bytes(save(tensors | {name: tensors[name] + 1 for name in last}))
    content = json.loads(file.read_text())
    content["check"]["files"]["graph.safetensors"] = hashlib.sha256(path.read_bytes()).hexdigest()
    file.write_text(json.dumps(add_checksum(content)))
    failed(
        certus("verify", "raised/certificate.json", folder=folder), "it is not about the network of the run"
    )


def _other_start(content: dict[str, Any]) -> None:
    content["clean_loss"][1] *= 1 + 1e-6


def _other_weights(content: dict[str, Any]) -> None:
    content["about"]["digests"]["weights"] = "0" * 64


def _no_such_rho(content: dict[str, Any]) -> None:
    content["about"]["settings"]["rho"] = [-1.0]


def _attained_above_proven(content: dict[str, Any]) -> None:
    content["aggregates"][0]["loss"] = 100.0


FORGED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "number": (_other_start, "clean_loss[1]: "),
    "weights": (_other_weights, "the weights are not those that were certified"),
    "settings": (_no_such_rho, "it cannot be computed again: `rho` must be finite and not negative"),
    "contradiction": (_attained_above_proven, "An attained value exceeds its stated bound"),
}


@pytest.mark.parametrize(("forge", "message"), FORGED.values(), ids=FORGED.keys())
def test_a_forged_certificate_exits_1(
    forge: Callable[[dict[str, Any]], None], message: str, folder: Path
) -> None:
    content = json.loads((folder / "kept/certificate.json").read_text())
    forge(content)
    (folder / "forged.json").write_text(json.dumps(add_checksum(content)))
    done = certus("verify", "forged.json", "--recompute", folder=folder)
    failed(done, message)
    assert done.stdout == ""
    done = certus("verify", "forged.json", "--recompute", "--json", folder=folder)
    assert done.returncode == 1
    printed = json.loads(done.stdout)
    assert not printed["verified"]
    assert message in printed["differences"][0]


def test_a_damaged_certificate_exits_1(folder: Path) -> None:
    text = (folder / "kept/certificate.json").read_text()
    (folder / "damaged.json").write_text(text.replace('"samples": 12', '"samples": 13'))
    failed(certus("verify", "damaged.json", folder=folder), "does not have the sha256 it was written with")
    (folder / "damaged.json").write_text(text.replace("{", '{"samples": 1,', 1))
    failed(certus("verify", "damaged.json", folder=folder), 'the key "samples" occurs twice')
    (folder / "damaged.json").write_text(text.replace('"unit_cost": 1.0', '"unit_cost": Infinity'))
    failed(certus("verify", "damaged.json", folder=folder), "Infinity is not a finite number")
    shutil.copytree(folder / "kept", folder / "row")
    table = folder / "row/samples.csv"
    table.write_text(table.read_text().replace(",concave,", ",local,", 1))
    failed(
        certus("verify", "row/certificate.json", "--recompute", folder=folder),
        "samples.csv: it is not the file that",
    )


def test_misuse_exits_2(folder: Path) -> None:
    done = certus("verify", "kept/certificate.json", "--redraw", folder=folder)
    refused(done, "`--redraw` must be left out for a certificate without noise")
    refused(certus("verify", "none.json", folder=folder), "Cannot read none.json: No such file")
    refused(certus("verify", "run/run.json", folder=folder), "run/run.json is not a certificate.")
    refused(certus("verify", "data.npz", folder=folder), "data.npz is corrupt: it is not a JSON file.")
    refused(certus("verify", folder=folder), "Missing argument")
    refused(certus("verify", "kept", folder=folder), "`FILE` must be a file, such as kept/certificate.json")
    away = ["verify", "kept/certificate.json", "--run", "away"]
    refused(certus(*away, folder=folder), "away is not a run directory")
    content = json.loads((folder / "kept/certificate.json").read_text())
    (folder / "old.json").write_text(json.dumps(content | {"schema_version": 4}))
    refused(certus("verify", "old.json", folder=folder), "is a certificate of schema version 4; this version")


def test_the_help_names_the_exit_codes(folder: Path) -> None:
    text = " ".join(certus("verify", "--help", folder=folder).stdout.split())
    assert all(code in text for code in ("0: verified", " 1: ", " 2: ", " 3: "))


def test_the_run_beside_the_certificate_comes_before_the_current_folder(folder: Path, tmp_path: Path) -> None:
    """Another run of the same name in the current folder is not the one that was certified."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    make_run(here, 2.0)
    there.mkdir()
    for name in ("run", "data.npz"):
        (shutil.copytree if name == "run" else shutil.copy)(folder / name, there / name)
    shutil.copytree(folder / "kept", there / "kept")
    data = ["--run-data", f"npz:{there}/data.npz"]
    for file in (there / "run/certificate/certificate.json", there / "kept/certificate.json"):
        done = certus("verify", str(file), *data, folder=here)
        assert done.returncode == 0, done.stderr
    done = certus("verify", "certificate.json", *data, folder=there / "run/certificate")
    assert done.returncode == 0, done.stderr
    # A certificate inside another run's folder belongs to the run whose weights it names.
    shutil.copytree(here / "run", tmp_path / "other")
    shutil.copytree(folder / "kept", tmp_path / "other/kept")
    done = certus("verify", "../other/kept/certificate.json", *data, folder=there)
    assert done.returncode == 0, done.stderr
    # And what is named explicitly is taken.
    done = certus("verify", str(there / "kept/certificate.json"), "--run", "run", folder=here)
    assert done.returncode == 1
