"""Data that were made to do harm: no program is started, nothing waits, no memory is taken on a promise."""

from __future__ import annotations

import gzip
import io
import os
import resource
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from certus.datasets import load
from certus.datasets.files import FORMATS, MOST_PIXELS, SUFFIXES
from certus.errors import ArgumentError
from tests.datasets.test_folder import write as write_images
from tests.datasets.test_idx import idx
from tests.datasets.test_idx import write as write_idx

LABELS = np.arange(30) % 3
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\n%%EOF\n"


@contextmanager
def little_memory(room: int = 2**30) -> Iterator[None]:
    """So much more address space than there is in use: taking more fails at once."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_an_image_starts_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostScript under the name of a picture: pillow hands it to Ghostscript, if it may."""
    (tmp_path / "bin").mkdir()
    ghostscript = tmp_path / "bin" / "gs"
    ghostscript.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    (tmp_path / "images").mkdir()
    spec = write_images(tmp_path / "images")
    (tmp_path / "images" / "cat" / "00.png").write_bytes(EPS)
    with pytest.raises(
        ArgumentError, match=r"00.png` must be an image, as its name says, of .*; got another kind of file"
    ):
        load(spec)
    assert not (tmp_path / "sprung").exists()
    with Image.open(tmp_path / "images" / "cat" / "00.png") as image, pytest.raises(OSError, match=r".*"):
        image.load()
    assert (tmp_path / "sprung").exists()  # the trap was a real one


def test_every_suffix_has_its_format() -> None:
    Image.init()
    assert {Image.EXTENSION[suffix] for suffix in SUFFIXES} == set(FORMATS)


def png(width: int, height: int) -> bytes:
    """A small file that decodes to many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(min(width, 100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [4097, 12_000, 100_000])
def test_too_many_pixels_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int
) -> None:
    spec = write_images(tmp_path)
    (tmp_path / "cat" / "00.png").write_bytes(png(side, side))
    monkeypatch.setattr(Image.Image, "convert", lambda *_: pytest.fail("it was decoded"))
    assert side**2 > MOST_PIXELS
    with pytest.raises(ArgumentError, match=rf"at most {MOST_PIXELS} pixels|Decompression"):
        load(spec)


def test_another_size_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    spec = write_images(tmp_path)
    (tmp_path / "dog" / "01.png").write_bytes(png(4000, 4000))
    with pytest.raises(ArgumentError, match=r"images of one size, 4 × 5 .*; got 4000 × 4000 in dog"):
        load(spec)


def test_a_folder_of_too_many_pixels_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_images(tmp_path)
    monkeypatch.setattr("certus.datasets.files.MOST_IN_ALL", 239)
    with pytest.raises(ArgumentError, match=r"at most .* pixels, 239 in all; got 12 of 4 × 5"):
        load(spec)


SOURCES: dict[str, Callable[[Path], tuple[str, Path]]] = {
    "csv": lambda folder: (f"csv:{folder}/a.csv", folder / "a.csv"),
    "npz": lambda folder: (f"npz:{folder}/a.npz", folder / "a.npz"),
    "idx": lambda folder: (write_idx(folder), folder / "t10k-labels-idx1-ubyte"),
    "folder": lambda folder: (write_images(folder), folder / "cat" / "00.png"),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_endless_files_are_not_read(tmp_path: Path, kind: str) -> None:
    spec, file = SOURCES[kind](tmp_path)
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.mkdir()):
        file.unlink(missing_ok=True)
        make(file)
        with pytest.raises(ArgumentError, match=r"a device, a pipe|a folder|existing file|must hold the"):
            load(spec)
        if make is not os.mkfifo:
            (file.rmdir if file.is_dir() and not file.is_symlink() else file.unlink)()


@pytest.mark.parametrize("kind", ["csv", "npz", "idx", "folder"])
@pytest.mark.parametrize(
    "path",
    ["a\0b", "~nobody-of-this-name/x", "\ud800", "x" * 300, "/proc/self/mem"],
    ids=["NUL", "nobody", "surrogate", "long", "memory"],
)
def test_strange_paths_are_refused(kind: str, path: str) -> None:
    with pytest.raises(ArgumentError, match=r"must (be|name) a|must be readable; got File name too long"):
        load(f"{kind}:{path}")


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def archive(path: Path, **members: bytes) -> str:
    with zipfile.ZipFile(path / "a.npz", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return f"npz:{path}/a.npz"


def array(values: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (17179869184, 4)}"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (npy(HUGE), "must hold the 549755813888 bytes that the header of inputs.npy states; got 0"),
        (npy(HUGE.replace("4)", "-4)")), "must hold the -549755813888 bytes"),
        (npy(HUGE.replace("4)", "4,)" + "*9" * 9)), "must be a complete .npz file; got"),
        (npy(HUGE.replace("4)", "4, 4" * 70 + ")")), "must (be a complete .npz file|hold the)"),
        (npy("[" * 5000), "must be a complete .npz file; got"),
        (npy("{'descr': '|V0', 'fortran_order': False, 'shape': (30, 4)}"), "must have numbers as `inputs`"),
        (npy("{'descr': '<U0', 'fortran_order': False, 'shape': (30, 4)}"), "must have numbers as `inputs`"),
        (b"PK\x03\x04 an archive inside", "must be a complete .npz file; got the magic string"),
        (b"\x93NUMPY\x09\x00", "arrays of the .npy format"),
        (b"", "must be a complete .npz file; got"),
    ],
)
def test_arrays_that_promise_too_much(tmp_path: Path, inputs: bytes, message: str) -> None:
    spec = archive(tmp_path, inputs=inputs, targets=array(LABELS))
    with little_memory(), pytest.raises(ArgumentError, match=message):
        load(spec)


def test_an_archive_of_gigabytes_is_not_unpacked(tmp_path: Path) -> None:
    """A member that says it is small, and one that says how large it is."""
    spec = archive(tmp_path, inputs=array(np.zeros((30, 2))), targets=array(LABELS))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**32 - 2)
    (tmp_path / "a.npz").write_bytes(content)
    with (
        little_memory(),
        pytest.raises(ArgumentError, match=r"must hold the 480 bytes that the header of inputs.npy states"),
    ):
        load(spec)


def test_encrypted_and_nested_members_are_refused(tmp_path: Path) -> None:
    spec = archive(tmp_path, inputs=array(np.zeros((30, 2))), targets=array(LABELS))
    good = (tmp_path / "a.npz").read_bytes()
    content = bytearray(good)
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + offset] |= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ArgumentError, match=r"must hold arrays only.*got inputs.npy, which is encrypted"):
        load(spec)
    (tmp_path / "a.npz").write_bytes(good)
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        file.writestr("more.npz", good)
    with pytest.raises(ArgumentError, match=r"must hold arrays only.*got more.npz, which is not an array"):
        load(spec)
    (tmp_path / "a.npz").write_bytes(good)
    with pytest.warns(UserWarning, match=r"Duplicate"), zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        file.writestr("inputs.npy", array(np.ones((30, 2))))
    with pytest.raises(ArgumentError, match=r"must hold every array once; got inputs.npy 2 times"):
        load(spec)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes([0, 0, 8, 255]) + bytes(4 * 255), "must have 1 to 8 axes; got 255"),
        (bytes([0, 0, 8, 0]), "must have 1 to 8 axes; got 0"),
        (
            idx([2**32 - 1, 2**32 - 1, 2**32 - 1], b""),
            "hold at most 17179869184 bytes of data; got",
        ),
        (idx([2**33 // 4, 2], b"")[:12], "must have 4294967308 bytes, as its header says; got 12"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_headers_that_promise_too_much(tmp_path: Path, content: bytes, message: str, suffix: str) -> None:
    spec = write_idx(tmp_path)
    file = tmp_path / "train-images-idx3-ubyte"
    file.unlink()
    file.with_name(file.name + suffix).write_bytes(gzip.compress(content, mtime=0) if suffix else content)
    with little_memory(), pytest.raises(ArgumentError, match=message):
        load(spec)


def test_a_compressed_file_gives_no_more_than_it_says(tmp_path: Path) -> None:
    spec = write_idx(tmp_path, compressed=True)
    bomb = gzip.compress(idx([8], bytes(2**26)), compresslevel=1, mtime=0)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(bomb)
    with little_memory(2**25), pytest.raises(ArgumentError, match=r"must have 16 bytes, .*; got 17 or more"):
        load(spec)
