"""Commands that are given a run and nothing else: they take its own ρ, and say so."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_cli import certus, refused

ROOT = Path(__file__).parents[2]
QUICK = ("--epochs", "1", "--model", "mlp:4:elu", "--batch-size", "32")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs by ρ, by γ, by pgd and without any, on a small table of numbers."""
    folder, draws = tmp_path_factory.mktemp("defaults"), np.random.default_rng(0)
    points = draws.normal(size=(60, 2))
    np.savez(folder / "data.npz", inputs=points, targets=(points[:, 0] > 0).astype(np.int64))
    methods = {
        "asked": ("--rho", "0.04"),
        "measured": ("--gamma", "2"),
        "sup": ("--rho", "0.04", "--cost", "linf"),
        "attacked": ("--method", "pgd", "--norm", "2", "--epsilon", "0.3"),
        "plain": ("--method", "erm"),
    }
    for name, options in methods.items():
        done = certus("train", "npz:data.npz", *QUICK, *options, "-o", name, folder=folder)
        assert done.returncode == 0, done.stderr
    return folder


def rho_hat(place: Path, run: str) -> float:
    return float(json.loads((place / run / "result.json").read_text())["robustness"]["rho_hat"])


def test_certify_takes_the_rho_of_the_run(place: Path) -> None:
    for run, rho in (("asked", 0.04), ("sup", 0.04), ("measured", rho_hat(place, "measured"))):
        done = certus("certify", run, "--json", folder=place)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rhos"] == [rho]
        assert "by default" in done.stderr
        assert f"{rho:.4g}" in done.stderr
    for run in ("plain", "attacked"):
        refused(certus("certify", run, folder=place), "`--rho` or `--epsilon` must be given")
    done = certus("certify", "asked", "--rho", "0.01", folder=place)
    assert "by default" not in done.stderr


def test_attack_takes_the_root_in_the_norm_of_the_run(place: Path) -> None:
    expected = {
        "asked": ("2", 0.2),
        "sup": ("inf", 0.2),
        "measured": ("2", math.sqrt(rho_hat(place, "measured"))),
        "attacked": ("2", 0.3),
    }
    for run, (norm, epsilon) in expected.items():
        done = certus("attack", run, "--json", folder=place)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads(done.stdout)["rows"]
        assert (row["norm"], row["epsilon"]) == (norm, pytest.approx(epsilon))
        assert "by default" in done.stderr
    refused(certus("attack", "plain", folder=place), "`--epsilon` must be given")
    refused(certus("attack", "asked", "--relative", folder=place), "`--relative` must be left out")


def test_in_another_norm_the_attack_moves_as_far_as_the_run(place: Path) -> None:
    rows = []
    for options in (("--norm", "inf"), ("--norm", "inf", "--epsilon", "from:asked")):
        done = certus("attack", "asked", *options, "--json", folder=place)
        assert done.returncode == 0, done.stderr
        rows.append(json.loads(done.stdout)["rows"][0])
    assert rows[0]["epsilon"] == pytest.approx(rows[1]["epsilon"])


@pytest.mark.soak
@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_commands_run_as_typed(page: str, tmp_path: Path) -> None:
    """``certus train digits``, then the others with the folder that it names."""
    (sentence,) = re.findall(
        r"`certus train digits`, then .*?with\s+the folder", (ROOT / page).read_text(), re.S
    )
    first, *others = re.findall(r"`(certus [a-z ]+)`", sentence)
    assert len(others) >= 2
    done = certus(*first.split()[1:], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = re.findall(r"Run directory: (\S+)", done.stdout)
    for command in others:
        done = certus(*command.split()[1:], run, folder=tmp_path)
        assert done.returncode == 0, done.stderr
