"""Memory and time of a certificate by the number of rows, on a network of ten inputs.

The rows are made when they are read, each portion from a seed of its own, so that no data set is in memory.
Each size has a process of its own; its peak of resident memory (VmHWM) is beyond that of a small certificate.

    python -m benchmarks.rows                           # 1,000 to 100,000 rows: some ten minutes
    python -m benchmarks.rows --rows 1000000 --output x.json --checkpoint unfinished
"""

from __future__ import annotations

import gc
import multiprocessing
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result

_PORTION = 4096


@dataclass(frozen=True)
class Args:
    rows: Annotated[tuple[int, ...], "numbers of rows"] = (1_000, 10_000, 100_000)
    hidden: Annotated[int, "units of the hidden layer"] = 32
    jobs: Annotated[int, "worker processes"] = 1
    checkpoint: Annotated[str, "folder for finished portions; none if empty"] = ""
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/rows.json")


@dataclass(frozen=True)
class MadeRows:
    """Batches of normal rows with ten inputs; labels are the sign of a quadratic form of three of them."""

    count: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.count, _PORTION):
            generator = torch.Generator().manual_seed(start)
            inputs = torch.randn(min(_PORTION, self.count - start), 10, generator=generator)
            yield inputs, (inputs[:, 0] + inputs[:, 1] * inputs[:, 2] > 0).long()


def main(args: Args) -> None:
    context, measured = multiprocessing.get_context("spawn"), []
    for count in args.rows:
        with context.Pool(1) as pool:
            measured.append(pool.apply(measure, (count, args)))
        print(measured[-1], flush=True)
    write_result(args, {"rows": measured})


def measure(count: int, args: Args) -> dict[str, Any]:
    torch.set_num_threads(1)
    model = trained(args.hidden)
    certify(model, 1024, args, "")  # loads what is loaded when it is first used
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    before, start, wall = _status("VmRSS"), time.process_time(), time.perf_counter()
    certificate = certify(model, count, args, args.checkpoint and f"{args.checkpoint}-{count}")
    bracket = certificate.bracket(0.01)
    return {
        "rows": count,
        "milliseconds_a_row": round(1000 * (time.process_time() - start) / count, 3),
        "wall_seconds": round(time.perf_counter() - wall, 1),
        "peak_bytes_beyond_start": _status("VmHWM") - before,
        "gammas": len(certificate.aggregates),
        "loss": [bracket.loss_low, bracket.loss_high],
        "error": [bracket.error_low, bracket.error_high],
    }


def certify(model: nn.Module, count: int, args: Args, checkpoint: str) -> certus.Certificate:
    return certus.certify(
        model,
        MadeRows(count),
        rho=(0.001, 0.01),
        n_jobs=args.jobs,
        checkpoint=checkpoint or None,
        progress=False,
    )


def trained(hidden: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, hidden), nn.Softplus(), nn.Linear(hidden, 2))
    (inputs, labels), *_ = MadeRows(2048)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def _status(name: str) -> int:
    """Bytes of this process. Not ru_maxrss: a process inherits that of the one that started it."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
