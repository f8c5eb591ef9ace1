"""What is written can be trusted: atomic, verified, and never executed."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import resource
import signal
import stat
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from certus import Box, CrossEntropy, SquaredL2
from certus.costs import Bregman, LabelCost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Unbounded
from certus.errors import UnsupportedError
from certus.inner import BarzilaiBorwein, PaperAscent, ProximalAscent
from certus.losses import SquaredError
from certus.runs import RunError, RunLock
from certus.runs.serialization import deserialize, serialize
from certus.storage.files import CorruptFileError, read_json
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import (
    WriteError,
    file_transaction,
    finish_transaction,
    temporary_path,
    write_atomically,
    write_json,
)
from tests.forks import exit_code, start

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(7), "c": torch.zeros(0)}


def test_tensors_and_notes_come_back(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", TENSORS, {"epoch": 3, "mean": 0.1 + 0.2})
    tensors, note = load_tensors(tmp_path / "x.safetensors")
    assert note == {"epoch": 3, "mean": 0.1 + 0.2}
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, {"a": torch.arange(4.0)}, "note")
    good = path.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x11
        path.write_bytes(bad)
        with pytest.raises(RunError, match=r"corrupt|not written by certus|pickled"):
            load_tensors(path)
    for length in (0, 5, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(RunError, match="corrupt"):
            load_tensors(path)


def test_pickles_are_refused_and_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(marker),)

    torch.save({"a": Bomb()}, tmp_path / "torch.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Bomb()))
    for name in ("torch.pt", "plain.pkl"):
        with pytest.raises(RunError, match="is a pickled file, and loading one can execute anything"):
            load_tensors(tmp_path / name)
    assert not marker.exists()


def test_foreign_safetensors_are_read_on_request_only(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(RunError, match="was not written by certus"):
        load_tensors(tmp_path / "x.safetensors")
    assert load_tensors(tmp_path / "x.safetensors", require_digest=False)[0]["a"].tolist() == [1.0, 1.0]
    with pytest.raises(RunError, match=r"Cannot read .*No such file"):
        load_tensors(tmp_path / "missing")


def test_a_file_beyond_the_systems_limit_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_atomically(path, b"old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(
            RunError, match=r"Cannot write .*x: File too large\. Its previous content is unchanged\."
        ):
            write_atomically(path, bytes(5000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x"]


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"Cannot write .*No such file or directory"):
        write_atomically(tmp_path / "missing" / "x", b"")
    (tmp_path / "taken").mkdir()
    with pytest.raises(
        RunError, match=r"Cannot write .*taken: it is a folder, and only files are replaced\."
    ):
        write_atomically(tmp_path / "taken", b"")


def test_only_files_are_replaced_and_links_are_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name, words in (("pipe", "a pipe"), ("null", "a device")):
        with pytest.raises(WriteError, match=f"Cannot write .*{name}: it is {words}"):
            write_atomically(tmp_path / name, b"new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    (tmp_path / "there").mkdir()
    (tmp_path / "new").symlink_to("there/new")  # which is not there yet
    (tmp_path / "again").symlink_to("new")
    for content in (b"one", b"two"):
        write_atomically(tmp_path / "again", content)
        assert (tmp_path / "there/new").read_bytes() == content
    assert (tmp_path / "again").is_symlink()
    assert (tmp_path / "new").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match=r"Cannot write .*loop: Too many levels"):
        write_atomically(tmp_path / "loop", b"")


def test_files_respect_the_umask_and_keep_their_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    (tmp_path / "x").chmod(0o604)
    write_atomically(tmp_path / "x", b"new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o604


def test_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 255), b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["x" * 255]


def leave_unfinished(folder: Path) -> None:
    """Die beside a file that is not in its place yet."""
    temporary_path(folder / "x").write_bytes(b"half")
    temporary_path(folder / "y").mkdir()


def test_files_of_killed_processes_only_are_removed(tmp_path: Path) -> None:
    assert exit_code(start(leave_unfinished, tmp_path)) == 0
    assert len(list(tmp_path.iterdir())) == 2
    ours = temporary_path(tmp_path / "x")
    ours.touch()
    elsewhere = tmp_path / ".x.ffffffff-1-0.tmp"  # of another machine: it may be alive
    elsewhere.touch()
    (tmp_path / ".x.tmp").touch()  # a name of the user's
    write_atomically(tmp_path / "x", b"new")
    names = {"x", ours.name, elsewhere.name, ".x.tmp"}
    assert {entry.name for entry in tmp_path.iterdir() if entry.is_file()} == names
    assert len(list(tmp_path.iterdir())) == len(names) + 1  # that of y
    with RunLock(tmp_path):
        pass
    assert {entry.name for entry in tmp_path.iterdir()} == {"x", ours.name, ".x.tmp", ".lock"}


def test_a_pending_transaction_of_another_command_is_finished(tmp_path: Path) -> None:
    """One that wrote a certificate by noise was killed in the end; then one of another kind is written."""
    (tmp_path / ".complete").mkdir()
    for name in ("smoothing.json", "smoothing.png"):
        (tmp_path / ".complete" / name).write_text("new")
    (tmp_path / "smoothing.png").write_text("old")  # the old certificate is away already
    with file_transaction(tmp_path, "certificate.json") as new:
        (new / "certificate.json").write_text("another")
    found = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name != ".lock"}
    assert found == {"certificate.json": "another", "smoothing.json": "new", "smoothing.png": "new"}
    (tmp_path / ".complete").mkdir()  # all was moved, and the process killed before the folder was removed
    finish_transaction(tmp_path, "certificate.json")
    assert not (tmp_path / ".complete").exists()


def test_json_files(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": [1, None]})
    assert read_json(tmp_path / "x.json") == {"a": [1, None]}
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(RunError, match="is corrupt: it is not a JSON file"):
        read_json(tmp_path / "x.json")
    with pytest.raises(RunError, match="Cannot read"):
        read_json(tmp_path / "missing.json")


AMBIGUOUS = {
    "twice": ('{"a": {"rho": 1, "rho": 2}}', 'the key "rho" occurs twice'),
    "escaped": ('{"rho": 1, "\\u0072ho": 1}', 'the key "rho" occurs twice'),
    "nan": ('{"a": NaN}', "NaN is not a finite number"),
    "infinity": ('{"a": [-Infinity]}', "-Infinity is not a finite number"),
    "overflow": ('{"a": 1e999}', "1e999 is not a finite number"),
}


@pytest.mark.parametrize(("text", "message"), AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_json_that_readers_understand_differently_is_refused(text: str, message: str, tmp_path: Path) -> None:
    """Python's own reader takes the last of two equal keys, and numbers that JSON does not have."""
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CorruptFileError, match=rf"x.json is corrupt: {message}"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("text", ["[" * 100_000, '"\xff"', ""], ids=["deep", "bytes", "empty"])
def test_files_that_are_not_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RunError, match=r"x.json is corrupt: it is (not a JSON file|nested too deeply)"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1" + "0" * 400, "10000000000000000000… is too large a number"),
        ("[-9223372036854775809]", "-9223372036854775809… is too large a number"),
        ("[" * 65 + "]" * 65, "it is nested too deeply"),
        ('{"a":' * 65 + "1" + "}" * 65, "it is nested too deeply"),
    ],
    ids=["400 digits", "64 bits", "lists", "objects"],
)
def test_numbers_and_nesting_are_bounded(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(CorruptFileError, match=rf"x.json is corrupt: {message}"):
        read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text("[" * 64 + "9223372036854775807" + "]" * 64)
    assert read_json(tmp_path / "x.json") is not None


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Neither a pipe, which would wait for a writer, nor a device, which never ends."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero", ".", "none", "a\0b"):
        for read in (read_json, load_tensors):
            with pytest.raises(RunError, match=r"^Cannot read .*: "):
                read(tmp_path / name)


THINGS = [
    SquaredL2(),
    SquaredLp(1.5),
    SquaredSup(),
    WeightedL2(torch.tensor([1.0, 2.5])),
    Mahalanobis(torch.eye(2, dtype=torch.float64)),
    Masked(SquaredLp(1.2), torch.tensor([[True], [False]])),
    LabelCost(0.5, 3),
    Unbounded(),
    Box(0.0, math.inf),
    Box(torch.tensor([-math.inf, 0.0]), torch.tensor([math.inf, 1.0])),
    Ball(torch.zeros(3), 2.0),
    CrossEntropy(0.1),
    SquaredError(),
    BarzilaiBorwein(1e-3, 7),
    ProximalAscent(1e-3, 7),
    PaperAscent(3),
]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: type(thing).__name__)
def test_tags_come_back(thing: object, tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", serialize(thing))
    back = deserialize(read_json(tmp_path / "x.json"))
    assert type(back) is type(thing)
    assert repr(back) == repr(thing)


def test_tags_refuse_code_and_strangers() -> None:
    with pytest.raises(UnsupportedError, match="Bregman holds code and cannot be stored"):
        serialize(Bregman(lambda z: z.sum(1), 1.0))
    impostor = type("SquaredL2", (SquaredL2,), {})()  # of the same name, and of whatever behaviour
    with pytest.raises(UnsupportedError, match="SquaredL2 holds code and cannot be stored"):
        serialize(impostor)
    with pytest.raises(RunError, match="names 'system', which this version of certus does not know"):
        deserialize({"type": "system", "command": "ls"})


def hold(folder: Path, told: Connection) -> None:
    """Keep the lock until somebody kills the process."""
    with RunLock(folder):
        told.send("held")
        signal.pause()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()
    other = start(hold, tmp_path, theirs)
    theirs.close()  # so that its death would be heard
    with ours:
        assert ours.recv() == "held"
    try:
        with (
            pytest.raises(RunError, match=f"is in use by another process \\(pid {other.pid}\\)"),
            RunLock(tmp_path),
        ):
            pass
    finally:
        other.kill()
    assert exit_code(other) == -signal.SIGKILL
    with RunLock(tmp_path):
        pass
    with (
        pytest.raises(RunError, match="there is no such folder"),
        RunLock(tmp_path / "missing"),
    ):
        pass
