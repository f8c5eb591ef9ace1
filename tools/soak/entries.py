"""One entry for each command of the app: lines that work in the box, and one that is killed.

Commands that write in more than one way have entries in ``KILLED`` beside their own.
``tests/tools/test_soak.py`` compares the names with those that the app has: a new command needs an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from certus.cli.app import app
from certus.datasets import catalogue
from certus.datasets.fetching import Package


def commands() -> dict[str, Any]:
    """Every command that the app has, by the words that call it."""

    def walk(words: str, command: Any) -> Iterator[tuple[str, Any]]:
        if not hasattr(command, "commands"):
            yield words, command
            return
        for name, inner in command.commands.items():
            yield from walk(f"{words} {name}".strip(), inner)

    return dict(walk("", app))


def _nothing() -> None:
    """What most commands need beforehand."""


@dataclass(frozen=True)
class Entry:
    """A command in the box.

    Attributes:
        line: what is killed, and then asked for again; others: more lines that work.
        makes: what the line makes or changes, files and folders.
        before: called in the process of the command, before it.
    """

    line: str
    others: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    before: Callable[[], None] = _nothing

    @property
    def lines(self) -> tuple[list[str], ...]:
        return tuple(each.split() for each in (self.line, *self.others))


def local_package() -> None:
    """A package of mnist's name that is made on the spot: no network, and small."""

    def download(folder: Path) -> Path:
        (folder / "archive").write_bytes(b"downloaded")
        return folder

    def convert(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
        return {"images": np.zeros((5, 3), np.uint8), "labels": np.arange(5, dtype=np.int16)}

    package = Package("mnist", "made here", download, convert, lambda _: {"rows": "5"}, {}, "wait")
    catalogue.PACKAGES["mnist"] = package


_DATA = "csv:data.csv --target y"
_TRAIN = f"train {_DATA} --model mlp:4:elu --epochs 2 --batch-size 32"
_ATTACK = "--epsilon 0.1 --steps 2 --samples 8"
_CERTIFY = "--rho 0.01 --samples 6 --local-radii 1 --gamma-rounds 0 --attack-steps 2"
_SMOOTHING = "certify run --smoothing 0.5 --draws 4 --votes 8 --rho 0.01 --attack-steps 1 -o proof"
_COARSE = "--local-radii 0 --gamma-rounds 0"
_EPSILON = f"certify web --model web.py:Web --epsilon 0.1 --confidence 0.9 {_COARSE} -o proof"
_NOISE = f"{_TRAIN} --gamma 2 --noise 0.25 --loss bounded -o new"

ENTRIES = {
    "train": Entry(
        f"{_TRAIN} --rho 0.05 -o new",
        (
            f"{_TRAIN} --method pgd --epsilon 0.1 --steps 2 -o new",
            f"{_TRAIN} --method erm -o new --tensorboard logs --json",
            "train npz:data.npz --gamma 2 --model mlp:4:tanh --epochs 1 -o new",
            "train folder:images --method erm --model mlp:4:elu --epochs 1 -o new",
            "train idx:idx --method erm --model mlp:4:elu --epochs 1 -o new",
            "train csv:data.csv --target y --certified --gamma 1.5 --model certified-mlp:4 --epochs 1 -o new",
            "train csv:data.csv --target y --model net.py:make --method erm --epochs 1 -o new",
            "train csv:data.csv --target y --model web.py:Web --rho 0.05 --epochs 1 -o new",
            _NOISE,
        ),
        makes=("new",),
    ),
    "resume": Entry("resume half", ("resume run", "resume run --json"), makes=("half",)),
    "import": Entry(
        f"import --weights weights.safetensors --data {_DATA} --model mlp:4:elu -o new", makes=("new",)
    ),
    "attack": Entry(
        f"attack run {_ATTACK} -o attack.json --plot attack.png",
        (f"attack run --attack fgsm --norm 2 {_ATTACK}", "attack run --nearest --steps 2 --samples 4 --json"),
        makes=("attack.json", "attack.png"),
    ),
    "compare": Entry(
        f"compare run other {_ATTACK} -o compare.json --plot compare.png",
        makes=("compare.json", "compare.png"),
    ),
    "runs": Entry("runs .", ("runs . --json",)),
    "report": Entry(
        "report run --samples 6 -o page.html",
        ("report run other --samples 4 -o page.html --figures drawn",),
        makes=("page.html", "drawn"),
    ),
    "smoothness": Entry(
        "smoothness run --samples 4", ("smoothness run --samples 0 --json",), makes=("run/smoothness.png",)
    ),
    "certify": Entry(
        f"certify run {_CERTIFY} -o proof",
        (
            f"certify run {_CERTIFY} -o proof --confidence 0.9 --json",
            f"certify other --rho 0.1 --samples 4 {_COARSE} --attack-steps 0 --label-cost 1",
            f"{_SMOOTHING} --json",
            f"{_EPSILON} --json",
        ),
        makes=("proof",),
    ),
    "audit": Entry(
        f"audit mlp:4:elu --weights weights.safetensors --data {_DATA} --epsilon 1/10 -o audited",
        makes=("audited",),
    ),
    "merge": Entry("merge part-1 part-2 -o proof", makes=("proof",)),
    "verify": Entry("verify run/certificate/certificate.json"),
    "bundle": Entry("bundle run --no-report -o evidence.zip", makes=("evidence.zip",)),
    "gate": Entry(
        "gate run --require error<=1 --require accuracy@pgd:inf:0.1>=0 --junit gate.xml",
        ("gate run --require loss<=100 --json",),
        makes=("gate.xml",),
    ),
    "distance": Entry("distance csv:data.csv@test csv:data.csv@train --label-cost 1 --samples 10"),
    "monitor": Entry(
        "monitor run csv:data.csv@test -o seen.jsonl --plot seen.png",
        (
            "monitor run csv:data.csv@test --chunks 20 --horizon 12 -o seen.jsonl --plot seen.png --json",
            "monitor run csv:data.csv@test --columns a -o seen.jsonl --plot seen.png",
        ),
        makes=("seen.jsonl", "seen.png"),
    ),
    "predict": Entry("predict run data.csv --reach 0.1 -o said.csv", makes=("said.csv",)),
    "sensitivity": Entry(
        "sensitivity run --samples 4 --plot bars.png",
        ("sensitivity run --samples 4 --json", "sensitivity run --feature a --by 0.1 --samples 4"),
        makes=("bars.png",),
    ),
    "export": Entry("export run -o net.pt2", makes=("net.pt2",)),
    "data list": Entry("data list"),
    "data describe": Entry("data describe data.csv --target y"),
    "data get": Entry("data get mnist", makes=("mnist.safetensors",), before=local_package),
}

KILLED = {name: entry for name, entry in ENTRIES.items() if entry.makes} | {
    "train --noise": Entry(_NOISE, makes=("new",)),
    "certify --smoothing": Entry(_SMOOTHING, makes=("proof",)),
    "certify --epsilon": Entry(_EPSILON, makes=("proof",)),
}
"""Everything that writes, by a name."""
