"""Changes that keep a file well-formed: JSON that parses, checksums and digests updated."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import add_checksum
from tools.soak.mutations import mutate_bytes

ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        0.5,
        -0.0,
        1e308,
        5e-324,
        10**400,
        -(10**30),
        "",
        "false",
        "x",
        "\x1b[31m",
    ),
    *(
        "\u2028",
        "a\0b",
        "../..",
        "1",
        [],
        {},
        [[]],
        [None],
        {"": 0},
        "y" * 10_000,
        [0] * 1000,
        "csv:/dev/zero",
    ),
)


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    """A node replaced, removed, renamed or doubled; every other time with a digest that fits."""
    try:
        document = json.loads(content)
    except ValueError:
        return mutate_bytes(rng, content)
    for _ in range(rng.choice((1, 1, 2))):
        document = _changed(rng, document)
    if isinstance(document, dict) and "sha256" in document and rng.random() < 0.6:
        document = add_checksum(document)
    text = json.dumps(document, indent=rng.choice((None, 2)))
    if rng.random() < 0.05:
        text = text.replace("0.", rng.choice(("NaN", "Infinity", "-Infinity", "00.", ".")), 1)
    if rng.random() < 0.02:
        text = text.replace("{", '{"a": 1, "a": 2, ', 1)
    if rng.random() < 0.01:
        text = "[" * 100_000
    return text.encode(errors="surrogatepass")


def _changed(rng: random.Random, node: Any) -> Any:
    """The document with a change at a random place in it."""
    inner = isinstance(node, dict | list) and bool(node)
    if not inner or rng.random() < 0.1:
        return rng.choice(ODD)
    if isinstance(node, list):
        place = rng.randrange(len(node))
        if rng.random() < 0.1:
            return node[:place] + node[place + 1 :]
        return [*node[:place], _changed(rng, node[place]), *node[place + 1 :]]
    name = rng.choice(sorted(node))
    rest = {key: value for key, value in node.items() if key != name}
    match rng.choices(("inside", "remove", "rename", "add"), (6, 1, 1, 1))[0]:
        case "inside":
            return {**node, name: _changed(rng, node[name])}
        case "remove":
            return rest
        case "rename":
            return {**rest, rng.choice(("", "x", name + " ", "gamma")): node[name]}
    return {**node, rng.choice(("extra", "", "\x1b[1m")): rng.choice(ODD)}


def mutate_lines(rng: random.Random, content: bytes) -> bytes:
    """One line of several changed as JSON, or lines dropped and doubled."""
    lines = content.splitlines() or [b"{}"]
    place = rng.randrange(len(lines))
    if rng.random() < 0.7:
        lines[place] = mutate_json(rng, lines[place]).replace(b"\n", b" ")
    else:
        lines[place : place + 1] = [lines[place]] * rng.choice((0, 2, 3))
    return b"\n".join(lines) + b"\n"


def mutate_tensors(rng: random.Random, content: bytes) -> bytes:
    """The header changed as JSON, its length made to fit; or tensors changed, and saved with a digest."""
    if rng.random() < 0.5:
        return _other_tensors(rng, content)
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header = mutate_json(rng, content[8 : 8 + length])
    except struct.error:
        return mutate_bytes(rng, content)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def _other_tensors(rng: random.Random, content: bytes) -> bytes:
    path = Path(f"/proc/self/fd/{_memory(content)}")
    try:
        tensors, note = load_tensors(path, require_digest=False)
        name = rng.choice(sorted(tensors))
        tensors[name] = _odd_tensor(rng, tensors[name])
        if rng.random() < 0.2:
            del tensors[name]
        if rng.random() < 0.2:
            tensors[rng.choice(("x", "0.weight", "a\x1b[31m"))] = torch.zeros(rng.randrange(4))
        if rng.random() < 0.3:
            note = _changed(rng, note)
        written = Path(f"{name}.mutated".replace("/", "_"))
        save_tensors(written, tensors, note)
        changed = written.read_bytes()
        written.unlink()
    except Exception:  # whatever does not go into a file
        return mutate_bytes(rng, content)
    finally:
        _close(path)
    return changed


def _odd_tensor(rng: random.Random, tensor: Tensor) -> Tensor:
    changes: list[Callable[[Tensor], Tensor]] = [
        lambda t: t.double() * float("nan"),
        lambda t: t.float() + float("inf"),
        lambda t: t.to(rng.choice((torch.int64, torch.bool, torch.float16, torch.complex64, torch.uint8))),
        lambda t: t.flatten(),
        lambda t: t[None],
        lambda t: t.flatten()[:-1],
        lambda t: torch.zeros(0),
        lambda t: -t.float(),
        lambda t: t.float() * 1e30,
        lambda t: t * 0 + 7,
    ]
    return rng.choice(changes)(tensor)


def mutate_archive(rng: random.Random, content: bytes) -> bytes:
    """A member of a zip file changed, renamed or put into another zip; the checksums fit."""
    members = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(sorted(members))
    shapes = (
        b"(17179869184, 17179869184)",
        b"()",
        b"(-1,)",
        b"(0, 4)",
        b"(30,)",
        b"(30, 4, 1, 1)",
        b"(True,)",
    )
    types = (b"|O", b"<U4", b">f8", b"<c16", b"<M8[s]", b"|V8", b"<f2", b"|b1", b"|S3", b"<i8", b"|u1")
    member = members[name]
    match rng.randrange(6):
        case 0:
            member = _padded(member, b"(30, 4)", rng.choice(shapes))
        case 1:
            member = _padded(member, b"<f8", rng.choice(types))
        case 2:
            members[rng.choice(("x", "extra.npy", "../inputs.npy", "inputs", "a\x1b[1m.npy"))] = member
        case 3:
            member = content
        case _:
            member = mutate_bytes(rng, member)
    members[name] = member
    if rng.random() < 0.1:
        del members[name]
    stream = io.BytesIO()
    kind = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
    with zipfile.ZipFile(stream, "w", kind) as archive:
        for each, bytes_ in members.items():
            archive.writestr(each, bytes_)
    return stream.getvalue()


def _padded(member: bytes, old: bytes, new: bytes) -> bytes:
    """The header of an array changed, at its old length."""
    grown = len(new) - len(old)
    head, result, tail = member.partition(old)
    if not result:
        return member
    end = tail.find(b"\n")
    return head + new + tail[: max(end - grown, 0)].ljust(end - grown) + tail[end:]


def mutate_compressed(rng: random.Random, content: bytes) -> bytes:
    """What is inside a gzip file changed."""
    return gzip.compress(mutate_bytes(rng, gzip.decompress(content)), mtime=0)


def mutate_png(rng: random.Random, content: bytes) -> bytes:
    """A chunk changed, and its checksum made to fit."""
    chunks, place = [], 8
    while place + 12 <= len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append([content[place + 4 : place + 8], content[place + 8 : place + 8 + length]])
        place += 12 + length
    if not chunks:
        return mutate_bytes(rng, content)
    chosen = rng.choice(chunks)
    if chosen[0] == b"IDAT" and rng.random() < 0.7:
        chosen[1] = zlib.compress(mutate_bytes(rng, zlib.decompress(chosen[1])))
    else:
        chosen[1] = mutate_bytes(rng, chosen[1])
    if rng.random() < 0.2:
        chunks.insert(
            rng.randrange(len(chunks)), [rng.choice((b"PLTE", b"tEXt", b"iCCP", b"acTL")), chosen[1]]
        )
    return content[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def mutate_table(rng: random.Random, content: bytes) -> bytes:
    """A cell, a line or the header of a CSV file changed."""
    cells = (
        "",
        "nan",
        "inf",
        "1e400",
        "x",
        "1_0",
        '"',
        '"a,b"',
        "\x1b[31m",
        "٣",
        "0x1",
        "9" * 400,
        "-0",
        "NULL",
    )
    rows = [line.split(",") for line in content.decode(errors="replace").splitlines()] or [[""]]
    place = rng.randrange(len(rows))
    row = rows[place]
    match rng.choices(("cell", "drop", "twice", "longer", "shorter", "name"), (6, 1, 1, 1, 1, 1))[0]:
        case "cell":
            row[rng.randrange(len(row))] = rng.choice(cells)
        case "drop":
            del rows[place : place + rng.choice((1, 30))]
        case "twice":
            rows.insert(place, row)
        case "longer":
            row.append(rng.choice(cells))
        case "shorter":
            row.pop()
        case "name":
            rows[0][rng.randrange(len(rows[0]))] = rng.choice((*cells, "a", "y"))
    return "\n".join(",".join(row) for row in rows).encode(errors="replace")


def _memory(content: bytes) -> int:
    handle = os.memfd_create("tensors")
    os.write(handle, content)
    return handle


def _close(path: Path) -> None:
    os.close(int(path.name))
