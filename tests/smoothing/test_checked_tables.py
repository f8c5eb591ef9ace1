"""The kernel checks a stored certificate by smoothing from its table; what does not follow is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from certus import Evidence
from certus.errors import VerificationError
from certus.smoothing import SmoothedCertificate, certify_smoothed
from certus.smoothing.certificate import table_tensors
from certus.storage.files import CorruptFileError, RunError
from certus.storage.tensors import digest, load_tensors, save_tensors
from certus.storage.write import add_checksum


@pytest.fixture(scope="module")
def certificate() -> SmoothedCertificate:
    inputs = torch.linspace(-2, 2, 90)[:, None]

    def scores(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.concatenate([-x, x], 1)

    asked: dict[str, Any] = {"rho": (0.001, 0.01), "sigma": 0.25, "draws": 12, "votes": 9, "attack_steps": 0}
    return certify_smoothed(scores, (inputs, (inputs[:, 0] > 0).long()), clip=2.0, abstain=None, **asked)


@pytest.fixture
def file(certificate: SmoothedCertificate, tmp_path: Path) -> Path:
    certificate.save(tmp_path / "smoothing.json")
    return tmp_path / "smoothing.json"


def test_loaded_bounds_are_stated_until_checked(certificate: SmoothedCertificate, file: Path) -> None:
    assert certificate.evidence is Evidence.PROVEN
    read = SmoothedCertificate.load(file)
    assert (read, read.evidence) == (certificate, Evidence.STATED)
    for words in (read.statement, repr(read), repr(read.claim)):
        assert "the counts or losses of this model in exact Gaussian noise" in words
        assert "the samples are independent draws" in words
    checked = read.verify()
    assert (checked, checked.evidence) == (certificate, Evidence.PROVEN)
    read.save(file.with_name("again.json"))
    assert SmoothedCertificate.load(file.with_name("again.json")).verify().evidence is Evidence.PROVEN


@pytest.mark.parametrize("change", [{"confidence": 0.99}, {"sigma": 0.5}, {"samples": 500}, {"votes": 1}])
def test_a_certificate_that_was_altered_is_stated(
    certificate: SmoothedCertificate, change: dict[str, Any]
) -> None:
    altered = replace(certificate, **change)
    assert altered.evidence is Evidence.STATED
    assert replace(certificate, about={"run": "x"}).evidence is Evidence.PROVEN
    with pytest.raises(VerificationError):
        altered.verify()


def forge(file: Path, factor: float) -> None:
    """Change every upper side, and all that follows from it, digests included."""
    read = SmoothedCertificate.load(file)
    quantities = tuple(
        replace(one, means={gamma: factor * mean for gamma, mean in one.means.items()}, start=0.0, moves=())
        for one in read.quantities
    )
    forged = replace(read, quantities=quantities).as_json() | {"evidence": "proven"}
    file.write_text(json.dumps(add_checksum(forged)))


@pytest.mark.parametrize("factor", [0.5, 1 - 1e-6, 1.01])
def test_a_forged_file_is_refused(file: Path, factor: float) -> None:
    forge(file, factor)
    forged = SmoothedCertificate.load(file)
    assert forged.evidence is Evidence.STATED
    with pytest.raises(VerificationError, match=r"the kernel proves other numbers: quantities\[0\]"):
        forged.verify()


@pytest.mark.parametrize(
    ("name", "column", "factor"),
    [
        ("error.designs", 3, 0.5),
        ("vote.designs", 1, 2.0),
        ("error.coefficients", None, 0.5),
        ("loss.edges", None, -1.0),
    ],
)
def test_a_forged_table_is_refused(file: Path, name: str, column: int | None, factor: float) -> None:
    """Claims too small, shares of more than δ, coefficients that do not dominate, cells that fall."""
    read, place = SmoothedCertificate.load(file), file.with_suffix(".safetensors")
    tensors, _ = load_tensors(place)
    if column is None:
        tensors[name] = tensors[name] * factor
    else:
        tensors[name][:, column] *= factor
    save_tensors(place, tensors)
    with pytest.raises(CorruptFileError, match="not the table that was written"):
        read.verify()
    with pytest.raises(VerificationError):
        replace(read, table=digest(tensors)).verify()


def test_a_table_that_is_absent_or_malformed(certificate: SmoothedCertificate, file: Path) -> None:
    read, place = SmoothedCertificate.load(file), file.with_suffix(".safetensors")
    assert certificate.tables is not None
    tensors = table_tensors(certificate.tables)
    assert tensors["errors"].dtype == torch.int16
    for name in tensors:
        rest = {other: tensor for other, tensor in tensors.items() if other != name}
        save_tensors(place, rest)
        with pytest.raises(CorruptFileError):
            replace(read, table=digest(rest)).verify()
    many = tensors | {"error.designs": tensors["error.designs"] + 1e12}
    save_tensors(place, many)
    with pytest.raises(CorruptFileError, match="grids of at most"):
        replace(read, table=digest(many)).verify()
    place.unlink()
    with pytest.raises(RunError):
        read.verify()
