"""How long a certificate takes: all 10,000 test images of MNIST, a smooth 784-512-10 network, 20 values of ρ.

    python -m benchmarks.certificates [--cnn] [--attack-steps 3]

Written to benchmarks/results/certificates.json: brackets of loss and error rate with their time; with --cnn
those of the paper's network at its γ = 0.3846, on some images: which part of that curve is proven, and which
only estimated. Without attacks the lower sides rest on the ascents alone; with them on PGM within cost ρ and
on a search for nearest errors as well.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import certus
from certus.data import Split
from certus.training import Perturber

RHOS = [round(10 ** (-3 + 3 * index / 19), 6) for index in range(20)]
RESULT = Path(__file__).parent / "results/certificates.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cnn", action="store_true", help="the paper's network instead")
    parser.add_argument("--samples", type=int, default=None)
    parser.add_argument("--attack-steps", type=int, default=0, help="of the attacks on the lower side")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = certus.data.load("mnist")
    torch.manual_seed(0)
    options: dict[str, Any]
    if chosen.cnn:
        name, samples, options = (
            "paper's CNN, gamma = 0.3846",
            chosen.samples or 300,
            {"balls": 0, "refine": 1},
        )
        model: nn.Module = certus.models.mnist_cnn()
        train(model, data.train[: 60 * 128], certus.WRM(0.3846, domain=data.domain), epochs=1)
    else:
        name, samples, options = "784-512-10 ELU", chosen.samples or len(data.test), {"balls": 2, "refine": 0}
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 10))
        train(model, data.train[: 150 * 128], certus.WRM(1.0, domain=data.domain), epochs=2)
    started, busy = time.perf_counter(), time.process_time()
    found = certus.certify(
        model,
        data.test[:samples],
        rho=RHOS,
        domain=data.domain,
        confidence=0.95,
        attack_steps=chosen.attack_steps,
        **options,
    )
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    entry: dict[str, Any] = {
        "network": name,
        "images": samples,
        "values_of_rho": len(RHOS),
        "levels_of_gamma": len(found.levels),
        "seconds": round(seconds, 1),
        "processor_seconds": round(busy, 1),
        "threads": 1,
        "attack_steps": chosen.attack_steps,
        "pushes": len(found.pushes),
        "lipschitz": certus.input_smoothness(model, input_shape=(1, 28, 28)).lipschitz,
        "brackets": [asdict(one) for one in found.curve()],
    }
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    key = ("cnn" if chosen.cnn else "mlp") + (f"_{chosen.samples}" if chosen.samples else "")
    key += "_attacked" if chosen.attack_steps else ""
    RESULT.write_text(json.dumps(known | {key: entry}, indent=1) + "\n")
    print(
        f"{name}: {samples} images, {len(RHOS)} values of rho, {len(found.levels)} of gamma: "
        f"{seconds:.0f} s, {busy:.0f} s of the processor"
    )
    for one in found.curve():
        print(
            f"rho {one.rho:<8g} loss {one.loss_low:.3f} – {one.loss_high:.3f} "
            f"(estimate {one.loss_estimate:.3f})  "
            f"error {one.error_low:.3f} – {one.error_high:.3f}"
        )


def train(model: nn.Module, data: Split, method: Perturber, epochs: int) -> None:
    """Briefly, in float32."""
    loss, optimizer = certus.ModelLoss(model), torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(data)).split(128):
            moved = method(loss, data.inputs[batch], data.targets[batch])
            loss(moved, data.targets[batch]).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
