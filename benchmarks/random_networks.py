"""How far the smoothness bounds are above what an ascent attains, on random networks, by depth.

The networks and the ascent are those of ``tests/smoothness``: convolutions, groups, strides, pooling,
branches and chains of affine layers, up to 3×32×32 inputs. Any bound that is exceeded ends the measurement.

    python -m benchmarks.random_networks
    python -m benchmarks.random_networks --resume
    python -m benchmarks.random_networks --networks 100 --output /tmp/some.json
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch

from benchmarks._options import OUTPUT, RESUME, perform, read_options
from benchmarks._results import read_unfinished, write_result, write_unfinished
from tests.bounds.attacked import Attacked, attack

_PORTION = 40


@dataclass(frozen=True)
class Args:
    networks: Annotated[int, "how many; the first has seed 0"] = 2000
    steps: Annotated[int, "of each ascent"] = 40
    processes: Annotated[int, "that attack side by side, one thread each"] = 2
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/random_networks.json")


def main(args: Args) -> None:
    parts = read_unfinished(args)
    with multiprocessing.get_context("spawn").Pool(args.processes, _one_thread) as pool:
        for start in range(len(parts), args.networks, _PORTION):
            seeds = range(start, min(start + _PORTION, args.networks))
            for result in pool.starmap(attack, [(seed, args.steps) for seed in seeds], chunksize=1):
                if result.violations:
                    sys.exit("\n".join(["A bound was exceeded.", *result.violations]))
                parts[str(result.seed)] = _row(result)
            write_unfinished(args, parts)
            print(f"{len(parts)} of {args.networks} networks, no bound exceeded", flush=True)
    content = summary(list(parts.values()))
    for line in content["by_depth"]:
        print(line)
    write_result(args, content)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _row(result: Attacked) -> dict[str, Any]:
    """What is kept of one network: its depth and the ratio bound/attained of everything that was attacked."""
    ratios = {
        name: bound / attained
        for name, (attained, bound) in result.pairs.items()
        if attained > 0 and math.isfinite(bound / attained)  # else the loss is flat where the ascent was
    }
    kept = {"curvature", "lipschitz", "curvature of F_0 − F_1", "slope of F_0 − F_1"}
    return {
        "depth": result.depth,
        "bounds": len(result.pairs),
        "smallest": min(ratios.values(), default=None),
        **{name: ratio for name, ratio in ratios.items() if name in kept},
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The table by depth: how many networks and bounds, and the ratio bound/attained."""
    table = []
    for depth in sorted({row["depth"] for row in rows}):
        mine = [row for row in rows if row["depth"] == depth]
        table.append(
            {
                "depth": depth,
                "networks": len(mine),
                "bounds": sum(row["bounds"] for row in mine),
                "violations": 0,
                "smallest_ratio": min(row["smallest"] for row in mine if row["smallest"] is not None),
                **{
                    f"{name.replace(' ', '_')}_{words}": value
                    for name in ("curvature", "lipschitz")
                    for words, value in _quartiles([row[name] for row in mine if name in row]).items()
                },
            }
        )
    return {"networks": len(rows), "bounds": sum(row["bounds"] for row in rows), "by_depth": table}


def _quartiles(ratios: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return {"first_quartile": low, "median": middle, "third_quartile": high}


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
