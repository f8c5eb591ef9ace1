"""``certus bundle``: equal bytes, and a check with the kernel alone in an empty folder."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from certus.certificates import Certificate
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus, refused

COARSE = ["--local-radii", "0", "--gamma-rounds", "0", "--attack-steps", "0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    make_run(place, 1.0, count=20)
    done = certus("certify", "run", "--rho", "0.002", *COARSE, "--confidence", "0.8", folder=place)
    assert done.returncode == 0, done.stderr
    return place


def bundled(place: Path, name: str, *options: str) -> dict[str, bytes]:
    done = certus("bundle", "run", "-o", name, *options, folder=place)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(place / name) as archive:
        return {each: archive.read(each) for each in archive.namelist()}


def test_bundles_are_equal_bit_for_bit(place: Path) -> None:
    options = ("--include-data", "--author", "A", "--purpose", "P: 1")
    files = bundled(place, "a.zip", *options)
    assert bundled(place, "b.zip", *options) == files
    assert (place / "a.zip").read_bytes() == (place / "b.zip").read_bytes()
    assert {"report.html", "MODEL_CARD.md", "README.md", "manifest.json"} < files.keys()
    content = json.loads(files["manifest.json"])
    digests = {name: sha256(part).hexdigest() for name, part in files.items() if name != "manifest.json"}
    assert content["files"] == digests
    assert content["environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert content["data"]["digests"]["weights"] == content["model"]["SHA-256 of the weights"]


@pytest.mark.parametrize("rows", [True, False])
def test_the_kernel_checks_a_bundle_in_an_empty_folder(place: Path, tmp_path: Path, rows: bool) -> None:
    """The command of the README, in a process of its own; with rows in a file of ours where none are."""
    name = f"{rows}.zip"
    files = bundled(place, name, "--no-report", *(["--include-data"] if rows else []))
    assert ("certificate/rows.safetensors" in files) == rows
    assert "report.html" not in files
    with zipfile.ZipFile(place / name) as archive:
        archive.extractall(tmp_path)
    (command,) = re.findall(r"^    python (-m certus\.kernel .*)$", files["README.md"].decode(), re.M)
    if not rows:
        other = bundled(place, "with.zip", "--no-report", "--include-data")
        (tmp_path / "ROWS.safetensors").write_bytes(other["certificate/rows.safetensors"])
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "numbers compared: proven" in done.stdout


def test_the_model_card_states_the_bounds(place: Path) -> None:
    """Its YAML is read by a parser of its own kind: every value is JSON."""
    card = bundled(place, "c.zip", "--no-report", "--purpose", "to try it")["MODEL_CARD.md"].decode()
    _, header, text = card.split("---\n", 2)
    metrics = {}
    for line in re.findall(r"- \{type: (.*), value: (.*), name: (.*)\}", header):
        name, value, evidence = map(json.loads, line)
        metrics[name] = value, evidence
    stored = Certificate.load(place / "run/certificate/certificate.json")
    assert metrics["worst error rate, rho 0.002"] == (
        pytest.approx(stored.error_bound(0.002), rel=1e-8),
        "proven",
    )
    assert metrics["worst recall of 1, rho 0.002"][0] == pytest.approx(stored.recall(1, 0.002).low, rel=1e-8)
    assert metrics["worst population loss, rho 0.002"][1] == "proven, confidence 0.8"
    assert "Purpose: to try it" in text
    assert header.startswith("library_name: certus\n")


def test_what_cannot_be_checked_is_not_bundled(place: Path, tmp_path: Path) -> None:
    for name in ("run", "data.npz", "net.safetensors"):
        copy: Any = shutil.copytree if (place / name).is_dir() else shutil.copy
        copy(place / name, tmp_path / name)
    folder = tmp_path / "run/certificate"
    witnesses = folder / "witnesses.safetensors"
    witnesses.write_bytes(witnesses.read_bytes()[:-8] + bytes(8))
    done = certus("bundle", "run", "-o", "x.zip", folder=tmp_path)
    assert done.returncode in (1, 2), done.stderr
    assert not (tmp_path / "x.zip").exists()
    shutil.rmtree(folder)
    refused(certus("bundle", "run", folder=tmp_path), "certus certify run")
    data = dict(np.load(tmp_path / "data.npz"))
    np.savez(tmp_path / "data.npz", **data | {"inputs": data["inputs"] + 1})
    refused(certus("bundle", "run", folder=tmp_path), "data")
