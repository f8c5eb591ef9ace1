"""Every script teaches, refuses what it does not know, and never shrinks a committed result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import ROOT, Script

SCRIPTS = sorted(f"benchmarks.{file.stem}" for file in (ROOT / "benchmarks").glob("[!_]*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_teaches_and_unknown_options_are_refused(
    name: str, script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script(name, "--help")
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert f"usage: python -m {name} " in told
    assert "--output PATH" in told
    with pytest.raises(SystemExit) as ended:
        script(name, "--no-such-option")
    assert ended.value.code == 2
    assert "unrecognized arguments: --no-such-option" in capsys.readouterr().err


def test_other_options_than_the_defaults_spare_the_committed_result(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = (ROOT / "benchmarks/results/inner.json").read_bytes()
    with pytest.raises(SystemExit) as ended:
        script("benchmarks.inner", "--repeats", 1, "--samples", 2)
    assert ended.value.code == 2
    assert "--output must be given with --samples, --repeats: " in capsys.readouterr().err
    assert (ROOT / "benchmarks/results/inner.json").read_bytes() == committed


def test_interrupted_work_is_resumed_only_when_asked_for(
    script: Script, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left, output = tmp_path / "training.unfinished.json", tmp_path / "training.json"
    call = ("benchmarks.training", "--output", output)

    def refused(*options: object) -> str:
        with pytest.raises(SystemExit) as ended:
            script(*call, *options)
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert f"--resume needs {left}, which an interrupted measurement leaves" in refused("--resume")
    left.write_text('{"options": {"batch_size": 8}, "parts": {}}')
    assert f"{left} is left of an earlier measurement: add --resume, or remove it" in refused()
    assert f"--resume needs the options that {left} was begun with" in refused("--resume", "--batch-size", 4)
