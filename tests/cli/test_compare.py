"""``certus compare`` and the cost of the attack wrm: every model meets the same samples and adversary."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from certus import WRM
from certus.attacks import evaluate
from certus.costs import SquaredSup
from certus.data import choose_rows
from certus.domains import Unbounded
from certus.inner import ProximalAscent
from certus.runs import RunDirectory
from certus.runs.loaded_run import open_run
from tests.cli.test_attack import read
from tests.cli.test_cli import QUICK, certus, refused

NETWORKS = """
from torch import nn

def elu():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ELU(), nn.Linear(16, 10))

def tanh():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    (folder / "two.py").write_text(NETWORKS)
    for options in (
        ["digits", "--gamma", "1", "--cost", "linf", "-o", "sup"],
        ["digits", "--method", "erm", "--model", "two.py:elu", "-o", "elu"],
        ["digits", "--method", "erm", "--model", "two.py:tanh", "-o", "tanh"],
        ["breast-cancer", "--method", "erm", "-o", "scaled"],
        ["breast-cancer", "--method", "erm", "--no-standardize", "-o", "raw"],
    ):
        done = certus("train", *QUICK, *options, folder=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("clip", [True, False])
def test_wrm_pays_the_cost_of_the_run(clip: bool, runs: Path) -> None:
    options = ["--attack", "wrm", "--gamma", "5", "--samples", "60", "--clip" if clip else "--no-clip"]
    (row,) = read(runs, "attack", "sup", *options)["rows"]
    assert row["cost"] == {"type": "SquaredSup"}
    trained = open_run(RunDirectory.open(runs / "sup"))
    domain = trained.data.domain if clip else Unbounded()
    maximizer = ProximalAscent(tolerance=1e-3, max_gradients=30)
    attack = WRM(5.0, cost=SquaredSup(), domain=domain, maximizer=maximizer)
    chosen = trained.data.test[choose_rows(len(trained.data.test), 60, seed=0)]
    found = evaluate(trained.loss.model, chosen, attack)
    assert isinstance(row["loss"], dict)
    assert row["loss"]["value"] == pytest.approx(found.loss.value, rel=1e-6)
    assert row["rho_test"] == pytest.approx(found.rho_test, rel=1e-6)


def test_the_table_says_what_was_done(runs: Path) -> None:
    options = ["--norm", "2", "--epsilon", "0.5", "--samples", "20"]
    shown = certus("attack", "sup", *options, folder=runs).stdout
    assert "of digits@test, seed 0; pgd, norm 2, epsilon 0.5, steps 15, step size 0.08333, clipped" in shown
    shown = certus("attack", "scaled", *options, folder=runs).stdout
    assert "not clipped, since the data have no bounds" in shown


def test_each_run_is_rebuilt_by_its_own_factory(runs: Path) -> None:
    options = ["--epsilon", "0", "--samples", "100"]
    models = ["--model", "two.py:elu", "--model", "two.py:tanh"]
    rows = read(runs, "compare", "elu", "tanh", *options, *models)["rows"]
    (alone,) = read(runs, "attack", "tanh", *options, "--model", "two.py:tanh")["rows"]
    assert rows[1]["error"] == alone["error"]
    refused(
        certus("attack", "tanh", *options, "--model", "two.py:elu", folder=runs),
        "`--model` must name the factory that the run was started with, tanh; got two.py:elu.",
    )


def test_inputs_on_other_scales_are_not_compared(runs: Path) -> None:
    refused(
        certus("compare", "scaled", "raw", "--epsilon", "0", folder=runs),
        "`RUNS` must have inputs scaled as those of scaled; got raw, which scales them differently.",
    )


def test_a_far_attack_still_writes_json(runs: Path) -> None:
    options = ["--norm", "2", "--epsilon", "1e20", "--no-clip", "--samples", "9"]
    (row,) = read(runs, "attack", "sup", *options)["rows"]
    assert row["rho_test"] == pytest.approx(1e40, rel=1e-3)


def test_rows_as_latex_and_csv(runs: Path) -> None:
    """The numbers of the JSON in CSV; in LaTeX the printed ones, with names that are not obeyed."""
    name = r"a_b&50% #1 $x^2~{y}\z"
    shutil.copytree(runs / "elu", runs / name)
    models = ["--model", "two.py:elu", "--model", "two.py:tanh"]
    ask = ["compare", "tanh", name, *models, "--epsilon", "0", "--epsilon", "0.1", "--samples", "40"]
    rows: list[dict[str, Any]] = read(runs, *ask)["rows"]
    done = certus(*ask, "-o", "new/table.csv", folder=runs)
    assert done.returncode == 0, done.stderr
    with (runs / "new/table.csv").open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    assert [line["run"] for line in lines] == ["tanh", "tanh", name, name]
    for line, row in zip(lines, rows, strict=True):
        assert line["epsilon"] == str(row["epsilon"])
        for part in ("error", "loss", "minus_first"):
            for key in ("value", "low", "high"):
                known = row[part]
                assert line[f"{part}_{key}"] == ("" if known is None else str(known[key]))
    done = certus(*ask, "-o", "table.tex", folder=runs)
    assert done.returncode == 0, done.stderr
    begin, *body, end = (runs / "table.tex").read_text().splitlines()
    width = begin.removeprefix(r"\begin{tabular}{").removesuffix("}")
    assert re.fullmatch("lr+", width)
    assert end == r"\end{tabular}"
    head, *cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]
        for line in body
        if line != r"\hline"
    ]
    assert head[0] == "run"
    assert {len(printed) for printed in (head, *cells)} == {len(width)}
    assert [_plain(printed[0]) for printed in cells] == [line["run"] for line in lines]
    for printed, expected in zip(cells, rows, strict=True):
        assert float(printed[head.index("error")]) == pytest.approx(expected["error"]["value"], abs=5e-4)
        said = printed[head.index("error minus first")].strip("$")
        gap = expected["minus_first"]
        assert said == "--" if gap is None else float(said) == pytest.approx(gap["value"], abs=5e-4)
    done = certus("attack", "elu", "--model", "two.py:elu", "--nearest", "-o", "x.tex", folder=runs)
    refused(done, "`--output` must be a JSON file")


def _plain(text: str) -> str:
    """What LaTeX prints for text without commands of its own; fails where a special sign is left."""
    for command, sign in ((r"\textasciitilde{}", "~"), (r"\textasciicircum{}", "^")):
        text = text.replace(command, sign)
    text = text.replace(r"\textbackslash{}", "\0")
    signs = re.sub(r"\\[&%$#_{}]", "", text)
    assert not set(signs) & set("\\&%$#_{}"), text
    return re.sub(r"\\([&%$#_{}])", r"\1", text).replace("\0", "\\")
