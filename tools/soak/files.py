"""Mutated files of every kind that certus reads: each is refused with one line, or read, but never if it
has a checksum."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from certus.errors import CertusError
from certus.storage.tensors import load_tensors
from certus.storage.write import verify_checksum
from tools.soak.command import Ended, judge, run
from tools.soak.ground import Ground
from tools.soak.mutations import mutate_bytes
from tools.soak.structured import (
    mutate_archive,
    mutate_compressed,
    mutate_json,
    mutate_lines,
    mutate_png,
    mutate_table,
    mutate_tensors,
)
from tools.soak.tally import Case

Mutate = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Kind:
    """A file of the box and the line that reads it.

    Attributes:
        sealed: whether a digest binds it: what passes must then mean the same.
        weight: how often it comes, among the others.
    """

    path: str
    line: str
    mutate: Mutate
    sealed: bool = False
    weight: int = 4


_ATTACK = "attack run --attack fgsm --epsilon 0.1 --samples 4 --json"
_OWN = "attack own --model net.py:make --attack fgsm --epsilon 0.1 --samples 4 --json"
_WEB = "smoothness web --model web.py:Web --samples 0 --json"
_SHIFT = "--label-cost 1 --samples 4 --json"
_VERIFY = "verify run/certificate/certificate.json --json"
_VERIFY_WEB = "verify proof-web/certificate.json --model web.py:Web --json"
_VERIFY_NOISY = "verify run/certificate/smoothing.json --json"
_FOLDER = f"shift folder:images@test folder:images@train {_SHIFT}"
_IDX = f"shift idx:idx@test idx:idx@train {_SHIFT}"
_IMPORT = (
    "import --weights weights.safetensors --data csv:data.csv --target y --model mlp:4:elu -o new --json"
)

KINDS = (
    Kind("data.csv", f"distance csv:data.csv@test csv:data.csv@train {_SHIFT}", mutate_table, weight=8),
    Kind("data.csv", _ATTACK, mutate_table, sealed=True),
    Kind("data.npz", f"shift npz:data.npz@test npz:data.npz@train {_SHIFT}", mutate_archive, weight=8),
    *(
        Kind(f"images/{'ab'[place % 2]}/{place}.{suffix}", _FOLDER, mutate, weight=2)
        for place, (suffix, mutate) in enumerate(
            (("png", mutate_png), *((name, mutate_bytes) for name in ("jpg", "bmp", "gif", "pgm", "tif")))
        )
    ),
    Kind("idx/train-images-idx3-ubyte", _IDX, mutate_bytes),
    Kind("idx/train-labels-idx1-ubyte", _IDX, mutate_bytes, weight=2),
    Kind("idx/t10k-images-idx3-ubyte.gz", _IDX, mutate_compressed, weight=2),
    Kind("run/run.json", _ATTACK, mutate_json, sealed=True, weight=8),
    Kind("run/run.json", "runs . --json", mutate_json),
    Kind("half/run.json", "resume half --json", mutate_json),
    Kind("run/split.safetensors", _ATTACK, mutate_tensors, sealed=True),
    Kind("run/model.safetensors", _ATTACK, mutate_tensors, sealed=True),
    Kind("run/result.json", "resume run --json", mutate_json, sealed=True, weight=6),
    Kind("run/result.json", "runs . --json", mutate_json, weight=2),
    Kind("run/metrics.jsonl", "runs . --json", mutate_lines),
    Kind("half/metrics.jsonl", "resume half --json", mutate_lines, weight=2),
    Kind("half/checkpoint.safetensors", "resume half --json", mutate_tensors),
    Kind("run/certificate/certificate.json", _VERIFY, mutate_json, sealed=True, weight=6),
    Kind("run/certificate/samples.csv", _VERIFY, mutate_table, sealed=True, weight=1),
    Kind("weights.safetensors", _IMPORT, mutate_tensors, weight=6),
    Kind("proof-web/certificate.json", _VERIFY_WEB, mutate_json, sealed=True, weight=4),
    Kind("run/certificate/smoothing.json", _VERIFY_NOISY, mutate_json, sealed=True, weight=2),
    Kind("run/certificate/smoothing.json", f"{_VERIFY_NOISY} --redraw", mutate_json, sealed=True, weight=2),
    Kind("run/certificate/smoothing.safetensors", _VERIFY_NOISY, mutate_tensors, sealed=True),
    Kind("net.py", _OWN, mutate_bytes, sealed=True),
    Kind("web.py", _WEB, mutate_bytes, sealed=True, weight=2),
    Kind("mnist.safetensors", "shift mnist@test mnist@train", mutate_tensors, weight=2),
)
NO_FILES = ("folder", "fifo", "device", "dangling", "loop", "unreadable", "missing")


def try_file(ground: Ground, seed: int, number: int) -> Case:
    """One mutated file."""
    rng = random.Random(f"files:{seed}:{number}")
    kind = rng.choices(KINDS, [kind.weight for kind in KINDS])[0]
    folder = ground.fresh()
    os.chdir(folder)
    path, arguments = folder / kind.path, kind.line.split()
    original, status = path.read_bytes(), path.stat()
    how = "bytes" if rng.random() < 0.35 else "form"
    if rng.random() < 0.02:
        how = rng.choice(NO_FILES)
    case = Case(number, f"{kind.path}, {how}: {kind.line}")
    case.count("files")
    case.count(f"files {kind.path}")
    expected = _expected(kind, folder) if kind.sealed and how not in NO_FILES else None
    if how in ("bytes", "form"):
        changed = (mutate_bytes if how == "bytes" else kind.mutate)(rng, original)
        if changed == original:
            changed = mutate_bytes(rng, original) + b"\0"
        path.write_bytes(changed)
    else:
        _spoil(path, how)
    ended = run(arguments, folder)
    judge(case, arguments, ended)
    if ended.code == 0:
        case.count("files accepted")
        if expected is not None and ended.stdout != expected.stdout and not _fits(path):
            case.violate(f"believed: {expected.stdout!r} became {ended.stdout!r}")
    _restore(path, original)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    for name in ("new", "proof"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return case


_KNOWN: dict[str, Ended] = {}


def _expected(kind: Kind, folder: Path) -> Ended:
    """What the line says about the file as it was."""
    if kind.line not in _KNOWN:
        _KNOWN[kind.line] = run(kind.line.split(), folder)
        assert _KNOWN[kind.line].code == 0, _KNOWN[kind.line]
    return _KNOWN[kind.line]


def _fits(path: Path) -> bool:
    """Whether a changed file was given a digest that fits: a forgery, which no digest finds."""
    try:
        if path.suffix == ".json":
            verify_checksum(json.loads(path.read_bytes()), path)
        elif path.suffix == ".safetensors":
            load_tensors(path)
        return path.suffix in (".json", ".safetensors")
    except (CertusError, ValueError, TypeError, OSError):
        return False


def _spoil(path: Path, how: str) -> None:
    """Something else than a file that can be read."""
    path.unlink()
    match how:
        case "folder":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "unreadable":
            path.touch(mode=0)


def _restore(path: Path, original: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.write_bytes(original)
