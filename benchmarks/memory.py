"""The peak memory of ``fit`` and ``certify`` on data that stream, then on ten and a hundred times as many.

The rows are made when they are asked for, each from a seed of its own, so that no data set is in memory.
Every measurement has a process of its own. Its peak is what Linux calls VmHWM, the most memory that was
resident, which counts torch's as everything else; what was resident before the call stands beside it.
``certify`` keeps five numbers of 8 bytes for each sample and γ, and the surroundings of the first 10,240
samples, so it grows up to there and hardly after.

    python -m benchmarks.memory
"""

from __future__ import annotations

import gc
import multiprocessing
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.certificates.engine import HELD
from certus.certificates.problem import BATCH


@dataclass(frozen=True)
class Args:
    rows: Annotated[int, "of the smallest data set"] = 1024
    times: Annotated[tuple[int, ...], "how many times as many"] = (1, 10, 100)
    features: Annotated[int, "of each row"] = 256
    hidden: Annotated[int, "units of the network"] = 16
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/memory.json")


class MadeRows(Dataset[Any]):
    """Normal rows whose label is the sign of their first entry; row i comes from the seed i."""

    def __init__(self, count: int, features: int) -> None:
        self.count, self.features = count, features

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        row = torch.randn(self.features, generator=torch.Generator().manual_seed(index))
        return row, int(row[0] > 0)


def main(args: Args) -> None:
    context = multiprocessing.get_context("spawn")
    result: dict[str, list[dict[str, Any]]] = {"fit": [], "certify": []}
    with context.Pool(1, _one_thread, maxtasksperchild=1) as pool:
        for times in args.times:
            for name, measured in result.items():
                count = args.rows * times
                measured.append(pool.apply(measure, (name, count, args.features, args.hidden)))
                print(name, measured[-1], flush=True)
    write_result(args, {"held_samples": HELD * BATCH, **result})


def _one_thread() -> None:
    torch.set_num_threads(1)


def measure(name: str, count: int, features: int, hidden: int) -> dict[str, Any]:
    """Bytes before the call, and at its peak."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(features, hidden), nn.Softplus(), nn.Linear(hidden, 2))
    warm, rows = MadeRows(BATCH, features), MadeRows(count, features)
    _run(name, model, warm)  # loads what is loaded when it is first used
    gc.collect()
    before, start = _status("VmRSS"), time.process_time()
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to what is resident now
    levels = _run(name, model, rows)
    return {
        "rows": count,
        "peak_bytes": _status("VmHWM"),
        "before_bytes": before,
        "data_bytes": count * features * torch.get_default_dtype().itemsize,
        "gammas": levels,
        "processor_seconds": round(time.process_time() - start, 1),
    }


def _run(name: str, model: nn.Module, rows: MadeRows) -> int:
    """One epoch, or a certificate; how many γ it has."""
    if name == "fit":
        certus.fit(model, rows, method=certus.WRM(gamma=4.0), epochs=1)
        return 1
    result = certus.certify(model, rows, rho=0.01, gammas=(8.0, 4.0, 2.0, 1.0), local_radii=1, attack_steps=1)
    return len(result.dual_values)


def _status(name: str) -> int:
    """Of this process. Not ru_maxrss: a process inherits that of the one that started it."""
    result = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert result is not None
    return int(result[1]) * 1024


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
