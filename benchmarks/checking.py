"""The check of a stored certificate beside making it: processor time of one thread, and sizes of the files.

python -m benchmarks.checking      # scikit-learn's digits, a dense and a convolutional network, 359 rows
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import torch
from torch import nn

import certus
from certus.certificates import Certificate
from certus.datasets import load
from certus.domains import Box
from certus.kernel.check import FILES, ROWS, check

ROUNDS = 3


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


def main() -> None:
    torch.set_num_threads(1)
    data = load("digits")
    train, test = data.train, data.test
    for name, model in networks().items():
        shape = (-1, 1, 8, 8)
        fitted(model, train.inputs.reshape(shape).float(), train.targets)
        rows = test.inputs.reshape(shape)[:359], test.targets[:359]
        seconds: dict[str, list[float]] = {"certify": [], "save": [], "check": []}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "certificate.json"
            for _ in range(ROUNDS):
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
        medians = ", ".join(f"{verb} {sorted(each)[ROUNDS // 2]:.2f} s" for verb, each in seconds.items())
        words = ", ".join(f"{each} {size:,} bytes" for each, size in sizes.items())
        print(f"{name}, {len(rows[0])} rows: {medians}; {words}")


if __name__ == "__main__":
    main()
