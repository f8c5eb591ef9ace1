"""``certus attack``, ``certus compare`` and training by attacks, as a user meets them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from certus.attacks import PGD, evaluate, fair_epsilon, minimum_norm_attack
from certus.data import choose_rows
from certus.datasets import digits
from certus.display.canvas import COLOURS
from certus.runs import RunDirectory
from certus.runs.loaded_run import open_run
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.storage.write import add_checksum
from certus.training import Callback, TrainingState
from tests.cli.test_cli import QUICK, certus, refused
from tests.pictures import line_of, pixels_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    for options in (
        ["digits", "--gamma", "1", "-o", "wrm"],
        ["digits", "--method", "erm", "-o", "erm"],
        ["diabetes", "--gamma", "1", "-o", "numbers"],
    ):
        done = certus("train", *options, *QUICK, folder=folder)
        assert done.returncode == 0, done.stderr
    return folder


def read(folder: Path, *arguments: str) -> dict[str, list[dict[str, object]]]:
    """The JSON on stdout, which must be JSON to the letter."""
    done = certus(*arguments, "--json", folder=folder)
    assert done.returncode == 0, done.stderr

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    content: dict[str, list[dict[str, object]]] = json.loads(done.stdout, parse_constant=refuse)
    return content


def test_a_sweep_is_what_the_library_finds(runs: Path) -> None:
    options = ["--attack", "pgd", "--attack", "fgsm", "--epsilon", "0.2", "--epsilon", "0.05", "--seed", "3"]
    rows = read(runs, "attack", "wrm", *options)["rows"]
    assert [(row["attack"], row["epsilon"]) for row in rows] == [
        *(("pgd", 0.05), ("pgd", 0.2), ("fgsm", 0.05), ("fgsm", 0.2), ("worst", 0.05), ("worst", 0.2))
    ]
    trained = open_run(RunDirectory.open(runs / "wrm"))
    attack = PGD(0.2, domain=trained.data.domain)
    found = evaluate(trained.loss.model, trained.data.test, attack, seed=3).error
    assert found is not None
    assert rows[1]["error"] == {"value": found.value, "low": found.low, "high": found.high}
    assert rows[1]["step_size"] == pytest.approx(2.5 * 0.2 / 15)
    assert {row["evidence"] for row in rows} == {"attained"}
    table = certus("attack", "wrm", *options, folder=runs).stdout
    assert f"{found.value:.3f}" in table
    assert "Attained" in table


def test_files_and_pictures(runs: Path) -> None:
    options = ["--norm", "2", "--epsilon", "0", "--epsilon", "0.5", "--no-clip", "--samples", "50"]
    done = certus("attack", "wrm", *options, "--plot", "a/sweep.svg", "-o", "sweep.json", folder=runs)
    assert done.returncode == 0, done.stderr
    picture = (runs / "a/sweep.svg").read_text()  # which has every text as a comment, too
    assert "95% intervals -->" in picture
    assert picture.count("norm 2") == 1  # in the title of the whole, not again above its one panel
    saved = json.loads((runs / "sweep.json").read_text())
    assert [row["samples"] for row in saved["rows"]] == [50, 50]
    assert [row["clipped"] for row in saved["rows"]] == [False, False]
    wrong = certus("attack", "wrm", *options, "--plot", "sweep.nonsense", folder=runs)
    refused(wrong, "Cannot draw sweep.nonsense")


def test_wrm_as_an_attack_and_regression(runs: Path) -> None:
    rows = read(runs, "attack", "numbers", "--attack", "wrm", "--gamma", "50", "--gamma", "100")["rows"]
    assert [row["gamma"] for row in rows] == [100, 50]
    assert rows[0]["error"] is None
    moved = [row["rho_test"] for row in rows]
    assert isinstance(moved[0], float)
    assert isinstance(moved[1], float)
    assert 0 < moved[0] < moved[1]
    assert certus("attack", "numbers", "--epsilon", "0.1", folder=runs).returncode == 0


def test_nearest_errors(runs: Path) -> None:
    distances = read(runs, "attack", "wrm", "--nearest", "--norm", "2", "--samples", "30")["distances"]
    trained = open_run(RunDirectory.open(runs / "wrm"))
    data = trained.data.test[choose_rows(len(trained.data.test), 30, seed=0)]
    found = minimum_norm_attack(trained.loss, data.inputs, data.targets, domain=trained.data.domain)
    expected = [None if math.isinf(value) else value for value in found.distance.tolist()]
    assert distances == expected
    table = certus("attack", "wrm", "--nearest", "--samples", "30", folder=runs).stdout
    assert "nearest error within" in table
    assert "Attained" in table


def test_fair_budgets(runs: Path) -> None:
    """eqn:fgm-fair is √ρ̂ as the run has it; eq:inf-from-2 is measured."""
    result = json.loads((runs / "wrm/result.json").read_text())
    row = read(runs, "attack", "erm", "--norm", "2", "--epsilon", "from:wrm")["rows"][0]
    assert row["epsilon"] == pytest.approx(math.sqrt(result["robustness"]["rho_hat"]))
    row = read(runs, "attack", "erm", "--epsilon", "from:wrm", "--samples", "20")["rows"][0]
    trained = open_run(RunDirectory.open(runs / "wrm"))
    expected = fair_epsilon(trained.wrm, trained.loss, trained.data.train, math.inf)
    assert row["epsilon"] == pytest.approx(expected)
    relative = read(runs, "attack", "erm", "--epsilon", "0.1", "--relative", "--samples", "20")["rows"][0]
    length = float(digits().train.inputs.flatten(1).amax(1).mean())
    assert relative["epsilon"] == pytest.approx(0.1 * length)


def test_comparison(runs: Path, drawn: list[Figure]) -> None:
    options = ["--epsilon", "0", "--epsilon", "0.1", "--samples", "100"]
    rows = read(runs, "compare", "wrm", "erm", *options)["rows"]
    assert [row["run"] for row in rows] == ["wrm", "wrm", "erm", "erm"]
    assert [row["minus_first"] is None for row in rows] == [True, True, False, False]
    for mine, first in zip(rows[2:], rows[:2], strict=True):
        gap, one, other = mine["minus_first"], mine["error"], first["error"]
        assert isinstance(gap, dict)
        assert isinstance(one, dict)
        assert isinstance(other, dict)
        assert gap["value"] == pytest.approx(one["value"] - other["value"])
        assert gap["low"] <= gap["value"] <= gap["high"]
    done = certus("compare", "wrm", "erm", *options, "--plot", "compare.png", folder=runs)
    assert "Differences are to wrm, paired" in done.stdout
    (axes,) = drawn[-1].axes  # after a small one that tries the format
    for name in ("wrm", "erm"):
        values = [row["error"]["value"] for row in rows if row["run"] == name]  # type: ignore[index]
        assert line_of(axes, name) == ([0.0, 0.1], values)
    assert pixels_of(runs / "compare.png")[COLOURS[0]] > 10


@pytest.mark.parametrize("method", ["fgsm", "bim", "pgd"])
def test_training_by_attacks(method: str, runs: Path) -> None:
    options = ["--method", method, "--norm", "inf", "--epsilon", "0.1", "--json"]
    options += [] if method == "fgsm" else ["--steps", "3"]
    done = certus("train", "digits", *QUICK, *options, "-o", method, folder=runs)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["settings"]["epsilon"] == 0.1
    expected = None if method == "fgsm" else pytest.approx(2.5 * 0.1 / 3)
    assert printed["settings"]["step_size"] == expected
    assert printed["result"]["robustness"] is None
    assert 0 < printed["history"][0]["rho_running"] <= 64 * 0.1**2 * 1.001


def test_training_with_a_fair_budget(runs: Path) -> None:
    options = ["--method", "pgd", "--norm", "2", "--epsilon", "from:wrm"]
    options += ["--steps", "2", "--step-size", "0.3"]
    done = certus("train", "digits", *QUICK, *options, "-o", "fair", folder=runs)
    assert done.returncode == 0, done.stderr
    assert "that run's wrm moves its training data (estimated)" in " ".join(done.stderr.split())
    about = json.loads((runs / "fair/run.json").read_text())["settings"]
    result = json.loads((runs / "wrm/result.json").read_text())
    assert about["epsilon"] == pytest.approx(math.sqrt(result["robustness"]["rho_hat"]))
    assert (about["norm"], about["step_size"]) == ("2", 0.3)


class Stop(Callback):
    """A crash after some steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step_end(self, state: TrainingState) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("steps", [5, 12])
def test_a_run_of_pgm_resumes_bit_for_bit(steps: int, tmp_path: Path) -> None:
    """Random starts come from torch's generator, which is seeded at every step."""
    settings = Settings(
        data="digits", model="mlp:8:elu", method="pgd", norm="inf", epsilon=0.1, steps=2, epochs=2
    )
    whole = start_run(tmp_path / "whole", settings, digits())
    train_run(whole)
    parts = start_run(tmp_path / "parts", settings, digits())
    with pytest.raises(KeyboardInterrupt):
        train_run(parts, callbacks=[Stop(steps)])
    train_run(parts)
    ours, theirs = parts.weights(), whole.weights()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


REFUSED = {
    "attack": (["attack", "wrm", "--attack", "cw", "--epsilon", "1"], "be one of fgsm, bim, pgd, wrm"),
    "worst": (["attack", "wrm", "--attack", "worst", "--epsilon", "1"], "be one of fgsm, bim, pgd, wrm"),
    "no epsilon": (["attack", "erm"], "`--epsilon` must be given for erm"),
    "no gamma": (["attack", "wrm", "--attack", "wrm"], "`--gamma` must be given for wrm"),
    "epsilon": (
        ["attack", "wrm", "--epsilon", "far"],
        "`--epsilon` must be a number, or from:RUN; got 'far'.",
    ),
    "negative": (["attack", "wrm", "--epsilon", "-1"], "`--epsilon` must be finite and not negative"),
    "norm": (
        ["attack", "wrm", "--norm", "3", "--epsilon", "1"],
        "`--norm` must be one of 1, 2, inf; got '3'.",
    ),
    "steps": (["attack", "wrm", "--steps", "0", "--epsilon", "1"], "`--steps` must be a whole number"),
    "samples": (
        ["attack", "wrm", "--samples", "0", "--epsilon", "1"],
        "`--samples` must be at least 2, for intervals; got 0.",
    ),
    "one sample": (["attack", "wrm", "--samples", "1", "--epsilon", "1"], "for intervals; got 1."),
    "no run": (["attack", "nothing", "--epsilon", "1"], "nothing is not a run directory"),
    "budget of erm": (["attack", "wrm", "--epsilon", "from:erm"], "`erm` must be a run of wrm"),
    "regression": (["attack", "numbers", "--nearest"], "`targets` must be (batch,) int64 labels"),
    "single": (["compare", "wrm", "--epsilon", "1"], "`RUNS` must be two or more; got wrm."),
    "twice": (["compare", "wrm", "wrm", "--epsilon", "1"], "named once each; got wrm, wrm."),
    "gamma of pgd": (
        ["attack", "wrm", "--epsilon", "1", "--gamma", "1"],
        "`--gamma` must be left out for pgd",
    ),
    "epsilon of wrm": (
        ["attack", "wrm", "--attack", "wrm", "--gamma", "1", "--epsilon", "1"],
        "`--epsilon` must be left out for wrm",
    ),
    "step of fgsm": (
        ["attack", "wrm", "--attack", "fgsm", "--epsilon", "1", "--step-size", "-1"],
        "`--step-size` must be left out for fgsm: it is for bim, pgd; got -1.0.",
    ),
    "starts of bim": (
        ["attack", "wrm", "--attack", "bim", "--epsilon", "1", "--restarts", "5"],
        "`--restarts` must be left out for bim: it is for pgd; got 5.",
    ),
    "no steps at all": (
        ["attack", "wrm", "--epsilon", "0", "--steps", "0"],
        "`--steps` must be a whole number",
    ),
    "relative budget": (
        ["attack", "wrm", "--norm", "2", "--epsilon", "from:wrm", "--relative"],
        "`--relative` must be left out where epsilon comes from a run",
    ),
    "budget of other data": (
        ["attack", "wrm", "--norm", "2", "--epsilon", "from:numbers"],
        "`--epsilon` must come from a run on the same data, digits; got from:numbers, which is on diabetes.",
    ),
    "budget of nothing": (["attack", "wrm", "--epsilon", "from:"], "`--epsilon` must name a run after from:"),
    "nearest step": (["attack", "wrm", "--nearest", "--step-size", "1"], "be left out with --nearest"),
    "nearest at a radius": (["attack", "wrm", "--nearest", "--epsilon", "1"], "be left out with --nearest"),
    "other data": (
        ["compare", "wrm", "numbers", "--epsilon", "1"],
        "`RUNS` must have the same test samples, to be compared; got wrm with",
    ),
    "train norm": (
        ["train", "digits", "--method", "pgd", "--norm", "3", "--epsilon", "1"],
        "`--norm` must be",
    ),
    "train epsilon": (["train", "digits", "--method", "pgd"], "Give `--epsilon` and `--norm` for pgd"),
    "train gamma": (
        ["train", "digits", "--method", "pgd", "--epsilon", "1", "--gamma", "1"],
        "`--gamma` must be left out for pgd: it is for wrm; got 1.0.",
    ),
    "train wrm": (
        ["train", "digits", "--gamma", "1", "--epsilon", "1"],
        "`--epsilon` must be left out for wrm",
    ),
    "train steps": (
        ["train", "digits", "--method", "fgsm", "--epsilon", "1", "--steps", "7"],
        "`--steps` must be left out for fgsm: it is for bim, pgd; got 7.",
    ),
    "train step": (
        ["train", "digits", "--method", "fgsm", "--epsilon", "1", "--step-size", "1"],
        "`--step-size` must be left out for fgsm: it is for bim, pgd; got 1.0.",
    ),
    "train step size": (
        ["train", "digits", "--method", "pgd", "--epsilon", "1", "--step-size", "0"],
        "`--step-size` must be positive and finite; got 0.0.",
    ),
    "train cost": (
        ["train", "digits", "--method", "pgd", "--epsilon", "1", "--cost", "linf"],
        "`--cost` must be left out for pgd: it is for wrm; got linf.",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(arguments: list[str], message: str, runs: Path) -> None:
    refused(certus(*arguments, folder=runs), message)


def test_damaged_runs(runs: Path) -> None:
    made = certus("train", "digits", *QUICK, "--method", "erm", "-o", "hurt", folder=runs)
    assert made.returncode == 0, made.stderr
    run, options = runs / "hurt", ["attack", "hurt", "--epsilon", "1"]
    result, about = (run / "result.json").read_text(), (run / "run.json").read_text()
    (run / "result.json").unlink()
    refused(certus(*options, folder=runs), "hurt is incomplete; `certus resume hurt` continues it")
    (run / "result.json").write_text(result.replace('"robustness": null', '"robustness": {"gamma": "x"}'))
    refused(certus(*options, folder=runs), "result.json is corrupt: its content does not have the sha256")
    (run / "result.json").write_text(result)
    content = json.loads(about)
    (run / "run.json").write_text(json.dumps(add_checksum(content | {"data_sha256": "0" * 64})))
    refused(certus(*options, folder=runs), "was started with other data")
    other = {"settings": content["settings"] | {"model": "mlp:9:elu"}}
    (run / "run.json").write_text(json.dumps(add_checksum(content | other)))
    refused(certus(*options, folder=runs), "hurt is corrupt: its result does not fit")
