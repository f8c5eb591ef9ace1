"""``certus reproduce`` as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from certus.cli.app import app
from certus.errors import ArgumentError
from certus.reproduce.page import WRITTEN_BY
from certus.reproduce.reproduction import Extent
from certus.reproduce.reproductions import REPRODUCTIONS
from certus.reproduce.workshop import Workshop
from certus.storage.files import DamageError


def say(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["reproduce", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_says_what_there_is() -> None:
    listed = say()
    assert all(name in listed for name in REPRODUCTIONS)
    rows = {row["name"]: row for row in json.loads(say("--json"))}
    assert rows["hardness"]["measured"] is None
    assert not rows["hardness"]["beyond"]
    group = listed.partition("beyond the paper")[2]
    assert all((f"\n{name} " in group) == row["beyond"] for name, row in rows.items())
    assert rows["hardness"]["parts_kept"] == {"quick": 0, "paper": 0}


def test_one_result_is_measured_shown_and_listed() -> None:
    """Off a terminal every part is told, on stderr."""
    done = CliRunner().invoke(app, ["reproduce", "hardness"], catch_exceptions=False)
    assert "3-SAT becomes such a network" in done.stdout
    assert "results/hardness/README.md" in done.stdout
    assert "% done" not in done.stdout
    told = done.stderr.splitlines()
    assert told[0] == "hardness: 4-variables-1-starts (0% done)"
    assert told[-1] == "hardness: drawing (100% done)"
    assert told[-2].endswith(" left)")
    assert len(told) == len(REPRODUCTIONS["hardness"].parts(Extent.QUICK)) + 1
    rows = {row["name"]: row for row in json.loads(say("--json"))}
    assert rows["hardness"]["measured"] == "quick"
    assert rows["hardness"]["parts_kept"]["quick"] == 8


def test_the_list_says_how_much_has_begun() -> None:
    of, workshop = REPRODUCTIONS["hardness"], Workshop(Path("work"))
    parts = of.parts(Extent.PAPER)
    for part in parts[:2]:
        workshop.keep(of, Extent.PAPER, part, {})
    (line,) = [line for line in say("--work", "work").splitlines() if line.startswith("hardness")]
    assert f"  2 of {len(parts)} parts  {of.title[:10]}" in line


def test_a_damaged_result_is_named_with_its_remedy() -> None:
    """It does not hide the others from the list."""
    path = Path("results/hardness/measured.json")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (path.parent / "README.md").write_text(WRITTEN_BY)
    (line,) = [line for line in say().splitlines() if line.startswith("hardness")]
    assert "damaged" in line
    with pytest.raises(DamageError, match=r"has no sha256: remove results/hardness, and `certus reproduce h"):
        say("toy")
    path.write_text("null")
    with pytest.raises(DamageError, match=r"measured\.json is corrupt: it is no file of certus: remove re"):
        say("hardness")


def test_the_toy_data() -> None:
    """Trains six networks; what it says of a seed and three epochs may differ from the paper, but is said."""
    content = json.loads(say("toy", "--json"))["toy"]
    labels = [one["label"] for one in content["statements"]]
    assert labels == ["fig:toy"] * 3 + ["sec:toy", "section:examples"] + ["fig:loss-bound"] * 2
    for one in content["measured"]["certificate"]["bracket"]:
        assert 0 <= one["at_least"] <= one["at_most"]
    methods = content["measured"]["elu-0"]["methods"]
    assert all(found["test_error"] < 0.05 and 1 < found["mean_radius"] < 2 for found in methods.values())
    assert Path("results/toy/boundaries.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], r"`NAME` must be one of all, beyond, toy, .*; got 'nonsense'"),
        (["toy", "--scale", "huge"], r"`--scale` must be quick or paper; got 'huge'"),
        (["toy", "-o", "file"], r"`--output` must be a folder; got file"),
        (["-o", "file"], r"`--output` must be a folder; got file"),
        (["--work", "file"], r"`--work` must be a folder; got file"),
    ],
)
def test_refused(arguments: list[str], words: str) -> None:
    Path("file").write_text("")
    with pytest.raises(ArgumentError, match=words):
        say(*arguments)
