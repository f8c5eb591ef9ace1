"""What ``certus attack`` and ``certus compare`` show: rows, a table, a picture, and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from certus.attacks.evaluate import WORST, Outcome, Trial, as_row
from certus.cli.attack_options import AttackOptions
from certus.cli.output import console, messages, print_json
from certus.cli.table_files import as_csv, as_latex, flat_rows
from certus.costs import Cost
from certus.data import Samples, Subset
from certus.display.attack_figures import Curve, Panel, draw_sweeps
from certus.display.text import make_table, number
from certus.domains import Domain, Unbounded
from certus.evidence import Evidence
from certus.runs.files import to_tag
from certus.runs.loaded_run import TrainedRun
from certus.storage.write import write_atomically, write_json

_WORDS = {
    "norm": "norm {}",
    "epsilon": "epsilon {}",
    "gamma": "gamma {}",
    "steps": "steps {}",
    "step_size": "step size {}",
    "restarts": "random starts {}",
}


def tell(
    asked: AttackOptions,
    done: dict[str, list[tuple[Trial, Outcome]]],
    about: dict[str, Any],
    samples: str,
    domain: Domain,
    last: str,
    *,
    as_json: bool,
) -> None:
    """Write, draw and print what was found.

    Args:
        done: run → its trials; about: all of it, with its ``rows``.
        samples, last: what the words under the table begin and end with.
    """
    rows = about["rows"]
    said = f"{samples}; {where(rows, domain)}"
    try:
        save_result(asked.output, about)
        if asked.plot is not None:
            draw(done, asked.plot, f"{said}; 95% intervals", about["units"])
    finally:  # what was found is shown, even if it cannot be written
        if as_json:
            print_json(about)
        else:
            print_rows(rows)
            console.print(f"{said}. {last}")


def save_result(output: Path | None, content: dict[str, Any]) -> None:
    """Write the rows as LaTeX or CSV, or all of it as JSON, by the suffix of the file, if one was named."""
    if output is None:
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    suffix = output.suffix.lower()
    if suffix == ".tex":
        write_atomically(output, as_latex(_columns(content["rows"]) | _differences(content["rows"])).encode())
    elif suffix == ".csv":
        write_atomically(output, as_csv(flat_rows(content["rows"])).encode())
    else:
        write_json(output, content)


def make_rows(done: list[tuple[Trial, Outcome]], cost: Cost) -> list[dict[str, Any]]:
    """Rows with all that decides them: wrm pays a cost, too."""
    return [
        {**as_row(trial, outcome), "cost": to_tag(cost) if trial.attack == "wrm" else None}
        for trial, outcome in done
    ]


def describe(trained: TrainedRun, samples: Subset, seed: int) -> dict[str, Any]:
    """What every row of a file shares."""
    return {
        "data": trained.data.name,
        "units": trained.data.units,
        "samples": len(samples.data),
        "chosen": samples.words,
        "domain": to_tag(trained.data.domain),
        "seed": seed,
        "evidence": Evidence.ATTAINED,
    }


def frozen_words(data: Samples) -> str:
    """Which columns of a table attacks leave alone, as a sentence; nothing if none."""
    if data.encoding is None or data.encoding.plain:
        return ""
    return " Numbers without gaps move alone: categories, gaps and dates stay as they are."


def print_rows(rows: list[dict[str, Any]]) -> None:
    """A table of results, and one of the differences to the first run, if there are several."""
    _print_columns(_columns(rows))
    others = [row for row in rows if row.get("minus_first") is not None]
    if others:
        _print_columns(_which(rows, others) | _differences(others))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """What tells the rows apart, and what was measured, column by column."""
    labelled = rows[0]["error"] is not None
    columns = _which(rows)
    for name in ("error", "loss") if labelled else ("loss",):
        digits = ".3f" if name == "error" else ".3g"
        columns[name] = [f"{row[name]['value']:{digits}}" for row in rows]
        if name == "error" or not labelled:
            columns["95%"] = [f"{row[name]['low']:{digits}}–{row[name]['high']:{digits}}" for row in rows]
    columns["mean squared L2 move"] = [f"{row['rho_test']:.3g}" for row in rows]
    return columns


def _differences(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Differences to the first run, a dash for the first run itself; empty where there is one run only."""
    gaps = [row.get("minus_first") for row in rows]
    of = next((gap["of"] for gap in gaps if gap is not None), None)
    if of is None:
        return {}
    values = ["–" if gap is None else f"{gap['value']:+.3f}" for gap in gaps]
    intervals = ["–" if gap is None else f"{gap['low']:+.3f} to {gap['high']:+.3f}" for gap in gaps]
    return {f"{of} minus first": values, "95% of the difference": intervals}


def _which(rows: list[dict[str, Any]], shown: list[dict[str, Any]] | None = None) -> dict[str, list[str]]:
    """What tells the rows apart, column by column; what all of them have, or none, is left out."""
    columns = {
        name: [number(row[name]) for row in shown or rows]
        for name in ("attack", "norm", "epsilon", "gamma")
        if len({row[name] for row in rows}) > 1
    }
    return ({"run": [row["run"] for row in shown or rows]} if "run" in rows[0] else {}) | columns


def _print_columns(columns: dict[str, list[str]]) -> None:
    shown = make_table(*columns)
    for cells in zip(*columns.values(), strict=True):
        shown.add_row(*cells)
    console.print(shown)


def draw(results: dict[str, list[tuple[Trial, Outcome]]], path: Path, title: str, units: str) -> None:
    """One panel for each attack, one line for each run; of a single run, one line for each attack."""
    kinds: dict[str, list[tuple[str, Trial, Outcome]]] = {}
    for name, done in results.items():
        for trial, outcome in done:
            kind = "wrm" if trial.attack == "wrm" else f"norm {trial.norm:g}"
            panel = kind if len(results) == 1 or trial.attack == "wrm" else f"{trial.attack}, {kind}"
            kinds.setdefault(panel, []).append((trial.attack if len(results) == 1 else name, trial, outcome))
    panels = []
    for panel, entries in kinds.items():
        curves = {}
        for line in dict.fromkeys(label for label, _, _ in entries):
            mine = sorted(
                ((trial.strength, outcome) for label, trial, outcome in entries if label == line),
                key=lambda pair: pair[0],
            )
            intervals = [outcome.error() or outcome.mean_loss() for _, outcome in mine]
            curves[line] = Curve(
                [strength for strength, _ in mine],
                [one.value for one in intervals],
                [one.low for one in intervals],
                [one.high for one in intervals],
            )
        labelled = entries[0][2].wrong is not None
        strength = f"inputs move by at most ε ({units})"
        if "wrm" in panel:
            strength = "γ of the attack: less is stronger"
        quantity = "error rate under attack" if labelled else "mean loss under attack"
        panels.append(Panel(panel, strength, quantity, curves, towards=-1 if "wrm" in panel else 1))
        if "wrm" in panel:
            distances = _distances(entries)
            panels.append(Panel(panel, strength, "ρ̂_test, mean squared distance", distances, towards=-1))
    draw_sweeps(panels, path, title)
    messages.print(f"Drawn into {path}")


def _distances(entries: list[tuple[str, Trial, Outcome]]) -> dict[str, Curve]:
    """ρ̂_test against γ, one line for each label (fig:mnist2)."""
    curves = {}
    for line in dict.fromkeys(label for label, _, _ in entries):
        mine = sorted((trial.strength, one.rho_test) for label, trial, one in entries if label == line)
        strengths, levels = [pair[0] for pair in mine], [pair[1] for pair in mine]
        curves[line] = Curve(strengths, levels, levels, levels)
    return curves


def where(rows: list[dict[str, Any]], domain: Domain) -> str:
    """What the table leaves out, since it is the same in every row, in words."""
    said = [", ".join(dict.fromkeys(row["attack"] for row in rows if row["attack"] != WORST))]
    for name, words in _WORDS.items():
        values = {row[name] for row in rows} - {None}
        if len(values) == 1 and (name, *values) != ("restarts", 1):
            said.append(words.format(number(*values)))
    costs = [row["cost"]["type"] for row in rows if row["cost"] is not None]
    said += [f"cost {costs[0]}"] if costs else []
    return ", ".join([*said, clipping(rows[0]["clipped"], domain)])


def clipping(clipped: bool, domain: Domain) -> str:
    """Where moved inputs were kept."""
    if not clipped:
        return "not clipped"
    unbounded = isinstance(domain, Unbounded)
    return "not clipped, since the data have no bounds" if unbounded else "clipped to the data's domain"
