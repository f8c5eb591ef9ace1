"""``certus certify --shard`` and ``certus merge`` as a user meets them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from certus.runs import RunDirectory
from tests.certificates.small_run import make_run
from tests.cli.test_cli import certus, refused

ASK = ["--rho", "0.01", "--samples", "24", "--local-radii", "1", "--attack-steps", "1"]


@pytest.fixture(scope="module", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Pictures are tested elsewhere, and slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("certus.cli.certify_support.draw_certificate", lambda *_: False)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, certified in three shards."""
    place = tmp_path_factory.mktemp("sharded")
    make_run(place, 1.0, count=150)
    for number in (1, 2, 3):
        done = certus("certify", "run", *ASK, "--shard", f"{number}/3", "-o", f"part-{number}", folder=place)
        assert done.returncode == 0, done.stderr
        assert f"shard {number}/3 of" in " ".join(done.stdout.split())
    return place


def test_shards_are_merged_and_verified(folder: Path) -> None:
    shutil.copytree(folder / "part-1", folder / "whole")  # an earlier certificate, with its table
    done = certus("merge", "part-3", "part-1", "part-2", "-o", "whole", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "at most: proven" in " ".join(done.stdout.split())
    assert not (folder / "whole" / "samples.csv").exists()
    content = json.loads((folder / "whole" / "certificate.json").read_text())
    parts = [json.loads((folder / f"part-{number}" / "certificate.json").read_text()) for number in (1, 2, 3)]
    assert content["samples"] == sum(part["samples"] for part in parts) == 24
    assert content["evidence"] == "proven"
    proven = [cost for part in parts for cost in part["proven_error_cost"]]
    assert content["proven_error_cost"] == pytest.approx(proven, rel=1e-9)
    bracket = content["brackets"][0]
    assert bracket["loss_low"] <= bracket["loss_high"]
    done = certus("verify", "whole/certificate.json", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # At most 1% wider than one with refinement.
    done = certus("certify", "run", *ASK, "--json", "-o", "refined", folder=folder)
    assert done.returncode == 0, done.stderr
    refined = json.loads(done.stdout)["brackets"][0]
    assert refined["loss_high"] * (1 - 1e-9) <= bracket["loss_high"] <= refined["loss_high"] * 1.01


def test_a_missing_part_is_named(folder: Path) -> None:
    refused(certus("merge", "part-3", "part-1", "-o", "two", folder=folder), "2/3 is missing")
    refused(certus("merge", "part-1", "part-1", "-o", "two", folder=folder), "1/3 is given twice")
    assert not (folder / "two").exists()


def test_a_changed_part_is_not_merged(folder: Path) -> None:
    shutil.copytree(folder / "part-2", folder / "changed")
    path = folder / "changed" / "witnesses.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    done = certus("merge", "part-1", "changed", "part-3", "-o", "two", folder=folder)
    assert done.returncode in (1, 2)
    assert "changed" in done.stderr
    assert not (folder / "two").exists()


def test_shards_need_folders_of_their_own(folder: Path) -> None:
    ask = ("certify", "run", *ASK, "--shard")
    refused(certus(*ask, "1/3", folder=folder), "`--output` must be given with --shard")
    refused(certus(*ask, "4/3", "-o", "x", folder=folder), "`--shard` must be the number of a shard")
    refused(certus(*ask, "1/3", "--gamma-rounds", "2", "-o", "x", folder=folder), "--gamma-rounds")
    refused(certus(*ask, "1/3", "--smoothing", "1", "-o", "x", folder=folder), "--shard")


def test_torchrun_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(certus("certify", "run", *ASK, folder=folder), "use --jobs K")


def test_workers_and_cluster(folder: Path) -> None:
    refused(certus("certify", "run", *ASK, "--jobs", "0", folder=folder), "`--jobs` must be an integer other")
    done = certus("certify", "run", *ASK, "--cluster", "nonsense", folder=folder)
    refused(done, "`--cluster` must be the address of a Dask scheduler")
    assert RunDirectory.open(folder / "run").result is not None
