"""How long a certificate takes, and how wide it is: MNIST's test images, one thread, 20 values of ρ.

    certus data get mnist
    python -m benchmarks.certificates                   # every entry, some ten minutes
    python -m benchmarks.certificates --entries cnn     # this one; the others stay as they are

Entries, each with the brackets of loss and error rate and their time:

mlp                 784-512-10 ELU network, briefly trained by WRM, all 10,000 images, no attacks
mlp_1000            the same on 1,000 of them, chosen at random
mlp_1000_attacked   with PGD within cost ρ and a search for nearest errors, 5 gradients each
cnn                 the paper's network and γ = 0.3846, 60 steps of WRM, 100 random images: which part of that
                    curve is proven, and which only estimated
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus.data import Samples, Subset
from certus.datasets import SplitDataset
from certus.inner.methods import Method

RHOS = [round(10 ** (-3 + 3 * index / 19), 6) for index in range(20)]


@dataclass(frozen=True)
class Entry:
    """A network, trained for some steps of WRM at ``gamma`` (Adam 0.001, batches of 128), on some images."""

    network: str
    gamma: float
    steps: int
    images: int
    epochs: int = 1
    attack_steps: int = 0
    balls: int = 2
    refine: int = 0


_MLP = Entry("784-512-10, ELU", gamma=1.0, steps=150, epochs=2, images=10_000)
_CNN = "the paper's MNIST network: three convolutions, ELU, 710,218 parameters"
ENTRIES = {
    "mlp": _MLP,
    "mlp_1000": replace(_MLP, images=1_000),
    "mlp_1000_attacked": replace(_MLP, images=1_000, attack_steps=5),
    "cnn": Entry(_CNN, gamma=0.3846, steps=60, images=100, balls=0, refine=1),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "what to certify", Entries(ENTRIES)] = tuple(ENTRIES)
    share: Annotated[float, "of each entry's training steps and images, for a quick look"] = 1.0
    data: Annotated[str, "images of 28 x 28 pixels in ten classes, as for `certus train`"] = "mnist"
    seed: Annotated[int, "of the weights, the batches and the images"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/certificates.json")


def main(args: Args) -> None:
    torch.set_num_threads(1)
    data = certus.datasets.load(args.data)
    for name in args.entries:
        write_entry(args, name, certify(ENTRIES[name], data, args))


def certify(entry: Entry, data: SplitDataset, args: Args) -> dict[str, Any]:
    """The certificate of one entry, with its time."""
    torch.manual_seed(args.seed)
    model = network(entry)
    steps, images = (max(1, round(args.share * number)) for number in (entry.steps, entry.images))
    train(model, data.train[: steps * 128], certus.WRM(entry.gamma, domain=data.domain), entry.epochs)
    # Plain, not stratified: the population bounds want independent samples.
    chosen = Subset.of(data.test, f"{args.data}@test", images, seed=args.seed, stratify=False)
    about = f"{entry.network}; after {steps * entry.epochs} steps of WRM at gamma = {entry.gamma}"
    started, busy = time.perf_counter(), time.process_time()
    result = certus.certify(
        model,
        chosen.data,
        rho=RHOS,
        domain=data.domain,
        confidence=0.95,
        seed=args.seed,
        attack_steps=entry.attack_steps,
        local_radii=entry.balls,
        gamma_rounds=entry.refine,
    )
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    print(
        f"{about}: {chosen.words}, {len(RHOS)} values of rho, {len(result.dual_values)} of gamma: "
        f"{seconds:.0f} s, {busy:.0f} s of the processor"
    )
    for item in result.curve():
        print(
            f"rho {item.rho:<8g} loss {item.loss_low:.3f} – {item.loss_high:.3f} "
            f"(estimate {item.loss_estimate:.3f})  "
            f"error {item.error_low:.3f} – {item.error_high:.3f}  population: "
            f"loss {item.population_loss_low:.3f} – {item.population_loss:.3f} "
            f"error {item.population_error_low:.3f} – {item.population_error:.3f}"
        )
    shape = tuple(data.test.inputs.shape[1:])
    return {
        "about": about,
        **asdict(entry),
        "steps": steps,
        "images": len(chosen.data),
        "rows": chosen.as_json(),
        "values_of_rho": len(RHOS),
        "levels_of_gamma": len(result.dual_values),
        "seconds": round(seconds, 1),
        "processor_seconds": round(busy, 1),
        "pushes": len(result.attacks),
        "lipschitz": certus.input_smoothness(model, input_shape=shape).lipschitz,
        "brackets": [asdict(item) for item in result.curve()],
    }


def network(entry: Entry) -> nn.Module:
    if entry.network == _CNN:
        return certus.models.mnist_cnn()
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 10))


def train(model: nn.Module, data: Samples, method: Method, epochs: int) -> None:
    """Briefly, in float32."""
    loss, optimizer = certus.ModelLoss(model), torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(data)).split(128):
            moved = method(loss, data.inputs[batch], data.targets[batch])
            loss(moved, data.targets[batch]).mean().backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
