"""PGD in L2 and in the sup-norm: samples per second beside torchattacks, foolbox and ART, in one run.

All attack the paper's MNIST network, at equal radius, steps and step size, from a random start, clipped to
[0, 1]. They take turns, and each is compared with certus within the same turn: the machine's speed drifts by
several per cent within a minute, and a ratio of neighbours does not. Reported is the median ratio with a 95%
interval. One thread, timed by the processor's clock, which other work disturbs less than the wall's.

    python -m benchmarks.attacks
    python -m benchmarks.attacks --entries inf      # this norm; the other stays as it is

Libraries that are not installed are left out, and said so. Ratios within this run are the result.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import torch
from rich.progress import track
from scipy.stats import binom
from torch import Tensor, nn

import certus
from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus.attacks import PGD

Attack = Callable[[], object]
SLOW = ("foolbox", "ART")
PARTS = ("low", "median", "high")


ENTRIES = {"2": (2.0, 1.0), "inf": (math.inf, 0.1)}  # norm and ε


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "the norms", Entries(ENTRIES)] = tuple(ENTRIES)
    batch_size: Annotated[int, "images attacked at once"] = 128
    steps: Annotated[int, "gradient steps of each attack"] = 15
    turns: Annotated[int, "how often each library is timed"] = 31
    slow_turns: Annotated[int, "the same of foolbox and ART, which take half as long again"] = 7
    # With more, they wait for each other, and the waiting is what would be compared.
    threads: Annotated[int, "of torch"] = 1
    seed: Annotated[int, "of weights, images and starts"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/attacks.json")


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    model = certus.models.mnist_cnn().eval()
    inputs = torch.rand(args.batch_size, 1, 28, 28)
    labels = torch.randint(10, (args.batch_size,))
    for name in args.entries:
        write_entry(args, name, compare(model, inputs, labels, *ENTRIES[name], args))


def compare(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, args: Args
) -> dict[str, Any]:
    """Speeds, and ratios of times to that of certus, in one norm."""
    attacks: dict[str, Attack] = {}
    for name, make in MAKERS.items():
        try:
            attacks[name] = make(model, inputs, labels, norm, epsilon, args.steps)
        except ImportError as reason:
            print(f"{name} is left out: {reason}")
    times = take_turns(attacks, args)
    ratios = {
        name: median_interval([other / own for other, own in zip(spent, times["certus"], strict=False)])
        for name, spent in times.items()
        if name != "certus"
    }
    speed = {name: args.batch_size / statistics.median(spent) for name, spent in times.items()}
    print(f"PGD-{norm:g}, {args.steps} steps, batch {args.batch_size}:")
    print(f"  {'certus':15s} attacks {speed['certus']:.1f} samples/s")
    for name, (low, middle, high) in sorted(ratios.items(), key=lambda pair: pair[1][1]):
        print(f"  {name:15s} takes {middle:.3f} times certus' time, 95% [{low:.3f}, {high:.3f}]")
    return {
        "epsilon": epsilon,
        "samples_per_second": speed,
        "times_certus": {name: dict(zip(PARTS, ratio, strict=True)) for name, ratio in ratios.items()},
    }


def take_turns(attacks: dict[str, Attack], args: Args) -> dict[str, list[float]]:
    """Seconds of each turn; the order rotates, so that no one always follows the same other."""
    times: dict[str, list[float]] = {name: [] for name in attacks}
    for turn in track(range(args.turns + 1), transient=True):
        names = [name for name in attacks if name not in SLOW or turn <= args.slow_turns]
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.process_time()
            attacks[name]()
            if turn > 0:  # the first warms up
                times[name].append(time.process_time() - start)
    return times


def median_interval(values: list[float]) -> tuple[float, float, float]:
    """Lower end, median and upper end: order statistics, by the binomial law of how many lie below it."""
    ordered = sorted(values)
    outside = int(binom.ppf(0.025, len(ordered), 0.5))
    first = max(outside - 1, 0)
    return ordered[first], statistics.median(ordered), ordered[len(ordered) - 1 - first]


def with_certus(
    model: nn.Module, inputs: Tensor, labels: Tensor, norm: float, epsilon: float, steps: int
) -> Attack:
    attack = PGD(epsilon, norm, steps=steps, domain=certus.Box(0, 1))
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
    perform(main, read_options(Args, __doc__))
