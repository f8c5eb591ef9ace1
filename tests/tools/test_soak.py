"""A quick share of every kind of case, the same each time; and the harness notices mistakes."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import certus.cli.app
from certus.certificates import Certificate
from tests.forks import exit_code, start
from tests.oracles import worst_case_by_linear_program
from tools.soak import box, command, problems
from tools.soak.entries import ENTRIES, commands
from tools.soak.kinds import Kinds
from tools.soak.lines import draw_line
from tools.soak.sandbox import Limits, in_forks
from tools.soak.state import State
from tools.soak.tally import Case
from tools.soak.waiting import look
from tools.soak.worst import worst_mean

SHARE = {"problems": 3, "kills": 5, "files": 60, "lines": 15}


def test_every_command_has_an_entry() -> None:
    """A new command is tried as the others are: give it an entry in tools/soak/entries.py."""
    assert ENTRIES.keys() == commands().keys()
    for name, entry in ENTRIES.items():
        assert all(" ".join(line).startswith(name) for line in entry.lines)


def try_shares(log: str) -> None:
    """In a process of its own, which forks: pytest's may have threads."""
    found = []
    with ExitStack() as stack:
        kinds = Kinds(stack)
        for kind, count in SHARE.items():
            cases = list(kinds.tried(kind, 0, range(count)))
            found += [] if len(cases) == count else [f"{kind}: {len(cases)} cases, not {count}"]
            found += [
                f"{kind} {case.number} ({case.words}): {what}" for case in cases for what in case.violations
            ]
    Path(log).write_text("\n".join(found) or "none")


def test_a_share_of_each_kind(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert exit_code(start(try_shares, str(log))) == 0
    assert log.read_text() == "none"


def misbehave(number: int) -> Case:
    match number:
        case 0:
            while True:
                pass
        case 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 2:
            raise KeyError("mistake")
    return Case(number, "well")


def try_misbehaviour(log: str) -> None:
    cases = in_forks(range(4), misbehave, Limits(1, confined=False))
    lines = [f"{case.number} {'; '.join(what.split()[-1] for what in case.violations)}" for case in cases]
    Path(log).write_text("\n".join(lines))


def test_hangs_deaths_and_exceptions_are_distinguished(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert exit_code(start(try_misbehaviour, str(log))) == 0
    assert log.read_text().splitlines() == ["0 up", "1 SIGSEGV", "2 'mistake'", "3 "]


def test_a_process_that_waits_is_seen() -> None:
    process = start(signal.pause)
    assert process.pid is not None
    while (Path("/proc") / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[0] != "S":
        pass
    session = os.getsid(process.pid)
    assert look(session)[1] >= 0
    process.kill()
    assert exit_code(process) == -signal.SIGKILL


def judged(code: int | None, stderr: str, stdout: str = "", words: tuple[str, ...] = ("train",)) -> list[str]:
    case = Case(0, "")
    command.judge(case, words, command.Ended(code, stdout, stderr, "KeyError"))
    return [what.split(":")[0] for what in case.violations]


def test_unexpected_exits() -> None:
    assert judged(0, "") == judged(2, "remark\ncertus: error: x\n") == judged(2, "Usage: certus\n") == []
    assert judged(None, "") == ["traceback"]
    assert judged(1, "certus: error: x") == ["exit 1"]
    assert judged(1, "certus: error: x", words=("verify", "x")) == []
    assert judged(2, "") == ["exit 2 with 0 lines that say why"]
    assert judged(0, "certus: error: x") == ["exit 0, and yet certus"]
    assert judged(0, "", "\x1b[31m") == ["stdout has the characters ['\\x1b']"]


def test_a_bound_that_is_too_low_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Certificate.bound
    monkeypatch.setattr(Certificate, "bound", lambda self, rho: 0.9 * whole(self, rho))
    found = [what for number in range(4) for what in problems.try_problem(0, number).violations]
    assert any(what.startswith("loss ") and "at most" in what for what in found)


def test_the_worst_mixture_is_that_of_a_linear_program() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        losses, costs = rng.normal(size=7), rng.exponential(size=(4, 7))
        costs[:, 0] = 0
        values = np.repeat(losses[:, None], 4, 1)
        for rho in (0.0, 0.1, 0.5, 9.0):
            expected = worst_case_by_linear_program(losses, costs, rho)
            assert worst_mean(costs.T, values, rho) == pytest.approx(expected, abs=1e-7)


def test_changes_in_a_box(tmp_path: Path) -> None:
    (tmp_path / "box" / "inner").mkdir(parents=True)
    for name in ("same", "touched", "altered", "gone", "inner/deep"):
        (tmp_path / "box" / name).write_text(name)
    copy = tmp_path / "copy"
    box.copy_box(tmp_path / "box", copy)
    before = box.snapshot(copy)
    os.utime(copy / "touched", ns=(0, 0))
    (copy / "altered").write_text("changed")
    (copy / "gone").unlink()
    (copy / "link.csv").unlink()
    (copy / "link.csv").write_text("no link")
    (copy / "new").touch()
    assert box.changes(tmp_path / "box", copy, before, box.snapshot(copy)) == (
        {"altered", "gone", "link.csv"},
        {"new"},
    )


def test_a_number_tells_a_line_again() -> None:
    lines = [[draw_line(random.Random(f"{number}")) for number in range(100)] for _ in range(2)]
    assert lines[0] == lines[1]
    assert {line[0] for line in lines[0]} >= {"train", "certify", "verify"}


def test_a_soak_goes_on_where_it_stopped(tmp_path: Path) -> None:
    state = State.load(tmp_path, 5)
    case = Case(7, "words")
    case.count("files", 3)
    case.violate("lost")
    state.of("files").add(case)
    state.save(tmp_path)
    again = State.load(tmp_path)
    assert (again.seed, again.of("files")) == (5, state.of("files"))
    assert again.of("files").done == 8
    assert again.of("files").violations == [{"number": 7, "words": "words", "what": "lost"}]
    assert State.load(tmp_path, 6).kinds == {}
    assert (tmp_path / "state-5.json").exists()


def test_an_exception_in_a_command_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(**_: object) -> None:
        raise KeyError("mistake")

    monkeypatch.setattr(certus.cli.app, "app", fail)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.chdir(tmp_path)
    ended = command.run(["runs"], tmp_path)
    assert ended.code == 3
    assert "KeyError: 'mistake'" in ended.stderr
    assert "Traceback" in ended.stderr
