"""``certus runs`` beside damage, and where a terminal knows few letters: no run hides another."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from certus.cli.app import main
from certus.storage.write import add_checksum
from tests.cli.test_cli import certus
from tests.runs.test_checksums import folder, made

__all__ = ["folder", "made"]


def edit(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        text = (run / name).read_text()
        (run / name).write_text(change(text))
        assert (run / name).read_text() != text

    return damage


def resealed(path: str, value: object) -> Callable[[Path], None]:
    """Another value, under a digest that fits."""

    def damage(run: Path) -> None:
        content = json.loads((run / "result.json").read_text())
        outer, inner = path.split(".")
        content[outer][inner] = value
        (run / "result.json").write_text(json.dumps(add_checksum(content)))

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no-settings": edit("run.json", lambda text: "[]"),
    "half": edit("run.json", lambda text: text[: len(text) // 2]),
    "edited": edit("run.json", lambda text: text.replace('"mlp:3:elu"', '"mlp:4:elu"')),
    "version": edit("run.json", lambda text: text.replace('"schema_version": 5', '"schema_version": 9')),
    "text": resealed("test.loss", "x"),
    "truth": resealed("robustness.gamma", True),
    "list": resealed("robustness.rho_hat", [1]),
    "history": edit("metrics.jsonl", lambda text: "null\n" + text),
}


def test_healthy_runs_and_one_line_for_each_damaged_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("certus.cli.output.console._width", 120)
    for name, damage in DAMAGES.items():
        shutil.copytree(folder / "other", folder / name)
        damage(folder / name)
    done = certus("runs", ".", folder=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["run", "data", "model"]
    assert [line.split()[0] for line in lines if line.endswith(" complete")] == ["other", "run"]
    for name in DAMAGES:
        assert sum(line.startswith(f"{name}: unreadable: ") for line in lines) == 1, name
    assert lines[3].startswith("rho_hat: ")
    assert len(lines) == 4 + len(DAMAGES)
    told = {row["run"]: row for row in json.loads(certus("runs", ".", "--json", folder=folder).stdout)}
    assert told.keys() == {"other", "run", *DAMAGES}
    assert all(told[name]["state"].startswith("unreadable: ") for name in DAMAGES)
    assert told["run"]["state"] == "complete"
    assert told["run"]["epochs"] == "2/2"


def test_a_narrow_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What all runs have in common is said below the table, and so is what the numbers are."""
    monkeypatch.setattr("certus.cli.output.console._width", 60)
    done = certus("runs", ".", folder=folder)
    head, *rows, common, rho = done.stdout.splitlines()
    assert head.split() == ["run", "test", "accuracy", "gamma", "rho_hat"]
    assert [row.split()[0] for row in rows] == ["other", "run"]
    shared = "data csv:a.csv, model mlp:3:elu, method wrm, epochs 2/2, state complete"
    assert common == f"The same in all runs: {shared}."
    assert rho.startswith("rho_hat: ")
    shutil.rmtree(folder / "other")
    alone = certus("runs", ".", folder=folder).stdout.splitlines()
    assert alone[0] == "run"
    assert alone[1] == "  data csv:a.csv, model mlp:3:elu, method wrm, epochs 2/2,"


def test_a_terminal_that_knows_few_letters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What latin-1 lacks is spelled: ρ in the name of a run, the dash for what was not measured."""
    shutil.move(folder / "run", folder / "ρ-größe")
    (folder / "other" / "result.json").unlink()
    shutil.copytree(folder / "other", folder / "☃")
    (folder / "☃" / "run.json").write_text("{")
    written = io.BytesIO()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("certus.cli.output.console._width", 120)
    monkeypatch.setattr(sys, "argv", ["certus", "runs", "."])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    with pytest.raises(SystemExit, match="0"):
        main()
    lines = written.getvalue().decode("latin-1").splitlines()
    assert [line for line in lines if line.startswith("rho-größe ")]
    [other] = [line for line in lines if line.startswith("other ")]
    assert other.split()[-4:] == ["-", "-", "-", "incomplete"]
    [snow] = [line for line in lines if line.startswith("\\u2603: unreadable")]
    assert "is corrupt: it is not a JSON file" in snow
