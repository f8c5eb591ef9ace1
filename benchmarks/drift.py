"""False alarms and power of the monitor's permutation test, beside drift tests of evidently and NannyML.

1. *False alarms*: random disjoint samples of five data sets; nothing has changed.
2. *Power*: samples of breast cancer, of which the new one is changed in three ways with five strengths.

New rows are a sixth of a data set, or ``rows``, if that is less; the reference is five times as many others.
The peers judge the same pairs, with their defaults and without usage reporting, in an environment of their
own, which pip fills in the folder ``--peers``; "none" leaves them out.

    python -m benchmarks.drift
    python -m benchmarks.drift --entries wine    # this one; the others stay as they are
    python -m benchmarks.drift --resume          # after an interruption
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
from scipy.stats import binomtest

import certus
from benchmarks._options import OUTPUT, RESUME, Entries, perform, read_options
from benchmarks._results import forget_unfinished, read_unfinished, write_entry, write_unfinished
from certus.display import canvas
from certus.monitoring.permutation import permutation_test
from certus.runs.loaded_run import named_split
from certus.storage.files import read_json
from studies.page import markdown_table

PACKAGES = ("evidently==0.7.23", "nannyml==0.13.1", "pandas<3")
"""Of the environment of the peers; evidently 0.7.23 cannot be imported beside pandas 3."""
QUIET = {"DO_NOT_TRACK": "1", "NML_DISABLE_USAGE_LOGGING": "1"}
"""Variables that switch off the usage reporting of both."""
DATA = ("wine", "breast-cancer", "diabetes", "digits", "employment")
SHIFTS = {
    "one-moves": "one column moves",
    "all-move": "all columns move",
    "one-spreads": "one column spreads",
}
ENTRIES = (*DATA, *SHIFTS)
STRENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
LEVEL = 0.05
OURS = "certus"
_STORED = 5  # pairs of the peers that an interruption loses at most
Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "data sets, and shifts", Entries(ENTRIES)] = ENTRIES
    splits: Annotated[int, "pairs of samples of each data set"] = 200
    peer_splits: Annotated[int, "of these, the pairs that the peers judge, too"] = 30
    repeats: Annotated[int, "pairs for each shift and strength"] = 12
    rows: Annotated[int, "new rows of a pair, at most"] = 100
    rounds: Annotated[int, "permutations of a test"] = 199
    peers: Annotated[str, "folder of the environment of the peers, or none"] = "runs/drift-peers"
    seed: Annotated[int, "of samples, shifts and permutations"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/drift.json")
    resume: Annotated[bool, RESUME] = False


def split(rows: Any, most: int, seed: int) -> Pair:
    """Random disjoint rows: five parts of reference, and one of new rows."""
    order = np.random.default_rng(seed).permutation(len(rows))
    size = min(most, len(rows) // 6)
    return rows[order[size : 6 * size]], rows[order[:size]]


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
    if shift == "one-moves":
        moved[:, 0] += strength * deviation[0]
    elif shift == "all-move":
        moved += strength * deviation / 4
    else:
        middle = rows[:, 0].mean()
        moved[:, 0] = middle + (1 + strength) * (rows[:, 0] - middle)
    return moved


def pairs_of(entry: str, args: Args) -> tuple[dict[str, list[Pair]], Any]:
    """Pairs of samples by the case of an entry, and the weights of the columns."""
    rows, weights = table(entry if entry in DATA else "breast-cancer")
    if entry in DATA:
        return {"": [split(rows, args.rows, args.seed + each) for each in range(args.splits)]}, weights
    cases = {}
    for strength in STRENGTHS:
        pairs = [split(rows, args.rows, args.seed + 10_000 + each) for each in range(args.repeats)]
        cases[f"{strength:g}"] = [(first, shifted(second, entry, strength)) for first, second in pairs]
    return cases, weights


def environment_of(folder: Path) -> Path:
    """The Python of the peers' environment, made by pip where it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def peer_alarms(python: Path, pairs: list[Pair]) -> dict[str, list[bool]]:
    """The alarms of the peers on all pairs."""
    with TemporaryDirectory() as place:
        stored, result = Path(place) / "pairs.npz", Path(place) / "alarms.json"
        sides = {"first": 0, "second": 1}
        arrays = {f"{side}-{n}": pair[k] for n, pair in enumerate(pairs) for side, k in sides.items()}
        np.savez(stored, **arrays)
        script = Path(__file__).with_name("_drift_peers.py")
        command = [str(python), str(script), str(stored), str(result)]
        subprocess.run(command, check=True, env=os.environ | QUIET, stdout=subprocess.DEVNULL)
        alarms: dict[str, list[bool]] = json.loads(result.read_text())
        return alarms


def share(alarms: list[bool]) -> dict[str, float]:
    """Share of alarms, with an exact 95% interval."""
    ends = binomtest(sum(alarms), len(alarms)).proportion_ci(0.95)
    counts = {"alarms": sum(alarms), "pairs": len(alarms), "share": sum(alarms) / len(alarms)}
    return counts | {"from": float(ends.low), "to": float(ends.high)}


def measure(entry: str, args: Args, python: Path | None, parts: dict[str, Any]) -> dict[str, Any]:
    """Shares of alarms by case and test; alarms of the peers on a few pairs each are stored in ``parts``."""
    cases, weights = pairs_of(entry, args)
    limit = args.peer_splits if entry in DATA else args.repeats
    shares = {}
    for case, pairs in cases.items():
        tests = [permutation_test(*pair, weights, rounds=args.rounds, seed=args.seed) for pair in pairs]
        shares[case] = {OURS: share([test.p_value <= LEVEL for test in tests])}
    if python is not None:
        judged = [pair for pairs in cases.values() for pair in pairs[:limit]]
        alarms: dict[str, list[bool]] = {}
        for at in range(0, len(judged), _STORED):
            name = f"{entry} {at}"
            if name not in parts:
                parts[name] = peer_alarms(python, judged[at : at + _STORED])
                write_unfinished(args, parts)
            for who, each in parts[name].items():
                alarms.setdefault(who, []).extend(each)
        for number, case in enumerate(cases):
            part = slice(number * limit, (number + 1) * limit)
            shares[case] |= {who: share(each[part]) for who, each in alarms.items()}
    first, second = next(iter(cases.values()))[0]
    sizes = {"reference": len(first), "new": len(second), "columns": first.shape[1]}
    return {"sizes": sizes, "shares": shares}


def main(args: Args) -> None:
    torch.set_num_threads(1)
    python = None if args.peers == "none" else environment_of(Path(args.peers))
    parts = read_unfinished(args)
    for entry in args.entries:
        content = measure(entry, args, python, parts)
        write_entry(args, entry, content)
        for case, shares in content["shares"].items():
            words = "  ".join(f"{who} {each['share']:.3f}" for who, each in shares.items())
            print(f"{entry} {case}: {words}", flush=True)
    forget_unfinished(args)
    results = read_json(args.output)
    if set(ENTRIES) <= set(results):
        write_page(results, args.output)


def write_page(results: dict[str, Any], output: Path) -> None:
    """Write the tables and the figure beside the result."""
    names = list(
        dict.fromkeys(who for entry in ENTRIES for each in results[entry]["shares"].values() for who in each)
    )
    options = results[DATA[0]]["measured"]["options"]
    false = [[name, _sizes(results[name]), *_cells(results[name]["shares"][""], names)] for name in DATA]
    parts = [
        "# False alarms and power of drift tests",
        "Written by `python -m benchmarks.drift`: the share of pairs of samples with an alarm, with exact "
        "95% intervals.",
        f"- certus: the permutation test of `certus monitor`, level {LEVEL:g}, {options['rounds']} "
        "permutations.\n"
        "- evidently 0.7.23: its preset for data drift, which alarms if half of the columns have drifted; or "
        "if any column has.\n"
        "- NannyML 0.13.1: any column alerts (Jensen-Shannon distance); or the error of reconstruction by "
        "principal components does.",
        "Both peers have their defaults, and NannyML chunks of the size of the new rows. They state no level "
        "for all columns together: read their power beside their false alarms. A dash: not measured.",
        "## False alarms",
        f"{options['splits']} random pairs each, the first {options['peer_splits']} of them for the peers. "
        "Nothing has changed.",
        markdown_table(["data", "reference + new rows × columns", *names], false),
        "## Power",
        "Breast cancer; the new rows are changed on purpose. Strengths are in standard deviations: one "
        "column moves by the strength, all columns move by a quarter of it each, or one column spreads by "
        f"that share. {options['repeats']} pairs each.",
        "![Shares of alarms against strength](drift.png)",
    ]
    for shift, words in SHIFTS.items():
        shares = results[shift]["shares"]
        lines = [[f"{each:g}", *_cells(shares[f"{each:g}"], names)] for each in STRENGTHS]
        parts += [f"### {words.capitalize()}", markdown_table(["strength", *names], lines)]
    output.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    figure = canvas.new_figure(11, 3.8)
    for axes, (shift, words) in zip(figure.subplots(1, 3, sharey=True), SHIFTS.items(), strict=True):
        cases = [results[shift]["shares"][f"{each:g}"] for each in STRENGTHS]
        for who, colour, marker in zip(names, canvas.COLOURS, canvas.MARKERS, strict=False):
            shares = [case.get(who, {}).get("share", math.nan) for case in cases]
            axes.plot(STRENGTHS, shares, color=colour, marker=marker, markersize=5, label=who)
        axes.set(xscale="log", title=words, xlabel="strength (standard deviations)", ylim=(-0.02, 1.02))
        axes.set_xticks(STRENGTHS, [f"{each:g}" for each in STRENGTHS])
        axes.minorticks_off()
        axes.axhline(LEVEL, color="#5f5f5f", linewidth=0.8, linestyle=":", label="level of certus")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("share of pairs with an alarm")
    canvas.legend_below(figure, *figure.axes[0].get_legend_handles_labels())
    canvas.save_figure(figure, output.with_suffix(".png"))


def _sizes(entry: dict[str, Any]) -> str:
    sizes = entry["sizes"]
    return f"{sizes['reference']} + {sizes['new']} × {sizes['columns']}"


def _cells(shares: dict[str, dict[str, float]], names: list[str]) -> list[str]:
    return ["–" if who not in shares else _cell(shares[who]) for who in names]


def _cell(one: dict[str, float]) -> str:
    return f"{one['share']:.3f} [{one['from']:.3f}, {one['to']:.3f}]"


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
