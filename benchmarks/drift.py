"""False alarms and power of the monitor's permutation test, beside drift tests of evidently and NannyML.

1. *False alarms*: random disjoint halves of five data sets, ``splits`` times each; nothing has changed.
2. *Power*: halves of breast cancer, of which the second is changed in three ways with five strengths: one
   column moves, all columns move, one column spreads; ``repeats`` halves for each strength.

The peers run on the same pairs, with their defaults, in an environment of their own: ``--peers`` is its
folder, which is made and filled by pip if it is not there; without it, they are left out. Their usage
reporting is switched off.

    python -m benchmarks.drift
    python -m benchmarks.drift --peers /tmp/peers --output /tmp/drift.json
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
from scipy.stats import binomtest

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.display import canvas
from certus.monitoring.permutation import permutation_test
from certus.runs.loaded_run import named_split
from studies.page import markdown_table

PACKAGES = ("evidently==0.7.23", "nannyml==0.13.1")
DATA = ("wine", "breast-cancer", "diabetes", "digits", "employment")
SHIFTS = ("one column moves", "all columns move", "one column spreads")
STRENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
LEVEL = 0.05
OURS = "certus"
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Args:
    data: Annotated[tuple[str, ...], "data sets whose halves are compared"] = DATA
    splits: Annotated[int, "pairs of halves of each data set"] = 200
    repeats: Annotated[int, "pairs for each shift and strength"] = 20
    rows: Annotated[int, "of a half, at most"] = 100
    rounds: Annotated[int, "permutations of a test"] = 99
    peers: Annotated[str, "folder of the environment of the peers, or none"] = "none"
    seed: Annotated[int, "of halves, shifts and permutations"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/drift.json")


def halves(rows: Any, most: int, seed: int) -> Pair:
    """Two disjoint random halves, of at most this many rows each."""
    order = np.random.default_rng(seed).permutation(len(rows))
    size = min(most, len(rows) // 2)
    return rows[order[:size]], rows[order[size : 2 * size]]


def table(name: str) -> tuple[Any, Any]:
    """All rows of a data set, as numbers, and the weights of its columns."""
    data = certus.datasets.load(name)
    inputs = named_split(data, "all").inputs.double().flatten(1).numpy()
    weights = np.ones(inputs.shape[1]) if data.weights is None else data.weights.double().numpy()
    varying = inputs.std(0) > 0
    return inputs[:, varying], weights[varying]


def shifted(rows: Any, shift: str, strength: float) -> Any:
    """Rows that changed: by deviations of a column, or of all, or in the spread of one."""
    moved, deviation = rows.copy(), rows.std(0)
    if shift == SHIFTS[0]:
        moved[:, 0] += strength * deviation[0]
    elif shift == SHIFTS[1]:
        moved += strength * deviation / 4
    else:
        middle = rows[:, 0].mean()
        moved[:, 0] = middle + (1 + strength) * (rows[:, 0] - middle)
    return moved


def cases(args: Args) -> Iterator[tuple[str, list[Pair], Any]]:
    """Pairs by the name of their case, with the weights of the columns."""
    for name in args.data:
        rows, weights = table(name)
        yield name, [halves(rows, args.rows, args.seed + split) for split in range(args.splits)], weights
    rows, weights = table("breast-cancer")
    for shift in SHIFTS:
        for strength in STRENGTHS:
            pairs = []
            for repeat in range(args.repeats):
                first, second = halves(rows, args.rows, args.seed + 10_000 + repeat)
                pairs.append((first, shifted(second, shift, strength)))
            yield f"{shift} by {strength:g}", pairs, weights


def environment_of(folder: Path) -> Path:
    """The Python of the peers' environment, made by pip if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    for package in PACKAGES:
        subprocess.run([str(python), "-m", "pip", "install", "-q", package], check=True)
    return python


def peer_alarms(python: Path, pairs: list[Pair]) -> dict[str, Any]:
    """The verdicts of the peers on all pairs; usage reporting is off."""
    with TemporaryDirectory() as place:
        stored, result = Path(place) / "pairs.npz", Path(place) / "alarms.json"
        arrays = {
            f"{side}-{n}": pair[k]
            for n, pair in enumerate(pairs)
            for k, side in enumerate(("first", "second"))
        }
        np.savez(stored, **arrays)
        quiet = {"DO_NOT_TRACK": "1", "NML_DISABLE_USAGE_LOGGING": "1", "PYTHONWARNINGS": "ignore"}
        script = Path(__file__).with_name("_drift_peers.py")
        command = [str(python), str(script), str(stored), str(result)]
        subprocess.run(command, check=True, env=os.environ | quiet, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(result.read_text())
        return found


def share(alarms: list[bool]) -> dict[str, float]:
    """Share of alarms, with an exact 95% interval."""
    ends = binomtest(sum(alarms), len(alarms)).proportion_ci(0.95)
    counts = {"alarms": sum(alarms), "pairs": len(alarms), "share": sum(alarms) / len(alarms)}
    return counts | {"from": float(ends.low), "to": float(ends.high)}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    python = None if args.peers == "none" else environment_of(Path(args.peers))
    results: dict[str, Any] = {}
    for name, pairs, weights in cases(args):
        p_values = [
            permutation_test(*pair, weights, rounds=args.rounds, seed=args.seed).p_value for pair in pairs
        ]
        entry = {OURS: share([p_value <= LEVEL for p_value in p_values])}
        if python is not None:
            found = peer_alarms(python, pairs)
            if failures := found.pop("failed", None):
                print(f"{name}: {len(failures)} failed, such as {failures[0]}", file=sys.stderr)
            entry |= {peer: share(alarms) for peer, alarms in found.items()}
        results[name] = entry
        print(
            f"{name:28s} " + "  ".join(f"{who} {one['share']:.3f}" for who, one in entry.items()), flush=True
        )
    write_result(args, {"level": LEVEL, "cases": results})
    write_page(results, args)


def write_page(results: dict[str, Any], args: Args) -> None:
    """Write the tables and the figure beside the result."""
    names = list(dict.fromkeys(who for entry in results.values() for who in entry))
    sizes = {name: results[name][OURS]["pairs"] for name in args.data}
    false = [[name, *(_cell(results[name].get(who)) for who in names)] for name in args.data]
    parts = [
        "# False alarms and power of drift tests",
        "Written by `python -m benchmarks.drift`. Shares of pairs with an alarm, with exact 95% intervals; "
        f"level {LEVEL:g}, {args.rounds} permutations, halves of at most {args.rows} rows. The peers have "
        "their defaults: they state no level, so that fewer false alarms may come with less power.",
        "## False alarms: halves of one data set",
        f"{min(sizes.values())} random pairs of disjoint halves each. Nothing has changed.",
        markdown_table(["data", *names], false),
        "## Power: breast cancer, changed on purpose",
        "Strengths are in standard deviations; of all columns a quarter of it each; of a spread its relative "
        "growth. "
        f"{results[f'{SHIFTS[0]} by {STRENGTHS[0]:g}'][OURS]['pairs']} pairs each.",
        "![Shares of alarms against strength](drift.png)",
    ]
    for shift in SHIFTS:
        lines = [
            [f"{each:g}", *(_cell(results[f"{shift} by {each:g}"].get(who)) for who in names)]
            for each in STRENGTHS
        ]
        parts += [f"### {shift.capitalize()}", markdown_table(["strength", *names], lines)]
    args.output.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    figure = canvas.new_figure(11, 3.6)
    for axes, shift in zip(figure.subplots(1, 3, sharey=True), SHIFTS, strict=True):
        for who, colour, marker in zip(names, canvas.COLOURS, canvas.MARKERS, strict=False):
            shares = [
                results[f"{shift} by {each:g}"].get(who, {}).get("share", math.nan) for each in STRENGTHS
            ]
            axes.plot(STRENGTHS, shares, color=colour, marker=marker, markersize=5, label=who)
        axes.set(xscale="log", title=shift, xlabel="strength", ylim=(-0.02, 1.02))
        axes.set_xticks(STRENGTHS, [f"{each:g}" for each in STRENGTHS])
        axes.axhline(LEVEL, color="#5f5f5f", linewidth=0.8, linestyle=":")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share of pairs with an alarm")
    canvas.legend_below(figure, *figure.axes[0].get_legend_handles_labels())
    canvas.save_figure(figure, args.output.with_suffix(".png"))


def _cell(one: dict[str, float] | None) -> str:
    return "–" if one is None else f"{one['share']:.3f} [{one['from']:.3f}, {one['to']:.3f}]"


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
