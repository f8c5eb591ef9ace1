"""What ``certified=True`` adds to an epoch of WRM: the same network, data and steps, with and without it.

    certus data get mnist
    python -m benchmarks.certified

Both take turns in one process; the ratio is that of the fastest epochs. The proof at the end of an epoch,
some tenths of a second for these networks, is not counted.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import certus
from certus.data import DataSet, load
from certus.models import build_model
from certus.training import fit


@dataclass(frozen=True)
class Args:
    gamma: float = 1.5
    samples: int = 10_240
    repeats: int = 3
    # name, data, network, batch size
    cases: tuple[tuple[str, str, str, int], ...] = (
        ("mnist, 100 components", "mnist", "certified-mlp:1024:logcosh:100", 512),
        ("mnist, 256 components (default)", "mnist", "certified-mlp", 512),
        ("mnist, 256 components, small batches", "mnist", "certified-mlp", 128),
        ("mnist, all 784 inputs", "mnist", "certified-mlp:1024:logcosh:0", 512),
        ("digits", "digits", "certified-mlp", 128),
    )
    output: Path = Path("benchmarks/results/certified.json")


def main(args: Args) -> None:
    found = {}
    for name, source, network, batch_size in args.cases:
        data = load(source, seed=0)
        epochs = {
            kind: min(_epoch(data, network, kind, batch_size, args) for _ in range(args.repeats))
            for kind in (False, True)
        }
        ratio = epochs[True] / epochs[False]
        found[name] = {"plain": epochs[False], "certified": epochs[True], "ratio": ratio}
        print(
            f"{name:40s} plain {epochs[False]:.2f} s, certified {epochs[True]:.2f} s, ratio {ratio:.2f}",
            flush=True,
        )
    args.output.parent.mkdir(parents=True, exist_ok=True)
    content = {"args": {key: str(value) for key, value in asdict(args).items()}, "seconds": found}
    args.output.write_text(json.dumps(content, indent=1) + "\n")


def _epoch(data: DataSet, network: str, certified: bool, batch_size: int, args: Args) -> float:
    """Seconds of one epoch."""
    model = build_model(network, data, seed=0)
    wrm = certus.WRM(args.gamma)
    train = data.train[: args.samples]
    done = fit(model, train, method=wrm, certified=certified, epochs=1, batch_size=batch_size)
    return done.history[0].seconds


if __name__ == "__main__":
    main(Args())
