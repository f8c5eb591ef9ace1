"""The test folder of commands: files of every kind that certus reads, made once, then copied."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.torch import save_file

from certus.datasets.catalogue import PACKAGES
from certus.datasets.files import FILES
from certus.storage.tensors import load_tensors
from tools.soak.command import run
from tools.soak.entries import local_package
from tools.soak.sandbox import NOBODY

NET = """from torch import nn


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 3))
"""
WEB = """import torch
from torch import nn


class Web(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 4), nn.Linear(4 + shape[0], classes)

    def forward(self, inputs):
        return self.last(torch.cat([nn.functional.elu(self.first(inputs)), inputs], dim=1))
"""
PICTURES = ("png", "jpg", "bmp", "gif", "pgm", "tif")
# Small: whatever concerns its table computes it again.
_FEW = "--samples 4 --local-radii 0 --gamma-rounds 0 --attack-steps 1 --gamma 1 --gamma 8"
_CERTIFY = f"certify run --rho 0.01 {_FEW}"
_CERTIFY_NOISY = "certify run --smoothing 0.5 --draws 4 --votes 5 --rho 0.01 --attack-steps 0"
_CERTIFY_WEB = f"certify web --model web.py:Web --epsilon 0.1 --confidence 0.9 {_FEW} -o proof-web"
_TRAIN = ["train", "csv:data.csv", "--target", "y", "--model", "mlp:4:elu", "--epochs", "2"]

Snapshot = dict[str, tuple[int, int, int]]


def make_box(folder: Path) -> None:
    """Data, weights, runs and a certificate."""
    folder.mkdir(parents=True)
    _make_data(folder)
    _succeed(folder, [*_TRAIN, "--rho", "0.05", "-o", "run"])
    _succeed(folder, [*_TRAIN, "--method", "erm", "-o", "other"])
    _succeed(folder, [*_TRAIN, "--method", "erm", "--model", "net.py:make", "-o", "own"])
    _succeed(folder, [*_TRAIN, "--rho", "0.05", "--model", "web.py:Web", "-o", "web"])
    shutil.copytree(folder / "other", folder / "half")
    for name in ("result.json", "model.safetensors"):
        (folder / "half" / name).unlink()
    _succeed(folder, _CERTIFY.split())
    for shard in (1, 2):
        _succeed(folder, f"{_CERTIFY} --shard {shard}/2 -o part-{shard}".split())
    _succeed(folder, _CERTIFY_WEB.split())
    _succeed(folder, _CERTIFY_NOISY.split())
    save_file(load_tensors(folder / "run" / "model.safetensors")[0], folder / "weights.safetensors")
    (folder / "weights.safetensors").chmod(0o644)  # safetensors leaves it to its owner alone
    kept = dict(PACKAGES)
    local_package()
    _succeed(folder, ["data", "get", "mnist"])
    PACKAGES.update(kept)


def _succeed(folder: Path, arguments: list[str]) -> None:
    ended = run(arguments, folder)
    assert ended.code == 0, (arguments, ended)


def _make_data(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(*rng.normal(size=3).round(4), "xyz"[index % 3]) for index in range(40)]
    lines = ["a,b,c,y", *(",".join(str(cell) for cell in row) for row in rows)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "net.py").write_text(NET)
    (folder / "web.py").write_text(WEB)
    labels = np.arange(30) % 3
    np.savez(folder / "data.npz", inputs=rng.normal(size=(30, 4)), targets=labels)
    for index in range(12):
        kind = folder / "images" / "ab"[index % 2]
        kind.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (4, 4)).astype(np.uint8)
        Image.fromarray(pixels).save(kind / f"{index}.{PICTURES[index % len(PICTURES)]}")
    (folder / "idx").mkdir()
    for key, name in FILES.items():
        count = 24 if key.startswith("train") else 8
        images = key.endswith("images")
        body = rng.integers(0, 256, (count, 4, 4)) if images else np.arange(count) % 3
        axes = body.shape
        content = bytes([0, 0, 8, len(axes)]) + b"".join(size.to_bytes(4, "big") for size in axes)
        content += body.astype(np.uint8).tobytes()
        if key == "test_images":
            (folder / "idx" / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / "idx" / name).write_bytes(content)


def copy_box(box: Path, folder: Path) -> None:
    """The box at another place, owned by whoever commands run as, with what no copy can hold."""
    shutil.rmtree(folder, onerror=_open)
    shutil.copytree(box, folder, ignore=shutil.ignore_patterns("__pycache__"))
    os.mkfifo(folder / "pipe")
    (folder / "link.csv").symlink_to("data.csv")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "empty").touch()
    (folder / "locked").mkdir(mode=0o500)
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _open(function: object, path: str, problem: object) -> None:
    """Remove what a locked folder holds, too; what is not there need not be removed."""
    if os.path.exists(path):
        os.chmod(os.path.dirname(path), 0o700)
        os.chmod(path, 0o700)
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


def snapshot(folder: Path) -> Snapshot:
    """What lies in a folder: of each path its type, size and time of change."""
    result: Snapshot = {}
    _look(str(folder), "", result)
    return result


def _look(folder: str, prefix: str, result: Snapshot) -> None:
    for entry in os.scandir(folder):
        status, name = entry.stat(follow_symlinks=False), prefix + entry.name
        plain = stat.S_ISREG(status.st_mode)
        result[name] = (
            stat.S_IFMT(status.st_mode),
            status.st_size if plain else 0,
            status.st_mtime_ns if plain else 0,
        )
        if entry.is_dir(follow_symlinks=False):
            _look(entry.path, f"{name}/", result)


def changes(box: Path, folder: Path, before: Snapshot, after: Snapshot) -> tuple[set[str], set[str]]:
    """Paths of the box that are gone or different, and paths that are new."""
    altered = {
        path
        for path, was in before.items()
        if after.get(path) != was and not _same(box / path, folder / path, was, after.get(path))
    }
    return altered, after.keys() - before.keys()


def _same(box: Path, copy: Path, was: tuple[int, int, int], now: tuple[int, int, int] | None) -> bool:
    if now is None or was[:2] != now[:2] or not stat.S_ISREG(was[0]):
        return False
    return box.exists() and box.read_bytes() == copy.read_bytes()
