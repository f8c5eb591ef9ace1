"""``--samples N`` of a file that is sorted by label: never its head, and every statement says what it is
about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.test_cli import certus, refused

TEST = "a random {} of the 60 rows of npz:sorted.npz@test"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file whose test rows are sorted: 40 of label 0, then 20 of label 1, with outliers first."""
    folder = tmp_path_factory.mktemp("sorted")
    rng = np.random.default_rng(0)

    def rows(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return rng.normal(labels[:, None] * 2.0, 1.0, (len(labels), 2))

    labels, test = rng.integers(0, 2, 60), np.repeat([0, 1], [40, 20])
    inputs = rows(test)
    inputs[:20] += 6.0
    np.savez(folder / "sorted.npz", x=rows(labels), y=labels, test_x=inputs, test_y=test)
    done = certus(
        *("train", "npz:sorted.npz", "--epochs", "2", "--model", "mlp:4:elu", "--gamma", "2", "-o", "run"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder


def read(place: Path, *arguments: str) -> Any:
    done = certus(*arguments, "--json", folder=place)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


QUICK = [
    "--rho",
    "0.01",
    "--local-radii",
    "0",
    "--gamma-rounds",
    "0",
    "--attack-steps",
    "0",
    "--samples",
    "30",
]


def test_certify_stratifies_and_says_so(place: Path) -> None:
    found = {seed: read(place, "certify", "run", *QUICK, "--seed", seed) for seed in ("0", "1")}
    for seed, content in found.items():
        assert content["about"]["rows"] == {
            "source": "npz:sorted.npz@test",
            "count": 30,
            "total": 60,
            "stratified": True,
            "seed": int(seed),
            "words": f"{TEST.format(30)}, stratified by label, seed {seed}",
        }
    assert found["0"]["about"]["digests"]["samples"] != found["1"]["about"]["digests"]["samples"]
    every = read(place, "certify", "run", *QUICK[:-2])
    assert every["about"]["rows"]["words"] == "all 60 rows of npz:sorted.npz@test"
    # The 20 outliers come first in the file: its head of 30 would be far from the rest.
    for content in found.values():
        assert content["clean_loss"][0] == pytest.approx(every["clean_loss"][0], rel=0.3)


def test_a_confidence_takes_a_plain_random_subset(place: Path) -> None:
    ask = ["certify", "run", *QUICK, "--confidence", "0.9", "--seed", "3"]
    done = certus(*ask, folder=place)
    assert f"About {TEST.format(30)}, seed 3." in " ".join(done.stdout.split())
    assert "in the order of seed 3." in " ".join(done.stdout.split())
    file = place / "run/certificate/certificate.json"
    content = json.loads(file.read_text())
    assert not content["about"]["rows"]["stratified"]
    assert content["population"]["seed"] == 3
    assert "30 independent draws, taken in the random order of seed 3" in content["population"]["statement"]
    assert certus("verify", str(file), folder=place).returncode == 0
    for path in (("population",), ("about", "settings")):  # a seed that was not used
        forged = json.loads(file.read_text())
        part = forged
        for name in path:
            part = part[name]
        part["seed"] = 4
        (place / "forged.json").write_text(json.dumps(forged))
        assert certus("verify", "forged.json", "--recompute", folder=place).returncode != 0


def test_a_shift_compares_random_subsets(place: Path) -> None:
    """Of a file with itself, and with its training rows: label shares as in the whole, not as in the head."""
    same = read(place, "distance", *["npz:sorted.npz@test"] * 2, "--samples", "30")
    assert same["distance"]["high"] == pytest.approx(0, abs=1e-9)
    assert 0 < same["chance"]["high"] < 60  # labels stay; both halves have the same shares
    ask = ["distance", "npz:sorted.npz@test", "npz:sorted.npz@train", "--samples", "30", "--label-cost", "1"]
    some, every = read(place, *ask), read(place, *ask[:3], *ask[-2:])
    assert some["rows"][0]["words"] == f"{TEST.format(30)}, stratified by label, seed 0"
    assert some["rows"][1]["words"].startswith("a random 30 of the 48 rows of npz:sorted.npz@train")
    assert some["distance"]["labels"] == pytest.approx(every["distance"]["labels"], abs=2 / 30)
    done = certus(*ask, folder=place)
    words = f"{TEST.format(30)}, stratified by label, seed 0, and a random 30 of the 48"
    assert words in done.stdout.splitlines()[0]
    few = ["--samples", "6", "--label-cost", "1"]
    bracket = read(place, *ask[:3], *few, "--run", "run")["bracket"]
    alone = read(place, "certify", "run", "--rho", str(bracket["rho"]), *few)
    assert bracket["loss_high"] == pytest.approx(alone["brackets"][0]["loss_high"])  # on the same rows


def test_attacks_and_bounds_choose_by_the_seed(place: Path) -> None:
    attacked = read(place, "attack", "run", "--epsilon", "0", "--samples", "30", "--seed", "2")
    assert attacked["chosen"] == f"{TEST.format(30)}, seed 2"
    done = certus("attack", "run", "--nearest", "--samples", "5", folder=place)
    assert f"{TEST.format(5)}, seed 0; norm inf" in " ".join(done.stdout.split())
    bound = read(place, "smoothness", "run", "--samples", "9", "--seed", "2")["sampled"]["rows"]
    assert bound["words"] == f"{TEST.format(9)}, stratified by label, seed 2"
    refused(
        certus("certify", "run", *QUICK, "--seed", "-1", folder=place),
        "`--seed` must be a whole number, at least 0",
    )
