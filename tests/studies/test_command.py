"""``python -m studies`` as it is called: results on stdout, one-line errors on stderr, exit codes."""

from __future__ import annotations

import io
import json
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from certus.display.text import PlainConsole, PlainTable
from studies.__main__ import start
from studies.page import WRITTEN_BY
from studies.registry import STUDIES
from studies.study import Scale
from studies.workspace import Workspace
from tests.cli.test_cli import Done
from tests.display.test_text import whole_and_narrow
from tests.runs.kills import BeforeCalling, run


def study(*arguments: str) -> Done:
    """The command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["studies", *arguments])
        with pytest.raises(SystemExit) as left:
            start()
    assert isinstance(left.value.code, int)
    return Done(left.value.code, out.getvalue(), err.getvalue())


def say(*arguments: str) -> str:
    done = study(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(*arguments: str) -> str:
    done = study(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_list_says_what_there_is() -> None:
    listed = say()
    assert all(name in listed for name in STUDIES)
    rows = {row["name"]: row for row in json.loads(say("--json"))}
    assert rows["hardness"]["measured"] is None
    assert not rows["hardness"]["beyond"]
    group = listed.partition("beyond the paper")[2]
    assert all((f"\n{name} " in group) == row["beyond"] for name, row in rows.items())
    assert rows["hardness"]["parts_done"] == {"quick": 0, "full": 0}


def test_one_result_is_measured_shown_and_listed() -> None:
    """Off a terminal every part is told, on stderr."""
    done = study("hardness")
    assert "Maximising a ReLU network" in done.stdout
    assert "results/hardness/README.md" in done.stdout
    assert "% done" not in done.stdout
    told = done.stderr.splitlines()
    assert told[0] == "hardness: 4-variables-1-starts (0% done)"
    assert told[-1] == "hardness: drawing (100% done)"
    assert told[-2].endswith(" left)")
    assert len(told) == len(STUDIES["hardness"].parts(Scale.QUICK)) + 1
    rows = {row["name"]: row for row in json.loads(say("--json"))}
    assert rows["hardness"]["measured"] == "quick"
    assert rows["hardness"]["parts_done"]["quick"] == 8


def test_the_list_says_how_much_has_begun() -> None:
    chosen, workspace = STUDIES["hardness"], Workspace(Path("work"))
    parts = chosen.parts(Scale.FULL)
    for part in parts[:2]:
        workspace.store(chosen, Scale.FULL, part, {})
    (line,) = [line for line in say("--work", "work").splitlines() if line.startswith("hardness")]
    assert f"  2 of {len(parts)} parts  {chosen.title[:10]}" in line


def test_a_damaged_result_is_named_with_its_remedy() -> None:
    """It does not hide the others from the list."""
    path = Path("results/hardness/measured.json")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    (path.parent / "README.md").write_text(WRITTEN_BY)
    (line,) = [line for line in say().splitlines() if line.startswith("hardness")]
    assert "damaged" in line
    assert "has no sha256: remove results/hardness, and `python -m studies hardness`" in refuse("toy")
    path.write_text("null")
    assert "measured.json is corrupt: it is not a file of certus: remove re" in refuse("hardness")


def test_the_toy_data() -> None:
    """What it says of two seeds and two epochs may differ from the paper, but is said."""
    content = json.loads(say("toy", "--json"))["toy"]
    labels = [one["label"] for one in content["verdicts"]]
    assert labels == ["fig:toy"] * 3 + ["sec:toy", "section:examples"] + ["fig:loss-bound"] * 2
    for one in content["measured"]["certificate"]["bracket"]:
        assert 0 <= one["at_least"] <= one["at_most"]
    assert content["measured"]["elu"]["shown"]["seed"] in range(2)
    assert Path("results/toy/boundaries.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "`NAME` must be one of all, beyond, toy, "),
        (["toy", "--scale", "huge"], "`--scale` must be quick or full; got 'huge'"),
        (["toy", "-o", "file"], "`--output` must be a folder; got file"),
        (["-o", "file"], "`--output` must be a folder; got file"),
        (["--work", "file"], "`--work` must be a folder; got file"),
        (["toy", "-o", ""], "argument -o/--output: must be a path; got ''"),
        (["toy", "--work", "a\0b"], "argument --work: must be a path; got 'a\\x00b'"),
        (["toy", "--frob"], "unrecognized arguments: --frob"),
    ],
)
def test_refused(arguments: list[str], words: str) -> None:
    Path("file").write_text("")
    assert words in refuse(*arguments)


def test_the_list_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[PlainTable] = []
    plain = PlainConsole.print

    def watched(console: PlainConsole, *objects: object, **options: object) -> None:
        tables.extend(one for one in objects if isinstance(one, PlainTable))
        plain(console, *objects, **options)

    monkeypatch.setattr(PlainConsole, "print", watched)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("certus.cli.output.console._width", 80)
    said = say()
    for table in list(tables):
        assert whole_and_narrow(table) in "\n".join(line.rstrip() for line in said.splitlines())


def test_a_fault_of_ours_has_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CERTUS_DEBUG", raising=False)

    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("studies.command.list_studies", fail)
    done = study()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "studies: ZeroDivisionError: by zero (CERTUS_DEBUG=1 shows where)\n"


def test_interrupted(tmp_path: Path) -> None:
    """By a real signal, in a process of its own."""
    moment = BeforeCalling("studies.command:_with_bar")
    arguments = ["hardness", "-o", "results", "--work", "work"]
    assert run(arguments, tmp_path / "log", moment, signal.SIGINT, start) == 130
    kept = "work keeps the parts that are finished; run the same command to continue."
    assert (tmp_path / "log").read_text().splitlines()[-1] == f"studies: interrupted: {kept}"
