"""The check of a stored certificate beside making it: processor time of one thread, and sizes of the files.

scikit-learn's digits, 359 rows, a dense and a convolutional network; the median of the repeats.

    python -m benchmarks.checking
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.certificates import Certificate
from certus.datasets import load
from certus.domains import Box
from certus.kernel.check import FILES, ROWS, check


@dataclass(frozen=True)
class Args:
    repeats: Annotated[int, "of each measurement"] = 3
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/checking.json")


def networks() -> dict[str, nn.Module]:
    """The networks, untrained: times depend on their shapes."""
    torch.manual_seed(0)
    return {
        "mlp 64-32-10, ELU": nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ELU(), nn.Linear(32, 10)),
        "cnn 8 maps 3x3, ELU": nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ELU(), nn.Flatten(), nn.Linear(128, 10)
        ),
    }


def fitted(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> nn.Module:
    """The network after 300 steps of Adam on all rows."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model


def main(args: Args) -> None:
    torch.set_num_threads(1)
    measured: dict[str, Any] = {}
    data = load("digits")
    train, test = data.train, data.test
    for name, model in networks().items():
        shape = (-1, 1, 8, 8)
        fitted(model, train.inputs.reshape(shape).float(), train.targets)
        rows = test.inputs.reshape(shape)[:359], test.targets[:359]
        seconds: dict[str, list[float]] = {"certify": [], "save": [], "check": []}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "certificate.json"
            for _ in range(args.repeats):
                start = time.process_time()
                certificate = certus.certify(model, rows, rho=[0.01, 0.1], domain=Box(0, 1), progress=False)
                assert isinstance(certificate, Certificate)
                made = time.process_time()
                certificate.save(file, include_data=True)
                saved = time.process_time()
                assert check(file).verified
                ends = made - start, saved - made, time.process_time() - saved
                for times, end in zip(seconds.values(), ends, strict=True):
                    times.append(end)
            sizes = {each: (file.parent / each).stat().st_size for each in (*FILES, ROWS)}
        medians = {f"{verb}_seconds": sorted(each)[args.repeats // 2] for verb, each in seconds.items()}
        measured[name] = {"rows": len(rows[0]), **medians, "bytes": sizes}
        print(name, measured[name], flush=True)
    write_result(args, measured)


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
