"""The cache holds whole, checked files and nothing else, whatever happens on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from certus.datasets import load
from certus.datasets.base import Arrays, digest_arrays
from certus.datasets.fetching import Package, fetch_package, read, store, workspace
from certus.datasets.listing import cache_file, default_cache
from certus.errors import ArgumentError
from certus.storage.write import LOCK


def small(seed: int = 0) -> Arrays:
    values = np.random.default_rng(seed).integers(0, 256, (5, 3)).astype(np.uint8)
    return {"images": values, "labels": np.arange(5, dtype=np.int16)}


KNOWN = digest_arrays(small())


def package(convert: Callable[[Path], Arrays], download: Callable[[Path], Path] | None = None) -> Package:
    """A package that is made on the spot."""

    def written(folder: Path) -> Path:
        (folder / "archive").write_bytes(b"downloaded")
        return folder / "archive"

    return Package("small", "made here", download or written, convert, lambda _: {"rows": "5"}, {}, "wait")


def held(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name != LOCK]


def quiet(line: str) -> None:
    pass


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTUS_CACHE", "/here")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_cache() == Path("/here")
    monkeypatch.delenv("CERTUS_CACHE")
    assert default_cache() == Path("/shared/certus")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path("/home/me/.cache/certus")
    assert cache_file("wine") == Path("/home/me/.cache/certus/wine.safetensors")


def test_fetched_data_can_be_read(tmp_path: Path) -> None:
    lines: list[str] = []
    found = fetch_package(package(lambda _: small()), tmp_path / "new" / "cache", lines.append)
    assert found.name == "small"
    assert found.path == tmp_path / "new" / "cache" / "small.safetensors"
    assert found.bytes == found.path.stat().st_size
    assert found.checks == {"rows": "5"}
    assert held(found.path.parent) == ["small.safetensors"]
    assert lines == ["downloading small: made here", "converting and verifying small"]
    arrays, sha256 = read("small", KNOWN, found.path.parent)
    np.testing.assert_array_equal(arrays["images"], small()["images"])
    assert arrays["labels"].dtype == np.int16
    assert len(sha256) == 64
    # Readable by whoever may read other new files.
    (tmp_path / "other").touch()
    assert found.path.stat().st_mode == (tmp_path / "other").stat().st_mode


def failing(problem: BaseException) -> Callable[[Path], Arrays]:
    def convert(path: Path) -> Arrays:
        assert path.read_bytes() == b"downloaded"
        raise problem

    return convert


@pytest.mark.parametrize(
    ("problem", "expected", "message"),
    [
        (
            KeyError("images.csv"),
            ArgumentError,
            r"`small` was downloaded as a package that cannot be read .*images\.csv",
        ),
        (OSError("Input/output error"), ArgumentError, "`cache` must be a writable folder with free space"),
        (ArgumentError("`small` must be right"), ArgumentError, "^`small` must be right$"),
        (KeyboardInterrupt("Ctrl-C"), KeyboardInterrupt, "Ctrl-C"),
        (ZeroDivisionError("a bug of ours"), ZeroDivisionError, "a bug of ours"),
    ],
)
def test_a_failed_fetch_leaves_the_cache_as_it_was(
    tmp_path: Path, problem: BaseException, expected: type[BaseException], message: str
) -> None:
    with pytest.raises(expected, match=message):
        fetch_package(package(failing(problem)), tmp_path, quiet)
    assert held(tmp_path) == []
    kept = fetch_package(package(lambda _: small()), tmp_path, quiet).path.read_bytes()
    with pytest.raises(expected, match=message):
        fetch_package(package(failing(problem)), tmp_path, quiet)
    assert held(tmp_path) == ["small.safetensors"]
    assert (tmp_path / "small.safetensors").read_bytes() == kept


SLOW = """
import sys
from pathlib import Path
from certus.datasets.fetching import fetch_package
from certus.datasets.fetching import Package

def convert(path):
    print("converting", flush=True)
    sys.stdin.read()  # until it is killed

package = Package("small", "made here", lambda folder: folder, convert, lambda arrays: {}, {}, "wait")
fetch_package(package, Path(sys.argv[1]), lambda line: None)
"""


def slow_fetch(cache: Path) -> subprocess.Popen[str]:
    """Another process in the middle of its conversion."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", SLOW, str(cache)]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "converting\n"
    return process


@pytest.mark.skipif(sys.platform == "win32", reason="signals and locks of POSIX")
def test_a_killed_fetch_is_cleaned_up_by_the_next_and_a_live_one_is_waited_for(tmp_path: Path) -> None:
    with slow_fetch(tmp_path) as process:
        try:
            assert [name[:7] for name in held(tmp_path)] == [".fetch-"]
            lines: list[str] = []

            def report(line: str) -> None:
                lines.append(line)
                if line.startswith("waiting"):  # the other one lives: its folder is still there
                    assert len(held(tmp_path)) == 1
                    process.send_signal(signal.SIGKILL)

            found = fetch_package(package(lambda _: small()), tmp_path, report)
        finally:
            process.kill()
    assert lines[0] == f"waiting for another fetch into {tmp_path}"
    assert held(tmp_path) == ["small.safetensors"]
    assert found.path.exists()


def test_stale_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".fetch-old").mkdir()
    (tmp_path / ".fetch-old" / "half.whl").write_bytes(b"half")
    (tmp_path / "other.txt").write_text("not ours")
    with workspace(tmp_path) as folder:
        assert sorted(held(tmp_path)) == [folder.name, "other.txt"]
    assert held(tmp_path) == ["other.txt"]


def test_a_cache_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(
        ArgumentError, match=r"`cache` must be a writable folder with free space; got .*cache"
    ):
        fetch_package(package(lambda _: small()), tmp_path / "cache", quiet)


def test_data_not_yet_fetched_name_the_command(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`small` must be fetched first: run `certus data get small`"):
        read("small", KNOWN, tmp_path)


def stored(folder: Path) -> Path:
    return store("small", small(), {"rows": "5"}, folder)


@given(st.data())
def test_a_damaged_byte_never_changes_the_data(
    tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    path = stored(folder)
    content = bytearray(path.read_bytes())
    place = draw.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << draw.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        arrays, _ = read("small", KNOWN, folder)
    except ArgumentError:
        return
    # Only the header has bytes that do not matter (the values of the checks, blanks).
    assert place < len(content) - sum(array.nbytes for array in small().values())
    for name, array in small().items():
        np.testing.assert_array_equal(arrays[name], array)


@given(st.floats(0, 1, exclude_max=True))
def test_a_shortened_file_is_refused(tmp_path_factory: pytest.TempPathFactory, share: float) -> None:
    folder = tmp_path_factory.mktemp("cache")
    content = stored(folder).read_bytes()
    (folder / "small.safetensors").write_bytes(content[: int(share * len(content))])
    with pytest.raises(
        ArgumentError, match=r"is corrupt \(.*\); run `certus data get small` to fetch it again"
    ):
        read("small", KNOWN, folder)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    save_file(small(), tmp_path / "small.safetensors")
    with pytest.raises(
        ArgumentError, match="is not of the format certus-data-1; run `certus data get small`"
    ):
        read("small", KNOWN, tmp_path)
    assert set(load_file(tmp_path / "small.safetensors")) == {"images", "labels"}


def test_exchanged_arrays_are_noticed(tmp_path: Path) -> None:
    """The digest names every array, so that equal bytes under another name do not pass."""
    arrays = {"a": np.zeros(4, np.uint8), "b": np.ones(4, np.uint8)}
    content = store("small", arrays, {}, tmp_path).read_bytes()
    exchanged = content.replace(b'"a":', b'"c":').replace(b'"b":', b'"a":').replace(b'"c":', b'"b":')
    (tmp_path / "small.safetensors").write_bytes(exchanged)
    with pytest.raises(ArgumentError, match="checksum does not match"):
        read("small", KNOWN, tmp_path)


def test_a_file_does_not_vouch_for_itself(tmp_path: Path) -> None:
    """Other arrays under a digest that is theirs: only the known one tells."""
    stored(tmp_path)
    read("small", KNOWN, tmp_path)
    store("small", small(1), {"rows": "5"}, tmp_path)
    with pytest.raises(
        ArgumentError, match=r"checksum does not match: sha256 .* instead of .*certus data get"
    ):
        read("small", KNOWN, tmp_path)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "employment"])
def test_every_data_set_has_a_known_digest(tmp_path: Path, name: str) -> None:
    store(name, small(), {}, tmp_path)
    with pytest.raises(ArgumentError, match="its checksum does not match"):
        load(name, cache=tmp_path)


def test_a_cache_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "small.safetensors")
    with pytest.raises(ArgumentError, match=r"is corrupt .*a pipe"):
        read("small", KNOWN, tmp_path)


def test_a_cache_of_an_unknown_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTUS_CACHE", "~nobody-of-this-name/x")
    with pytest.raises(ArgumentError, match="`CERTUS_CACHE` must name a folder"):
        default_cache()


def test_new_files_respect_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert stored(tmp_path).stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def calls_of(action: Callable[[], object]) -> int:
    """How many functions are called, in Python and in C."""
    count = 0

    def note(frame: object, event: str, detail: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def test_reading_takes_as_many_calls_for_many_rows_as_for_few(tmp_path: Path) -> None:
    """No loop over rows, images or bytes in Python, which would take minutes for MNIST."""
    counts = []
    for rows in (10, 10_000):
        images = {"images": np.zeros((rows, 28, 28), np.uint8)}
        store("images", images, {}, tmp_path)
        known = digest_arrays(images)
        counts.append(calls_of(lambda known=known: read("images", known, tmp_path)))  # type: ignore[misc]
    assert 0 < counts[1] <= counts[0] + 10
