"""The zoo of ``tests/bounds/zoo.py``, networks as people write them: how loose bounds are, and what they
cost.

Every network is read and bounded in the size that it is known in, most at 3×32×32, in a process of its own:
processor time, peak memory, and the bounds beside what an ascent attains. The small one of its kind is
attacked at length. Any bound that is exceeded ends the measurement.

    python -m benchmarks.zoo
    python -m benchmarks.zoo --entries resnet18 lenet    # these; the others stay as they are
"""

from __future__ import annotations

import math
import multiprocessing
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

import certus
from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus.bounds.analysis import Analysis
from certus.errors import ContradictionError
from certus.losses import CrossEntropy
from tests.bounds.ascent import climb, margin_loss
from tests.bounds.attacked import attack_animal
from tests.bounds.zoo import KINKED_ZOO, SMOOTH_ZOO

ZOO = SMOOTH_ZOO | KINKED_ZOO


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "networks of the zoo", Entries(ZOO)] = tuple(ZOO)
    steps: Annotated[int, "of each ascent on the small ones"] = 20
    full_steps: Annotated[int, "of the ascent on those of full size"] = 6
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/zoo.json")


def main(args: Args) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, _one_thread, maxtasksperchild=1) as pool:  # peak memory is a process's own
        for name in args.entries:
            result = {
                "small": pool.apply(small, (name, args.steps)),
                "full": pool.apply(full, (name, args.full_steps)),
            }
            print(name, result, flush=True)
            write_entry(args, name, result)


def _one_thread() -> None:
    torch.set_num_threads(1)


def small(name: str, steps: int) -> dict[str, Any]:
    """Bound/attained of the curvature and slope of the loss, and of its mean within ρ."""
    result = attack_animal(ZOO[name], steps)
    if result.violations:
        raise ContradictionError("A bound was exceeded: " + "; ".join(result.violations))
    kept = {"curvature": "curvature", "slope": "lipschitz", "loss": "loss"}
    ratios = {name: ratio(*result.pairs[key]) for name, key in kept.items()}
    return {"depth": result.depth, "bounds": len(result.pairs), **ratios}


def full(name: str, steps: int) -> dict[str, Any]:
    """What it takes to read and to bound a network, and bound/attained as far as a short ascent comes."""
    animal = ZOO[name]
    model, shape = animal.make(full=True), animal.full_shape
    with torch.no_grad():
        model(torch.zeros(2, *shape, dtype=torch.float64))
    before, start = _peak(), time.process_time()
    analysis = Analysis(model, CrossEntropy(), input_shape=shape)
    read = time.process_time()
    bound = certus.input_smoothness(analysis)
    done, peak = time.process_time(), _peak()
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    reached = climb(margin_loss(model, torch.tensor([0, 1])), points, steps=steps)
    pairs = {
        "curvature": (float(reached.curvature.max()), bound.curvature),
        "slope": (float(reached.slope.max()), bound.lipschitz),
    }
    if any(not attained <= most for attained, most in pairs.values()):
        raise ContradictionError(f"A bound of {name} was exceeded: {pairs}")
    return {
        "depth": animal.full_depth,
        "weights": sum(weight.numel() for weight in model.parameters()),
        "read_seconds": read - start,
        "bound_seconds": done - read,
        "peak_megabytes": peak,
        "before_megabytes": before,
        **{name: ratio(*pair) for name, pair in pairs.items()},
    }


def ratio(attained: float, bound: float) -> float | None:
    """None where the bound is infinite, or nothing was attained."""
    return bound / attained if attained > 0 and math.isfinite(bound) else None


def _peak() -> float:
    """Of this process, in MB: Linux counts in KB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
