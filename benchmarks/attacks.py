"""PGM in L2 and in the sup-norm: samples per second beside torchattacks, foolbox and ART, in one run.

All attack the paper's MNIST network, at equal radius, steps and step size, from a random start, clipped to
[0, 1]. They take turns, and the best turn of each counts: noise only ever adds. One thread, timed by the
processor's clock, which other work disturbs less than the wall's.

    python -m benchmarks.attacks

Libraries that are not installed are left out, and said so. Ratios within this run are the result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import certus
from certus.attacks import pgm

Attack = Callable[[], object]


@dataclass(frozen=True)
class Args:
    batch_size: int = 128
    steps: int = 15
    epsilons: tuple[tuple[float, float], ...] = ((2.0, 1.0), (float("inf"), 0.1))
    turns: int = 9
    threads: int = 1  # with more, they wait for each other, and the waiting is what would be compared
    seed: int = 0
    output: Path = Path("benchmarks/results/attacks.json")


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = certus.models.mnist_cnn().eval()
    inputs = torch.rand(args.batch_size, 1, 28, 28)
    labels = torch.randint(10, (args.batch_size,))
    rows = []
    for norm, epsilon in args.epsilons:
        attacks: dict[str, Attack] = {}
        for name, make in MAKERS.items():
            try:
                attacks[name] = make(model, inputs, labels, norm, epsilon, args.steps)
            except ImportError as reason:
                print(f"{name} is left out: {reason}")
        best = best_times(attacks, args.turns)
        others = {name: seconds for name, seconds in best.items() if name not in ("certus", "bare gradients")}
        fastest = min(others, key=lambda name: others[name], default=None)
        rows.append(
            {
                "norm": f"{norm:g}",
                "epsilon": epsilon,
                "samples_per_second": {name: args.batch_size / seconds for name, seconds in best.items()},
                "times_certus": {name: seconds / best["certus"] for name, seconds in best.items()},
                "fastest_other": fastest,
            }
        )
        print(f"PGM-{norm:g}, {args.steps} steps, batch {args.batch_size}:")
        for name, seconds in sorted(best.items(), key=lambda pair: pair[1]):
            speed = args.batch_size / seconds
            print(f"  {name:15s} {speed:8.1f} samples/s  {seconds / best['certus']:6.3f} times certus' time")
    content = {
        "args": {name: str(value) for name, value in asdict(args).items()},
        "torch": torch.__version__,
        "rows": rows,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(content, indent=2) + "\n")
    print(f"written to {args.output}")


def best_times(attacks: dict[str, Attack], turns: int) -> dict[str, float]:
    """Seconds of the best turn of each; the order rotates, so that no one always follows the same other."""
    best = dict.fromkeys(attacks, float("inf"))
    names = list(attacks)
    for turn in range(turns + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.process_time()
            attacks[name]()
            if turn > 0:  # the first warms up
                best[name] = min(best[name], time.process_time() - start)
    return best


def with_certus(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int
) -> Attack:
    attack = pgm(epsilon, norm, steps=steps, domain=certus.Box(0, 1))
    return lambda: attack(certus.ModelLoss(model), inputs, labels)


def with_torchattacks(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int
) -> Attack:
    library = import_module("torchattacks")
    kind = library.PGDL2 if norm == 2 else library.PGD
    attack = kind(model, eps=epsilon, alpha=2.5 * epsilon / steps, steps=steps, random_start=True)
    return lambda: attack(inputs, labels)


def with_foolbox(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int
) -> Attack:
    library = import_module("foolbox")
    kind = library.attacks.L2PGD if norm == 2 else library.attacks.LinfPGD
    attack = kind(abs_stepsize=2.5 * epsilon / steps, steps=steps)
    wrapped = library.PyTorchModel(model, bounds=(0, 1))
    return lambda: attack(wrapped, inputs, labels, epsilons=epsilon)


def with_art(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int
) -> Attack:
    evasion = import_module("art.attacks.evasion")
    classifiers = import_module("art.estimators.classification")
    classifier = classifiers.PyTorchClassifier(
        model, nn.CrossEntropyLoss(), input_shape=(1, 28, 28), nb_classes=10, clip_values=(0.0, 1.0)
    )
    options: dict[str, Any] = {"eps": epsilon, "eps_step": 2.5 * epsilon / steps, "max_iter": steps}
    attack = evasion.ProjectedGradientDescentPyTorch(
        classifier,
        norm=norm if norm != 2 else 2,
        num_random_init=1,
        batch_size=len(inputs),
        verbose=False,
        **options,
    )
    images, hot = inputs.numpy(), labels.numpy()
    return lambda: attack.generate(images, hot)


def bare(model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int) -> Attack:
    """Nothing but the gradients: what no attack can beat without computing something else."""

    def run() -> None:
        for _ in range(steps):
            leaf = inputs.detach().requires_grad_()
            torch.autograd.grad(nn.functional.cross_entropy(model(leaf), labels, reduction="sum"), leaf)

    return run


MAKERS = {
    "certus": with_certus,
    "torchattacks": with_torchattacks,
    "foolbox": with_foolbox,
    "ART": with_art,
    "bare gradients": bare,
}

if __name__ == "__main__":
    main(Args())
